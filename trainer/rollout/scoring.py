"""Rewards besides the environment's own: verifiers, as soon as an episode ends.

The pieces are composed into one verdict whose `parts` show each. One piece that is not ok makes the
whole not ok: half a reward would be a wrong reward.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.agent import Episode, Trajectory
from ludus.messages import Message
from ludus.rewards import GroupVerifier, Sample, Verifier
from ludus.verdict import Verdict

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WeightedVerifier:
    """A verifier with its place in the reward."""

    name: str
    verifier: Verifier
    weight: float = 1.0
    timeout_s: float = 60.0


class Scorer:
    """Scores episodes with every verifier of the recipe."""

    def __init__(self, verifiers: Sequence[WeightedVerifier]) -> None:
        self.single = [one for one in verifiers if not isinstance(one.verifier, GroupVerifier)]
        self.grouped = [one for one in verifiers if isinstance(one.verifier, GroupVerifier)]

    async def score(self, episode: Episode) -> None:
        """Add what each verifier that looks at one answer says."""
        for trajectory in episode.trajectories:
            for one in self.single if trajectory.verdict.ok else []:
                verdict = await _ask(one, one.verifier.score(as_sample(trajectory)))
                _add(trajectory, one, verdict)

    async def score_group(self, episodes: Sequence[Episode]) -> None:
        """Add what each verifier that compares the answers of a group says."""
        trajectories = [t for episode in episodes for t in episode.trajectories if t.verdict.ok]
        for one in self.grouped if trajectories else []:
            assert isinstance(one.verifier, GroupVerifier)
            samples = [as_sample(trajectory) for trajectory in trajectories]
            verdicts = await _ask(one, one.verifier.score_group(samples))
            if isinstance(verdicts, Verdict):
                verdicts = [verdicts] * len(trajectories)
            for trajectory, verdict in zip(trajectories, verdicts, strict=True):
                _add(trajectory, one, verdict)


def as_sample(trajectory: Trajectory) -> Sample:
    """The conversation of a trajectory as a verifier reads it."""
    messages: list[Message] = []
    for turn in trajectory.turns:
        messages += turn.observation
        if turn.message is not None:
            messages.append(turn.message)
    return Sample(response=messages)


async def _ask(one: WeightedVerifier, made: Any) -> Any:
    """Wait for a verifier; what it raises, and lateness, are verdicts."""
    if not inspect.isawaitable(made):
        return made
    waiting: Awaitable[Any] = made
    try:
        return await asyncio.wait_for(waiting, one.timeout_s)
    except TimeoutError:
        return Verdict.unavailable(f"{one.name}: no verdict within {one.timeout_s:g} s")
    except Exception as error:
        logger.exception("verifier %s failed", one.name)
        return Verdict.error(f"{one.name}: {type(error).__name__}: {error}")


def _add(trajectory: Trajectory, one: WeightedVerifier, verdict: Verdict) -> None:
    if verdict.reward is None:
        trajectory.verdict = verdict
        trajectory.exclude_from_loss = trajectory.exclude_from_baseline = True
        return
    parts = {**trajectory.verdict.parts, one.name: (verdict.reward, one.weight)}
    metrics = {**trajectory.verdict.metrics, **verdict.metrics}
    total = sum(value * weight for value, weight in parts.values())
    trajectory.verdict = Verdict.of(
        total, verdict.detail or trajectory.verdict.detail, parts=parts, metrics=metrics
    )
