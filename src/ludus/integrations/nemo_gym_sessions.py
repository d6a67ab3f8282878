"""Sessions under the ids of NeMo Gym's environment server, and metrics over verified samples: what
NeMo Gym asks of a resources server besides playing.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ludus.errors import LudusError
from ludus.wire.faults import Refused

TASK = "_ng_task_index"
ROLLOUT = "_ng_rollout_index"
REMEMBERED = 10_000


class SeededSessions:
    """Maps the session ids of an environment server to the cookies of the episodes.

    A seed that is sent again finds the session that the first seed has begun; a seed that arrives
    after the session was closed begins nothing.

    Args:
        most: how many open and how many closed ids are remembered; past it the oldest are
            forgotten, whose sessions have long been reaped.
    """

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._open: dict[str, tuple[bytes, asyncio.Future[str]]] = {}
        self._closed: dict[str, None] = {}

    async def seed(self, session: str, episode: bytes, begin: Callable[[], Awaitable[str]]) -> str:
        """Return the cookie of a session, which `begin` makes where there is none yet.

        Args:
            session: the id.
            episode: names the episode; a seed of the same id for another one is somebody else's.
            begin: begins the episode and returns its cookie.

        Raises:
            Refused: the session was closed, or has another episode.
            LudusError: as `begin` raises it; the seed may be sent again.
        """
        if session in self._closed:
            message = f"the session {session!r} was closed; seed one with another id"
            raise Refused(message, "sequence_conflict")
        if session not in self._open:
            self._open[session] = (episode, asyncio.ensure_future(begin()))
            _forget_oldest(self._open, self._most)
        first, beginning = self._open[session]
        if first != episode:
            message = f"the session {session!r} plays another episode; seed one with another id"
            raise Refused(message, "sequence_conflict")
        try:
            return await asyncio.shield(beginning)  # whoever else waits for it is not cancelled
        except LudusError:
            if self._open.get(session, (b"", None))[1] is beginning:
                del self._open[session]
            raise

    async def close(self, session: str) -> str:
        """Close a session for good, and return its cookie; empty where it has none."""
        self._closed[session] = None
        _forget_oldest(self._closed, self._most)
        begun = self._open.pop(session, None)
        if begun is None:
            return ""
        try:
            return await asyncio.shield(begun[1])
        except LudusError:
            return ""  # nothing had begun


def _forget_oldest(kept: dict[str, Any], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]


def aggregate_metrics(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return NeMo Gym's aggregate of verified samples: statistics of the reward, for each task and
    over all.

    A masked sample, and one without a reward, is counted as such and is in no statistic.

    Args:
        answers: the answers of `/verify`, with the indices that the collection of NeMo Gym adds.
    """
    masked = sum(bool(answer.get("mask_sample")) for answer in answers)
    rewards: dict[int, list[float]] = {}
    for answer in answers:
        reward = answer.get("reward")
        if answer.get("mask_sample") or isinstance(reward, bool):
            continue
        if isinstance(reward, int | float):
            rewards.setdefault(answer.get(TASK, 0), []).append(float(reward))
    measured = sum(map(len, rewards.values()))
    over_all = _statistics([reward for task in rewards.values() for reward in task])
    coverage: dict[str, int] = {}
    if measured < len(answers):  # NeMo Gym's own aggregate says nothing where all were measured
        coverage = {
            "coverage/measured_rollouts": measured,
            "coverage/masked_rollouts": masked,
        }
    repeats = len({answer.get(ROLLOUT, 0) for answer in answers})
    return {
        "group_level_metrics": [
            {TASK: task, **_statistics(rewards[task]), "num_rollouts": len(rewards[task])}
            for task in sorted(rewards)
        ],
        "agent_metrics": {**over_all, **coverage, **({"num_repeats": repeats} if measured else {})},
        "key_metrics": {
            **{name: value for name, value in over_all.items() if name.startswith("mean/")},
            **coverage,
        },
    }


def _statistics(rewards: Sequence[float]) -> dict[str, float]:
    if not rewards:
        return {}
    return {
        "mean/reward": statistics.fmean(rewards),
        "max/reward": max(rewards),
        "min/reward": min(rewards),
        "median/reward": statistics.median(rewards),
        "std/reward": statistics.stdev(rewards) if len(rewards) > 1 else 0.0,
    }
