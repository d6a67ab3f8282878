"""What the stream does while no server of the environment can be reached: wait, up to a limit."""

from __future__ import annotations

import asyncio

from ludus.agent import Stop
from ludus.errors import NoEngineLeft, ServerUnreachable, TrainingFailed

from ..rollout.collect import Group

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
    verdicts = [episode.trajectories[0].verdict for episode in group.episodes]
    stops = [episode.trajectories[0].stop for episode in group.episodes]
    name = ServerUnreachable.__name__
    lost = all(
        stop is Stop.ENV_ERROR and verdict.detail.startswith(name)
        for stop, verdict in zip(stops, verdicts, strict=True)
    )
    return verdicts[0].detail if verdicts and lost else ""


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
