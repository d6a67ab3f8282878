"""Scores finished episodes with verifiers, in addition to the environment's own reward.

The verdicts are composed into one verdict whose `parts` show each. If one part is not ok, the whole
is not ok, because half a reward would be a wrong reward. A verifier that is unavailable is asked
again, within the time of the episode.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ludus.agent import Episode, Trajectory
from ludus.errors import Overloaded, RemoteError
from ludus.messages import Message
from ludus.rewards import GroupVerifier, Sample, Verifier
from ludus.rewards.measured import KnownJudge
from ludus.verdict import Status, Verdict

logger = logging.getLogger(__name__)

PART_OF = ":"
"""Between a verifier's name and the name of a part of its verdict, in the metrics of an episode."""
MAX_ASKED_AGAIN = 2
"""Number of times that an unavailable verifier is asked again about one answer."""
BACKOFF_S = 0.5
"""Mean wait in seconds before the second request; the wait before the third is twice as long."""
RETRIES, GAVE_UP = "verifier_retries", "verifier_gave_up"
"""Metrics of a trajectory: how often its verifiers were asked again, and whether in vain."""


@dataclass(frozen=True, slots=True)
class WeightedVerifier:
    """A verifier with a weight in the reward and a timeout."""

    name: str
    verifier: Verifier
    weight: float = 1.0
    timeout_s: float = 60.0
    judges: tuple[KnownJudge, ...] = ()
    """The language models that give its verdicts, with their measured errors."""


class EpisodeScorer:
    """Scores episodes with every verifier of the recipe."""

    def __init__(self, verifiers: Sequence[WeightedVerifier]) -> None:
        self.single = [one for one in verifiers if not isinstance(one.verifier, GroupVerifier)]
        self.grouped = [one for one in verifiers if isinstance(one.verifier, GroupVerifier)]

    def without_groups(self) -> EpisodeScorer:
        """Return a scorer with the verifiers that score a single answer.

        Evaluation plays each task once, so no other answer is at hand to compare with.
        """
        return EpisodeScorer(self.single)

    async def score(self, episode: Episode, *, left_s: float = math.inf) -> None:
        """Add the verdict of each verifier that looks at a single answer.

        Args:
            episode: a finished episode.
            left_s: seconds left of the episode's time; no verifier is asked again after that.
        """
        deadline = time.monotonic() + left_s
        for trajectory in episode.trajectories:
            for one in self.single:
                if trajectory.verdict.ok:
                    call = partial(one.verifier.score, as_sample(trajectory))
                    answer = await _retry(one, call, deadline)
                    _count([trajectory], answer)
                    _add(trajectory, one, _one_each(one, answer.said, 1)[0])

    async def score_group(self, episodes: Sequence[Episode], *, left_s: float = math.inf) -> None:
        """Add the verdicts of each verifier that compares the answers of a group; see `score`."""
        deadline = time.monotonic() + left_s
        every = [trajectory for episode in episodes for trajectory in episode.trajectories]
        for one in self.grouped:
            trajectories = [trajectory for trajectory in every if trajectory.verdict.ok]
            if not trajectories:
                return
            assert isinstance(one.verifier, GroupVerifier)
            samples = [as_sample(trajectory) for trajectory in trajectories]
            answer = await _retry(one, partial(one.verifier.score_group, samples), deadline)
            _count(trajectories, answer)
            verdicts = _one_each(one, answer.said, len(trajectories))
            for trajectory, verdict in zip(trajectories, verdicts, strict=True):
                _add(trajectory, one, verdict)


def as_sample(trajectory: Trajectory) -> Sample:
    """Convert a trajectory to a verifier's sample: the opening, the answer, the images that were
    shown after the last action, and the environment's gold.
    """
    turns = trajectory.turns
    said: list[Message] = []
    for number, turn in enumerate(turns):
        said += turn.observation if number else []
        if turn.message is not None:
            said.append(turn.message)
    opening = turns[0].observation if turns else []
    images = [image for message in trajectory.closing for image in message.images]
    return Sample(prompt=opening, response=said, gold=trajectory.gold, images=images)


@dataclass(frozen=True, slots=True)
class _Answer:
    said: Any
    """A verdict, or a list of verdicts, one for each answer of a group."""
    retries: int = 0
    wait_s: float = 0.0
    """Seconds that the verifier wants to be left alone before the next request."""

    @property
    def unavailable(self) -> bool:
        """Whether another request may help."""
        said: Any = [self.said] if isinstance(self.said, Verdict) else self.said
        return any(one.status is Status.UNAVAILABLE and one.retryable for one in said)


async def _retry(one: WeightedVerifier, call: Callable[[], Any], deadline: float) -> _Answer:
    """Ask a verifier, and ask again while the verifier is unavailable and time is left."""
    answer = await _ask(one, call, one.timeout_s)
    for again in range(1, MAX_ASKED_AGAIN + 1):
        if not answer.unavailable:
            break
        wait_s = max(answer.wait_s, again * BACKOFF_S) * random.uniform(1.0, 1.5)
        left_s = deadline - time.monotonic() - wait_s
        if left_s <= 0:
            break
        await asyncio.sleep(wait_s)
        answer = await _ask(one, call, min(one.timeout_s, left_s), retries=again)
    return answer


async def _ask(
    one: WeightedVerifier, call: Callable[[], Any], timeout_s: float, *, retries: int = 0
) -> _Answer:
    """Call a verifier and wait for the answer; exceptions and lateness become verdicts.

    A plain method runs on a thread, unless the verifier declares `never_blocks`.
    """
    clock = asyncio.timeout(timeout_s)
    try:
        async with clock:
            light = getattr(one.verifier, "never_blocks", False) or inspect.iscoroutinefunction(
                getattr(one.verifier, "score", None)
            )
            made = call() if light else await asyncio.to_thread(call)
            return _Answer(_read(one, await made if inspect.isawaitable(made) else made), retries)
    except Exception as error:
        why = f"{one.name}: {type(error).__name__}: {error}"
        if isinstance(error, RemoteError) and error.retryable:
            wait_s = error.retry_after_s if isinstance(error, Overloaded) else 0.0
            return _Answer(Verdict.unavailable(why), retries, wait_s)
        if isinstance(error, TimeoutError):
            late = f"{one.name}: no verdict within {timeout_s:g} s" if clock.expired() else why
            return _Answer(Verdict.unavailable(late), retries)
        logger.exception("verifier %s failed", one.name)
        return _Answer(Verdict.error(why), retries)


def mean_metrics(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Return the mean of each metric over the verdicts that have a reward and that metric; the
    metrics of a verdict's parts are left out.
    """
    told: dict[str, list[float]] = {}
    for verdict in verdicts:
        for name, value in verdict.metrics.items() if verdict.ok else ():
            if PART_OF not in name:
                told.setdefault(name, []).append(value)
    return {name: statistics.fmean(values) for name, values in told.items()}


def _read(one: WeightedVerifier, said: Any) -> Any:
    """Check that a verifier returned a verdict or a list of verdicts; anything else is a bug of the
    verifier.
    """
    if isinstance(said, Verdict):
        return said
    if isinstance(said, Sequence) and all(isinstance(each, Verdict) for each in said):
        return said
    return Verdict.error(f"{one.name} gave {said!r:.80}, which is no verdict")


def _count(trajectories: Sequence[Trajectory], answer: _Answer) -> None:
    """Record how often a verifier was asked again, on the first of the trajectories in question."""
    first = trajectories[0].metrics
    if answer.retries:
        first[RETRIES] = first.get(RETRIES, 0.0) + answer.retries
    if answer.unavailable:
        for trajectory in trajectories:
            trajectory.metrics[GAVE_UP] = 1.0


def _one_each(one: WeightedVerifier, judged: Any, count: int) -> list[Verdict]:
    """Return a verdict for each answer of a group, or errors if the verifier gave another
    number.
    """
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
        _leave_out(trajectory, verdict)
        return
    total = before.unwrap() + one.weight * verdict.reward
    if not math.isfinite(total):
        _leave_out(trajectory, Verdict.error(f"{one.name}: the reward of all parts is {total}"))
        return
    turns = [turn for turn in trajectory.turns if turn.message is not None]
    if verdict.turn_rewards and len(verdict.turn_rewards) != len(turns):
        told = f"{one.name} gave rewards of {len(verdict.turn_rewards)} turns for {len(turns)}"
        _leave_out(trajectory, Verdict.error(told))
        return
    if verdict.turn_rewards:
        for turn, earned in zip(turns, verdict.turn_rewards, strict=True):
            turn.reward += one.weight * earned
    name = one.name if one.name not in before.parts else f"reward:{one.name}"
    inner = {f"{name}{PART_OF}{part}": value for part, (value, _) in verdict.parts.items()}
    trajectory.verdict = Verdict.of(
        total,
        verdict.detail or before.detail,
        parts={**before.parts, name: (verdict.reward, one.weight)},
        metrics={**before.metrics, **verdict.metrics, **inner},
    )


def _leave_out(trajectory: Trajectory, verdict: Verdict) -> None:
    """Take a trajectory whose worth is unknown out of the loss and the baseline."""
    trajectory.verdict = verdict
    trajectory.exclude_from_loss = trajectory.exclude_from_baseline = True
