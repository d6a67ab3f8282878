# pyright: basic
"""Joining a Ray cluster, and reserving the resources of a run.

Ray keeps a group of bundles that can never be placed pending without a word, so that what is asked
is compared with what there is before, and a reservation waits no longer than it was told to.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from ludus.errors import ConfigError

from ..settings.cluster import AUTO, LOCAL, ClusterConfig

NAMESPACE = "ludus"
"""Ray's namespace of the names of runs."""
PLACED_S = 60.0
"""Seconds in which Ray must have placed what the cluster has room for."""
STORE_BYTES = 200 << 20
"""Size of the object store of a cluster that is started here for a run without engines, where it
holds settings alone; with engines it is Ray's own, a share of the memory.
"""
POLL_S = 1.0
CONNECT_S = 10.0
"""Seconds in which the head must take a connection."""

ANSWER_S = 10.0
"""Seconds in which an actor must answer."""

Bundle = dict[str, float]


@contextmanager
def joined(config: ClusterConfig) -> Generator[None]:
    """Be a driver of the cluster inside the block.

    Raises:
        ConfigError: there is no cluster at the address, or it has another version of Ray.
    """
    options: dict[str, Any] = {}
    if config.address == LOCAL:
        # Never a cluster of somebody else's, whatever RAY_ADDRESS says.
        options["include_dashboard"] = False
        options["num_cpus"] = max(os.cpu_count() or 1, _needed(bundles(config))["CPU"])
        if not config.engines:
            options["object_store_memory"] = STORE_BYTES
    connect(config.address, **options)
    try:
        yield
    finally:
        ray.shutdown()


def connect(address: str, **options: Any) -> None:
    """Become a driver of a cluster, unless this process is a driver already.

    Raises:
        ConfigError: there is no cluster at the address, or it has another version of Ray.
    """
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _refuse_silent(os.environ.get("RAY_ADDRESS", "") if address == AUTO else address)
    options |= {"address": address, "log_to_driver": False, "configure_logging": False}
    log = logging.getLogger("ray._private.worker")
    level = log.level
    # Outside the main thread Ray leaves SIGTERM alone, as is wanted, and warns of that.
    log.setLevel(logging.ERROR)
    try:
        ray.init(namespace=NAMESPACE, **options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = "on this machine" if address == AUTO else f"at {address}"
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"cannot join a Ray cluster {where}: {reason}; start one (ray start --head), with the "
            f"Ray of this environment ({ray.__version__})"
        ) from error
    finally:
        log.setLevel(level)


def _refuse_silent(address: str) -> None:
    """Refuse an address at which nothing listens, for which Ray itself would end this process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"cannot join a Ray cluster at {address}: {error.strerror or error}; start one there "
            "(ray start --head), or name another HOST:PORT"
        ) from error


def bundles(config: ClusterConfig) -> list[Bundle]:
    """Return what each process of a run is given: ranks, servers of environments and of rewards,
    and engines.
    """
    rank = _bundle(config.cpus_of_rank, config.gpus_of_rank)
    engine = _bundle(config.cpus_of_engine, config.gpus_of_engine)
    servers = [_bundle(config.cpus_of_server, 0.0)] * (config.environments + config.rewards)
    return [rank] * config.learner_ranks + servers + [engine] * config.engines


def _bundle(cpus: float, gpus: float) -> Bundle:
    return {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}


@contextmanager
def reserved(config: ClusterConfig, name: str) -> Generator[Any]:
    """Hold the resources of a run inside the block, as a placement group.

    Raises:
        ConfigError: another run has the name, or the cluster lacks what is asked for, with what.
    """
    asked, deadline = bundles(config), time.monotonic() + config.wait_s
    _refuse_taken(name)
    while lacking := missing(_needed(asked), ray.cluster_resources()):
        if time.monotonic() >= deadline:
            waited = f" after {config.wait_s:g} s" if config.wait_s else ""
            raise ConfigError(
                f"the cluster lacks {lacking}{waited} (cluster.learner_ranks, "
                "cluster.environments, cluster.rewards, cluster.engines and their cpus and gpus); "
                "add nodes, or wait for them (cluster.wait_s)"
            )
        time.sleep(POLL_S)
    group = placement_group(asked, strategy="PACK", name=name)
    try:
        if not group.wait(PLACED_S + config.wait_s):
            free = ", ".join(
                f"{count:g} {kind}"
                for kind, count in sorted(ray.available_resources().items())
                if kind in ("CPU", "GPU")
            )
            raise ConfigError(
                f"Ray has not placed the run within {PLACED_S + config.wait_s:g} s: "
                f"{free or 'nothing'} is free now, others hold the rest, or no node has room for "
                f"the largest process ({max(asked, key=lambda bundle: sum(bundle.values()))})"
            )
        yield group
    finally:
        remove_placement_group(group)


def _refuse_taken(name: str) -> None:
    """Refuse the name of a run that goes on."""
    try:
        ray.get_actor(f"{name}-rank-0", namespace=NAMESPACE)
    except ValueError:
        return
    raise ConfigError(
        f"a run named {name!r} is on the cluster already; wait for its end, or name another "
        "run.folder"
    )


def _needed(asked: list[Bundle]) -> Bundle:
    kinds = {kind for bundle in asked for kind in bundle}
    return {kind: sum(bundle.get(kind, 0.0) for bundle in asked) for kind in kinds}


def missing(needed: Mapping[str, float], there: Mapping[str, float]) -> str:
    """Return what is missing of what is needed; empty where nothing is.

    >>> missing({"CPU": 4, "GPU": 2}, {"CPU": 8})
    '2 GPU (2 asked for, 0 there)'
    """
    return ", ".join(
        f"{count - there.get(kind, 0.0):g} {kind} ({count:g} asked for, "
        f"{there.get(kind, 0.0):g} there)"
        for kind, count in sorted(needed.items())
        if count > there.get(kind, 0.0)
    )


def ranks_in_order(group: Any, count: int) -> list[tuple[int, str]]:
    """Return bundle and node of each rank; ranks on a node are consecutive.

    Ray numbers bundles as they were asked for, wherever they are placed.
    """
    nodes: dict[int, str] = placement_group_table(group)["bundles_to_node_id"]
    return sorted(((number, nodes[number]) for number in range(count)), key=lambda rank: rank[1])


def answer(call: Any, otherwise: Any, *, within_s: float = ANSWER_S) -> Any:
    """Return an actor's answer, or `otherwise` if the actor is gone or too slow."""
    try:
        return ray.get(call, timeout=within_s)
    except (RayError, GetTimeoutError):
        return otherwise
