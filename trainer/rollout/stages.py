"""The stage of each rollout in flight, so that a stalled run can say who waits for whom."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from ludus.envs import Info
from ludus.envs.gym import Playable
from ludus.envs.session import Stepped
from ludus.envs.tasks import TaskPage
from ludus.messages import Message, Observation

MANY = 5
"""Number of ordinals that are named for a stage."""
PHASES = {"generation": "generate", "the environment": "tool", "verifiers": "verify"}
"""What a rollout does in a stage, for its record; in every other stage it queues."""
MOST_SPANS = 64
"""Phases of a rollout that are kept apart; what comes later is added to the last of its name."""


class Spans:
    """The phases of a rollout in order, with the seconds of each.

    >>> spans = Spans(0.0)
    >>> spans.enter("generation", 1.0)
    >>> spans.enter("the environment", 3.5)
    >>> spans.until(4.0)
    [('queue', 1.0), ('generate', 2.5), ('tool', 0.5)]
    """

    def __init__(self, at: float) -> None:
        self._spans: list[tuple[str, float]] = []
        self._phase, self._since = "queue", at

    def enter(self, stage: str, at: float) -> None:
        """Begin a stage at a time of the clock."""
        self._spans, self._since = self.until(at), at
        self._phase = PHASES.get(stage, "queue")

    def until(self, at: float) -> list[tuple[str, float]]:
        """Return the phases up to a time of the clock."""
        spans, phase, seconds = list(self._spans), self._phase, round(at - self._since, 3)
        places = [place for place, (name, _) in enumerate(spans) if name == phase]
        if places and (places[-1] == len(spans) - 1 or len(spans) >= MOST_SPANS):
            spans[places[-1]] = (phase, round(spans[places[-1]][1] + seconds, 3))
        elif seconds:
            spans.append((phase, seconds))
        return spans


class Stages:
    """The stage that each rollout in flight waits for, and the time of the last move.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at: dict[tuple[int, int], str] = {}
        """The stage of each rollout by the group's ordinal and the rollout's index; stages of the
        run itself have the ordinal -1.
        """
        self._spans: dict[tuple[int, int], Spans] = {}
        self._runs_own = count()
        self._moved = clock()
        self.moves = 0
        """How often anything has moved."""

    @property
    def quiet_s(self) -> float:
        """Seconds since anything moved."""
        return self._clock() - self._moved

    def move(self) -> None:
        """Note that something has moved."""
        self._moved = self._clock()
        self.moves += 1

    def enter(self, ordinal: int, index: int, stage: str) -> None:
        """Note the stage that a rollout waits for from now on; an index of -1 is the group as a
        whole.
        """
        key, now = (ordinal, index), self._clock()
        self._at[key] = stage
        self._spans.setdefault(key, Spans(now)).enter(stage, now)
        self.move()

    def spans(self, ordinal: int, index: int) -> list[tuple[str, float]]:
        """Return the phases of a rollout in flight so far."""
        spans = self._spans.get((ordinal, index))
        return spans.until(self._clock()) if spans else []

    def leave(self, ordinal: int, index: int | None = None) -> None:
        """Forget a rollout that has ended, or all of a group without an index."""
        if index is not None:
            self._at.pop((ordinal, index), None)
            self._spans.pop((ordinal, index), None)
        else:
            for key in [key for key in self._at if key[0] == ordinal]:
                del self._at[key]
                self._spans.pop(key, None)
        self.move()

    @contextmanager
    def during(self, stage: str) -> Generator[None]:
        """Note a stage of the run itself, such as the update."""
        name = (-1, next(self._runs_own))
        self._at[name] = stage
        self.move()
        try:
            yield
        finally:
            self._at.pop(name, None)
            self.move()

    def told(self) -> str:
        """Return the stages that are waited for, the commonest first, with the first groups of
        each.
        """
        by_stage: dict[str, list[int]] = {}
        for (ordinal, _), stage in sorted(self._at.items()):
            by_stage.setdefault(stage, []).append(ordinal)
        return "; ".join(
            f"{stage}: {_named(ordinals)}"
            for stage, ordinals in sorted(by_stage.items(), key=lambda item: -len(item[1]))
        )


def _named(ordinals: list[int]) -> str:
    groups = list(Counter(ordinal for ordinal in ordinals if ordinal >= 0))
    if not groups:
        return "the run itself"
    more = f" and {len(groups) - MANY} more" if len(groups) > MANY else ""
    rollouts = f"{len(ordinals)} rollout" + "s" * (len(ordinals) != 1)
    return f"{rollouts} of group {', '.join(map(str, groups[:MANY]))}{more}"


NOWHERE = Stages()
"""Stages that nobody asks about."""


class StagedSession:
    """A session that tells `Stages` whether its rollout waits for the environment or for the
    policy.
    """

    def __init__(self, session: Playable, stages: Stages, ordinal: int, index: int) -> None:
        self.id = session.id
        self._session = session
        self._enter = partial(stages.enter, ordinal, index)

    @property
    def deterministic(self) -> bool:
        """Whether the same seed gives the same episode."""
        return self._session.deterministic

    async def task_page(self, split: str, *, offset: int = 0, limit: int = 100) -> TaskPage:
        """Return a page of tasks."""
        return await self._session.task_page(split, offset=offset, limit=limit)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Reset the session."""
        self._enter("the environment")
        try:
            return await self._session.reset(seed=seed, options=options)
        finally:
            self._enter("generation")

    async def step(self, action: str | Message) -> Stepped:
        """Take a step in the session."""
        self._enter("the environment")
        try:
            return await self._session.step(action)
        finally:
            self._enter("generation")

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()
