# pyright: basic
"""`ludus serve --ray`: servers as an application of Ray Serve, scaled by load.

Serve starts servers, replaces those that fail their check, and decides how many there are, from the
operations in flight that each server tells. Requests never pass through it: a session lives in one
server, so that clients choose the server themselves, from a file of addresses that follows.
"""

from __future__ import annotations

import logging
import math
import re
import time
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from ludus.errors import ConfigError

from .board import AddressFile
from .hosts import ServerHost
from .resources import NAMESPACE, answer, connect

logger = logging.getLogger(__name__)
TOLD_S, SILENT_S = 2.0, 12.0
"""Seconds between two words of a server about itself, and after which a silent one is left out."""
START_S = 600.0
"""Seconds in which a server must serve."""
LOOK_BACK_S = 10.0
"""Seconds over which Serve takes the mean of a queue."""
DEPTH = re.compile(r"^ludus_queue_depth\S* (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """How many servers there are."""

    least: int
    most: int
    queue: int
    """Operations in flight that a server should have; more start another one."""
    cpus: float = 1.0
    """CPUs that a server is given."""
    wait_s: float = 30.0
    """Seconds for which fewer would do before one is ended."""


class Addresses:
    """The actor that keeps the list of live servers."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[str, float]] = {}

    def tell(self, name: str, url: str) -> None:
        """Note that a server lives; an empty address says that the server ends."""
        self._reports[name] = url, time.monotonic()

    def urls(self) -> list[str]:
        """Return the addresses of the live servers."""
        since = time.monotonic() - SILENT_S
        return sorted(
            url for url, last_seen in self._reports.values() if url and last_seen >= since
        )


class ServedReplica(ServerHost):
    """Runs a `ludus serve` as a replica of a deployment.

    Args:
        words: the command line after `serve`.
        before: that before `serve`.
        variables: added to the environment; the token is among them.
        folder: of the logs.
        name: of the application.
        queue: operations in flight that the server should have.
        drain_s: seconds for which a server that ends goes on with its episodes.
    """

    def __init__(
        self,
        words: Sequence[str],
        before: Sequence[str],
        variables: dict[str, str],
        folder: str,
        name: str,
        queue: int,
        drain_s: float,
    ) -> None:
        self.id, self.queue, self.drain_s = uuid.uuid4().hex[:8], queue, drain_s
        self._ending = False
        self._token = variables.get("LUDUS_TOKEN", "")
        self._addresses = ray.get_actor(f"{name}-addresses", namespace=NAMESPACE)
        super().__init__(words, variables, str(Path(folder) / f"server-{self.id}.log"), before)
        end = time.monotonic() + START_S
        while not (url := self.state().url):
            if time.monotonic() > end:
                raise RuntimeError(f"the server has not started: {self.said()[-300:]}")
            time.sleep(0.2)
        self.url = url
        self.check_health()

    def check_health(self) -> None:
        """Tell that the server lives; Serve replaces a replica whose check fails."""
        self._depth()
        self._addresses.tell.remote(self.id, "" if self._ending else self.url)

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what Serve scales on: operations in flight over the target number."""
        return {"load": self._depth() / self.queue}

    def __del__(self) -> None:
        # Serve calls this before it ends a replica: its address goes first, then its episodes end.
        self._ending = True
        # Whoever keeps the addresses may be gone: the server is stopped all the same.
        answer(self._addresses.tell.remote(self.id, ""), None, within_s=10)
        self.stop()
        if self._process is not None:
            self._process.wait(self.drain_s + 30)

    def _depth(self) -> float:
        request = urllib.request.Request(
            f"{self.url}/metrics", headers={"Authorization": f"Bearer {self._token}"}
        )
        with urllib.request.urlopen(request, timeout=10) as reply:
            return sum(map(float, DEPTH.findall(reply.read().decode())))

    def _ended(self) -> None:
        if not self._ending:
            super()._ended()


def by_load(context: Any) -> tuple[int, dict[str, Any]]:
    """Return how many servers Serve should have: the sum of all loads, rounded up.

    Args:
        context: what Serve knows of the deployment (`ray.serve.config.AutoscalingContext`).
    """
    loads = context.aggregated_metrics.get("load", {})
    wanted = math.ceil(round(sum(loads.values()), 3)) if loads else context.current_num_replicas
    least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
    return max(least, min(most, wanted)), {}


@dataclass(frozen=True, kw_only=True)
class ScaledServers:
    """What is served, and how."""

    words: Sequence[str]
    """The command line of a server after `serve`."""
    before: Sequence[str]
    """Words before `serve`, which import files of the user."""
    variables: dict[str, str]
    """Variables of the servers; the token is among them."""
    address: str
    """The address of the cluster, as `--ray` has it."""
    roster: Path
    """The file of addresses, in a folder that all nodes see; logs are beside it."""
    drain_s: float
    scaling: Scaling

    @property
    def name(self) -> str:
        """The name of the application."""
        return f"ludus-{self.roster.stem}"


def serve_scaled(
    servers: ScaledServers, stopped: Callable[[], bool], announce: Callable[[list[str]], None]
) -> None:
    """Run the application until `stopped`, and keep the file of addresses.

    Args:
        servers: what is served.
        stopped: says when to end.
        announce: called with the addresses whenever they change.

    Raises:
        ConfigError: there is no such cluster, or another application of the name on it.
    """
    connect(servers.address)
    try:
        addresses = ray.remote(Addresses).options(
            name=f"{servers.name}-addresses", namespace=NAMESPACE, num_cpus=0
        )
        register = addresses.remote()
        serve.start(http_options={"location": "NoServer"})
        serve.run(_application(servers), name=servers.name, route_prefix=None)
        roster = AddressFile(servers.roster)
        while not stopped():
            urls = answer(register.urls.remote(), [])
            if roster.write(urls):
                announce(urls)
            time.sleep(1.0)
    except ValueError as error:
        raise ConfigError(
            f"servers named {servers.name!r} are on the cluster already ({error}); name another "
            "--roster"
        ) from error
    finally:
        serve.shutdown()
        ray.shutdown()


def _application(servers: ScaledServers) -> serve.Application:
    scaling = servers.scaling
    deployment = serve.deployment(
        name="servers",
        ray_actor_options={"num_cpus": scaling.cpus},
        autoscaling_config=AutoscalingConfig(
            min_replicas=scaling.least,
            max_replicas=scaling.most,
            metrics_interval_s=TOLD_S,
            look_back_period_s=LOOK_BACK_S,
            upscale_delay_s=TOLD_S,
            downscale_delay_s=scaling.wait_s,
            policy=AutoscalingPolicy(policy_function=by_load),
        ),
        health_check_period_s=TOLD_S,
        health_check_timeout_s=10 * TOLD_S,
        graceful_shutdown_timeout_s=servers.drain_s + 40,
    )(ServedReplica)
    return deployment.bind(
        list(servers.words),
        list(servers.before),
        servers.variables,
        f"{servers.roster.absolute()}.logs",
        servers.name,
        scaling.queue,
        servers.drain_s,
    )
