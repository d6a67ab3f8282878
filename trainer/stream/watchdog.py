"""Who waits for whom when nothing moves, and how long a lost environment is waited for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ludus.agent import Episode, Stop
from ludus.errors import LudusError, NoEngineLeft, ServerUnreachable, TrainingFailed

from ..rollout.collect import Group, cancelled
from ..rollout.stages import Stages

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOKS = 4
"""How often the watchdog looks within the time after which it speaks."""


class RunStalled(LudusError, RuntimeError):
    """No rollout, update or publish has moved for `overlap.stall_limit_s`; the message names the
    stages that are waited for.
    """


class Watchdog:
    """Watches that something moves: a rollout, the update, the publishing of weights.

    Args:
        stages: what is waited for.
        after_s: seconds of silence after which the watchdog speaks, and again after twice as long.
        limit_s: seconds of silence after which the run ends; 0 never ends a run.
        tell: called with a sentence.
        sampled: returns the number of tokens that the engines of this process have sampled. A
            larger number is a move: long answers on a slow machine are no stall. An engine in
            another process is not asked, since one that hangs is found there.
    """

    def __init__(
        self,
        stages: Stages,
        *,
        after_s: float,
        limit_s: float,
        tell: Callable[[str], None],
        sampled: Callable[[], int] = lambda: 0,
    ) -> None:
        self._stages = stages
        self._sampled = sampled
        self._after_s = after_s
        self._limit_s = limit_s
        self._tell = tell

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Watch for progress while `work` runs, and return its result.

        Raises:
            RunStalled: the limit is reached; `work` was cancelled, and has ended.
        """
        working, watching = asyncio.create_task(work), asyncio.create_task(self.watch())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            working.cancel()
        try:
            if watching.done():
                await cancelled([working])
                watching.result()
            return await working
        finally:
            await cancelled([watching])

    async def watch(self) -> None:
        """Watch until cancelled.

        Raises:
            RunStalled: the limit is reached.
        """
        speaks_at, moves = self._after_s, self._stages.moves
        sampled_before = self._sampled()
        nearest_s = min(self._after_s, self._limit_s or self._after_s)
        while True:
            await asyncio.sleep(nearest_s / LOOKS)
            sampled = self._sampled()
            if sampled != sampled_before:
                sampled_before = sampled
                self._stages.move()
            quiet_s = self._stages.quiet_s
            if self._stages.moves != moves:
                speaks_at, moves = self._after_s, self._stages.moves
            stall = f"nothing has moved for {quiet_s:.0f} s. Waiting for {self._stages.told()}"
            if self._limit_s and quiet_s >= self._limit_s:
                raise RunStalled(f"{stall}. The run ends (overlap.stall_limit_s)")
            if quiet_s >= speaks_at:
                speaks_at *= 2
                logger.warning(stall)
                self._tell(stall)


FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 10.0


class Outage:
    """The time since which no server has answered.

    Args:
        patience_s: seconds after which the run ends.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._since: float | None = None
        self._tries = 0

    def over(self) -> None:
        """Note that a server has answered."""
        self._since, self._tries = None, 0

    async def wait(self, why: str) -> None:
        """Wait before the next attempt, longer each time.

        Raises:
            TrainingFailed: no server has answered for `patience_s`.
        """
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        left_s = self._since + self.patience_s - now
        if left_s <= 0:
            raise TrainingFailed(
                f"no server of the environment could be reached for {self.patience_s:g} s "
                f"(overlap.outage_s); the last error: {why}. Start the servers again, and go on "
                "with --run.resume"
            )
        pause_s = min(FIRST_WAIT_S * 2**self._tries, LONGEST_WAIT_S, left_s)
        self._tries = min(self._tries + 1, 10)
        await asyncio.sleep(pause_s)


def unreachable(group: Group) -> str:
    """Return why no rollout of a group has reached a server; empty if one has."""
    lost = all(map(met_no_server, group.episodes))
    return group.episodes[0].trajectories[0].verdict.detail if group.episodes and lost else ""


def met_no_server(episode: Episode) -> bool:
    """Return whether a rollout ended because no server of the environment answered."""
    first = episode.trajectories[0]
    name = ServerUnreachable.__name__
    return first.stop is Stop.ENV_ERROR and first.verdict.detail.startswith(name)


def refuse_without_engine(group: Group) -> None:
    """Stop if a rollout of a group has met no engine: the pool has waited for one already, and the
    group is played again when the run continues.

    Raises:
        TrainingFailed: with the fate of each engine.
    """
    verdicts = [episode.trajectories[0].verdict for episode in group.episodes]
    for verdict in verdicts:
        if verdict.detail.startswith(NoEngineLeft.__name__):
            raise TrainingFailed(
                f"nothing samples any more, {verdict.detail}. Mend that, and go on with "
                "--run.resume"
            )
