# pyright: basic
"""The driver of a run on a cluster: places, watches and restarts the run's processes.

    driver    placement, the roster of servers, the group of ranks
    servers   `ludus serve` of the environment and of verifiers; Ray starts them again, at another
              address, which the driver writes into the roster that the run reads again
    ranks     `ludus train`; rank 0 plays, samples, learns and writes the run's folder. A group that
              loses one is ended, and started again from the newest checkpoint

Data never passes through the driver or Ray: sessions and verdicts are HTTP, gradients are torch's.
A driver that dies takes its actors with it, and they their processes: nothing goes on unwatched.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ludus.config import to_toml
from ludus.errors import ConfigError, TrainingFailed
from ludus.metrics import replace_file
from ludus.wire.roster import FILE

from ..config import TrainConfig
from ..open_engine import PLACED
from ..run.folder import referring
from ..settings.cluster import ClusterConfig
from ..setup import run_path
from .board import AddressFile, Board, PlacedProcess, look
from .engines import MAX_CALLS, EngineHost
from .hosts import RankHost, ServerHost, VllmHost
from .resources import NAMESPACE, answer, joined, ranks_in_order, reserved

logger = logging.getLogger(__name__)

POLL_S = 1.0
"""Seconds between looks at the actors."""
AGAIN_S, MOST_AGAIN_S = 1.0, 30.0
"""The pause before the learner is started again; doubled each time."""
STOP_S = 300.0
"""Seconds in which a run that is told to stop writes its checkpoint."""
KEPT = ("LUDUS_", "GLOO_", "NCCL_", "OMP_", "HF_", "WANDB_")
"""Beginnings of the names of variables that the processes of a run are given from the driver."""
INTERRUPTED = 130


def run_on_cluster(config: TrainConfig, imports: Sequence[str] = ()) -> tuple[int, str]:
    """Run training on a cluster; return rank 0's exit code and last message.

    Args:
        config: the settings; `cluster.address` says where.
        imports: files and modules of the user, which the processes import too.

    Raises:
        ConfigError: the cluster cannot be joined, or lacks something.
        TrainingFailed: the learner was lost more often than `cluster.restarts`, or failed.
    """
    path = run_path(config).absolute()
    with ExitStack() as stack:
        stack.enter_context(joined(config.cluster))
        group = stack.enter_context(reserved(config.cluster, path.name))
        before = [part for imported in imports for part in ("--import", imported)]
        run = _Run(config, path, group, before)
        return run.drive(), run.said


class _Run:
    """The processes of a run.

    Args:
        config: the settings of the run.
        path: the run's folder.
        group: the placement group.
        before: words before the verb of each process.
    """

    def __init__(self, config: TrainConfig, path: Path, group: Any, before: list[str]) -> None:
        self.config, self.path, self.group, self.before = config, path, group, before
        self.cluster: ClusterConfig = config.cluster
        self.side = path.with_name(f"{path.name}.cluster")
        """The folder of rosters, settings and logs, beside that of the run."""
        self.variables = {
            name: value for name, value in os.environ.items() if name.startswith(KEPT)
        }
        self.variables.setdefault("LUDUS_TOKEN", secrets.token_hex(16))
        self.servers: dict[str, list[PlacedProcess]] = {}
        self.engines: list[PlacedProcess] = []
        self.board = Board(self.side)
        self.rosters = {kind: AddressFile(self.side / kind) for kind in ("environments", "rewards")}
        self.restarts = 0
        self.said = ""
        """What rank 0 has written at the end of the run."""

    def drive(self) -> int:
        """Place all processes, and watch until the run is over."""
        self.side.mkdir(parents=True, exist_ok=True)
        try:
            code = self._drive()
        except BaseException as error:
            self.board.enter(f"failed: {str(error) or type(error).__name__}")
            raise
        self.board.enter("ended" if not code else "stopped")
        return code

    def _drive(self) -> int:
        self.board.enter("starting servers")
        config = self._with_servers()
        while True:
            self.board.enter("starting the learner")
            ranks = self._start_ranks(config)
            try:
                code, lost = self._watch(ranks)
            except KeyboardInterrupt:
                return self._stop(ranks)
            finally:
                for rank in ranks:
                    ray.kill(rank.actor)
            if not lost:
                return code
            self.restarts += 1
            if self.restarts > self.cluster.restarts:
                raise TrainingFailed(
                    f"{lost}, for the {self.restarts}. time (cluster.restarts is "
                    f"{self.cluster.restarts}); the run goes on with --run.resume"
                )
            pause_s = min(MOST_AGAIN_S, AGAIN_S * 2 ** (self.restarts - 1))
            self.board.enter(f"{lost}; the learner starts again in {pause_s:g} s")
            logger.warning("%s; the learner starts again in %g s", lost, pause_s)
            time.sleep(pause_s)
            config = replace(config, run=replace(config.run, resume="auto"))

    def _with_servers(self) -> TrainConfig:
        """Place the servers, and return the settings with the servers' rosters."""
        config, first = self.config, self.cluster.learner_ranks
        if self.cluster.environments:
            self._place("environments", [config.env], first, self.cluster.environments)
        names = [reward.name for reward in config.reward if "#" not in reward.name]
        if self.cluster.rewards and not names:
            raise ConfigError(
                f"cluster.rewards is {self.cluster.rewards}, but reward names no verifier to serve"
            )
        if self.cluster.rewards:
            start = first + self.cluster.environments
            self._place("rewards", names, start, self.cluster.rewards)
        self._await_servers()
        self._place_engines()
        config = replace(config, cluster=ClusterConfig())
        if self.cluster.environments:
            config = replace(config, env_url=f"{FILE}{self.rosters['environments'].path}")
        if self.cluster.rewards:
            roster = f"{FILE}{self.rosters['rewards'].path}"
            served = [
                reward
                if "#" in reward.name
                else replace(reward, name=f"{roster}#{reward.name.partition('?')[0]}")
                for reward in config.reward
            ]
            config = replace(config, reward=served)
        return config

    def _place(self, kind: str, names: list[str], first: int, count: int) -> None:
        host = ray.remote(ServerHost)
        self.servers[kind] = [
            self.board.add(
                f"{kind}-{number}",
                host.options(
                    **self._options(f"{kind}-{number}", first + number),
                    num_cpus=self.cluster.cpus_of_server,
                    max_restarts=-1,
                ).remote(
                    names, self.variables, str(self.side / f"{kind}-{number}.log"), self.before
                ),
            )
            for number in range(count)
        ]

    def _place_engines(self) -> None:
        """Start the actors of the engines, in which rank 0 builds engines, or starts servers.

        Raises:
            ConfigError: the run has engines already.
        """
        cluster, config = self.cluster, self.config
        idle = "local.engines" if config.local.engines else "vllm.url" if config.vllm.url else ""
        if cluster.engines and idle:
            raise ConfigError(
                f"cluster.engines is {cluster.engines}, and {idle} names engines too: leave one out"
            )
        first = cluster.learner_ranks + cluster.environments + cluster.rewards
        device = "cuda" if cluster.gpus_of_engine else "cpu"
        for number in range(cluster.engines):
            name = f"engines-{number}"
            given = {
                **self._options(name, first + number),
                "num_cpus": cluster.cpus_of_engine,
                "num_gpus": cluster.gpus_of_engine,
                "max_restarts": -1,
            }
            if self.config.engine == "vllm":
                host = ray.remote(VllmHost).options(**given)
                actor = host.remote(str(self.side / f"{name}.log"))
            else:
                host = ray.remote(EngineHost).options(**{**given, "max_concurrency": MAX_CALLS})
                actor = host.remote(max(1, int(cluster.cpus_of_engine)), device)
            self.engines.append(self.board.add(name, actor))
        if self.engines:
            address = ray.get_runtime_context().gcs_address
            self.variables[PLACED] = f"{address}/{self.path.name}/{cluster.engines}"

    def _options(self, name: str, bundle: int) -> dict[str, Any]:
        return {
            "name": f"{self.path.name}-{name}",
            "namespace": NAMESPACE,
            "max_concurrency": 4,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                self.group, placement_group_bundle_index=bundle
            ),
        }

    def _await_servers(self) -> None:
        deadline = time.monotonic() + self.cluster.start_timeout_s
        while waiting := [
            server for servers in self.servers.values() for server in servers if not server.url
        ]:
            self._look_at_servers()
            if time.monotonic() > deadline:
                raise TrainingFailed(
                    f"{len(waiting)} servers have not started within "
                    f"{self.cluster.start_timeout_s:g} s (cluster.start_timeout_s); see the logs "
                    f"in {str(self.side)!r}"
                )
            time.sleep(POLL_S / 2)
        for roster in self.rosters.values():
            if roster.fault is not None:  # the learner could not find the servers
                raise TrainingFailed(f"{roster.path} cannot be written: {roster.fault}")

    def _look_at_servers(self) -> None:
        """Write the rosters anew where a server has another address."""
        look([*self.engines, *(server for kind in self.servers.values() for server in kind)])
        for kind, servers in self.servers.items():
            self.rosters[kind].write([server.url for server in servers if server.url])
        self.board.write()

    def _start_ranks(self, config: TrainConfig) -> list[PlacedProcess]:
        """Start the group of ranks."""
        count = self.cluster.learner_ranks
        places = ranks_in_order(self.group, count)
        settings = self.side / "settings.toml"
        replace_file(settings, to_toml(referring(config)).encode())
        host = ray.remote(RankHost)
        ranks = [
            self.board.add(
                f"rank-{rank}",
                host.options(
                    **self._options(f"rank-{rank}", bundle),
                    num_cpus=self.cluster.cpus_of_rank,
                    num_gpus=self.cluster.gpus_of_rank,
                    max_restarts=0,
                ).remote(str(self.side / f"rank-{rank}.log")),
            )
            for rank, (bundle, _) in enumerate(places)
        ]
        limit_s = self.cluster.start_timeout_s
        try:
            address, port = ray.get(ranks[0].actor.address.remote(), timeout=limit_s)
            words = [*self.before, "train", str(settings)]
            begun = [
                rank.actor.begin.remote(words, {**self.variables, **variables})
                for rank, variables in zip(ranks, _places(places, address, port), strict=True)
            ]
            ray.get(begun, timeout=limit_s)
        except (RayError, GetTimeoutError) as error:
            logger.warning("a rank did not start: %s", error)
        return ranks

    def _watch(self, ranks: list[PlacedProcess]) -> tuple[int, str]:
        """Wait until the run is over; return the exit code of rank 0, and what was lost, if
        anything.
        """
        self.board.enter("training")
        while True:
            self._look_at_servers()
            look(ranks)
            if lost := [f"{rank.name.replace('-', ' ')} was lost" for rank in ranks if rank.lost]:
                self.board.write()
                return 1, ", ".join(lost)
            if ranks[0].code is not None:
                return self._ending(ranks)
            time.sleep(POLL_S)

    def _ending(self, ranks: list[PlacedProcess]) -> tuple[int, str]:
        """Keep the last message of rank 0.

        Raises:
            TrainingFailed: it ended by an error of its own.
        """
        said = str(answer(ranks[0].actor.said.remote(), ""))
        if ranks[0].code in (0, INTERRUPTED):
            self.said = said.strip()
            return int(ranks[0].code or 0), ""
        # The others end within seconds of a lost one: was it that?
        time.sleep(POLL_S)
        look(ranks[1:])
        if any(rank.lost for rank in ranks[1:]):
            return 1, "a rank was lost"
        lines = [line for line in said.strip().splitlines() if line.startswith("ludus: ")]
        reason = lines[-1].removeprefix("ludus: ") if lines else said.strip()[-300:]
        raise TrainingFailed(f"rank 0 ended: {reason} (its log: {self.side / 'rank-0.log'})")

    def _stop(self, ranks: list[PlacedProcess]) -> int:
        """Let the run write a checkpoint, and end."""
        self.board.enter("stopping")
        answer(ranks[0].actor.stop.remote(), None)
        end = time.monotonic() + STOP_S
        while time.monotonic() < end and ranks[0].code is None and not ranks[0].lost:
            time.sleep(POLL_S)
            look(ranks[:1])
        self.said = str(answer(ranks[0].actor.said.remote(), "")).strip()
        return INTERRUPTED


def _places(places: list[tuple[int, str]], address: str, port: int) -> Iterator[dict[str, str]]:
    """Yield the variables of each rank, as torchrun would set them. Ray shows a rank its own GPU
    alone, which is then the first that the rank sees.
    """
    for rank in range(len(places)):
        if len(places) == 1:
            yield {}
            return
        yield {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(places)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
        }
