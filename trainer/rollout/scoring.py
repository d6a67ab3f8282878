"""Rewards besides the environment's own: verifiers, as soon as an episode ends.

The pieces are composed into one verdict whose `parts` show each. One piece that is not ok makes the
whole not ok: half a reward would be a wrong reward.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
            for one in self.single:
                if trajectory.verdict.ok:
                    sample = as_sample(trajectory)
                    _add(trajectory, one, await _ask(one, partial(one.verifier.score, sample)))

    async def score_group(self, episodes: Sequence[Episode]) -> None:
        """Add what each verifier that compares the answers of a group says."""
        every = [trajectory for episode in episodes for trajectory in episode.trajectories]
        for one in self.grouped:
            trajectories = [trajectory for trajectory in every if trajectory.verdict.ok]
            if not trajectories:
                return
            assert isinstance(one.verifier, GroupVerifier)
            samples = [as_sample(trajectory) for trajectory in trajectories]
            judged = await _ask(one, partial(one.verifier.score_group, samples))
            verdicts = _one_each(one, judged, len(trajectories))
            for trajectory, verdict in zip(trajectories, verdicts, strict=True):
                _add(trajectory, one, verdict)


def as_sample(trajectory: Trajectory) -> Sample:
    """A trajectory as a verifier reads it: the opening, what followed, and the environment's
    gold.
    """
    turns = trajectory.turns
    said: list[Message] = []
    for number, turn in enumerate(turns):
        said += turn.observation if number else []
        if turn.message is not None:
            said.append(turn.message)
    opening = turns[0].observation if turns else []
    return Sample(prompt=opening, response=said, gold=trajectory.gold)


async def _ask(one: WeightedVerifier, call: Callable[[], Any]) -> Any:
    """Call a verifier and wait for it; what it raises, and lateness, are verdicts.

    A plain method runs on a thread, unless it says that it never blocks.
    """
    try:
        async with asyncio.timeout(one.timeout_s):
            light = getattr(one.verifier, "never_blocks", False) or inspect.iscoroutinefunction(
                getattr(one.verifier, "score", None)
            )
            made = call() if light else await asyncio.to_thread(call)
            return await made if inspect.isawaitable(made) else made
    except TimeoutError:
        return Verdict.unavailable(f"{one.name}: no verdict within {one.timeout_s:g} s")
    except Exception as error:
        logger.exception("verifier %s failed", one.name)
        return Verdict.error(f"{one.name}: {type(error).__name__}: {error}")


def _one_each(one: WeightedVerifier, judged: Any, count: int) -> list[Verdict]:
    """What a verifier said of each answer of a group."""
    if isinstance(judged, Verdict):
        return [judged] * count
    if len(judged) != count:
        return [
            Verdict.error(f"{one.name} gave {len(judged)} verdicts for {count} answers")
        ] * count
    return list(judged)


def _add(trajectory: Trajectory, one: WeightedVerifier, verdict: Verdict) -> None:
    before = trajectory.verdict
    if verdict.reward is None:
        trajectory.verdict = verdict
        trajectory.exclude_from_loss = trajectory.exclude_from_baseline = True
        return
    name = one.name if one.name not in before.parts else f"reward:{one.name}"
    trajectory.verdict = Verdict.of(
        before.unwrap() + one.weight * verdict.reward,
        verdict.detail or before.detail,
        parts={**before.parts, name: (verdict.reward, one.weight)},
        metrics={**before.metrics, **verdict.metrics},
    )
