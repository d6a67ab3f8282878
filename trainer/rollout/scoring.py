"""Scores finished episodes with verifiers, in addition to the environment's own reward.

The verdicts are composed into one verdict whose `parts` show each. If one part is not ok, the whole
is not ok, because half a reward would be a wrong reward. A verifier that is unavailable is asked
again, within the time of the episode.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from ludus.agent import Episode, Trajectory
from ludus.background import failing_where_given_up
from ludus.envs.serving.connect import RemoteServer, connect
from ludus.errors import Overloaded, UnknownVerifier
from ludus.messages import Message
from ludus.rewards import GroupVerifier, Sample, Verifier, make_verifier
from ludus.rewards.measured import KnownJudge, judges_of
from ludus.rewards.protocol import failed, is_bug
from ludus.secret import Secret
from ludus.verdict import Status, Verdict
from ludus.wire.address import parse_served
from ludus.wire.worker_threads import WorkerThreads

from ..config import RewardConfig

logger = logging.getLogger(__name__)

PART_OF = ":"
"""Between a verifier's name and the name of a part of its verdict, in the metrics of an episode."""
MAX_ASKED_AGAIN = 2
"""Number of times that an unavailable verifier is asked again about one answer."""
BACKOFF_S = 0.5
"""Least wait in seconds before the second request, and twice as long before the third; up to half
of that is added at random.
"""
_turns = itertools.count()
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
    threads: WorkerThreads | None = None
    """Where its plain methods run, each within `timeout_s` of its start. Without them they run on
    the event loop's own few threads, and wait for these within `timeout_s`.
    """


class EpisodeScorer:
    """Scores episodes with every verifier of the recipe."""

    def __init__(self, verifiers: Sequence[WeightedVerifier]) -> None:
        self.single = [
            weighted for weighted in verifiers if not isinstance(weighted.verifier, GroupVerifier)
        ]
        self.grouped = [
            weighted for weighted in verifiers if isinstance(weighted.verifier, GroupVerifier)
        ]

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
            for weighted in self.single:
                if trajectory.verdict.ok:
                    sample = as_sample(trajectory).heard_by(weighted.verifier)
                    call = partial(weighted.verifier.score, sample)
                    answer = await _retry(weighted, call, deadline)
                    _count([trajectory], answer)
                    _add(trajectory, weighted, _one_each(weighted, answer.result, 1)[0])

    async def score_group(self, episodes: Sequence[Episode], *, left_s: float = math.inf) -> None:
        """Add the verdicts of each verifier that compares the answers of a group; see `score`."""
        deadline = time.monotonic() + left_s
        every = [trajectory for episode in episodes for trajectory in episode.trajectories]
        for weighted in self.grouped:
            trajectories = [trajectory for trajectory in every if trajectory.verdict.ok]
            if not trajectories:
                return
            assert isinstance(weighted.verifier, GroupVerifier)
            samples = [as_sample(each).heard_by(weighted.verifier) for each in trajectories]
            answer = await _retry(
                weighted, partial(weighted.verifier.score_group, samples), deadline
            )
            _count(trajectories, answer)
            verdicts = _one_each(weighted, answer.result, len(trajectories))
            for trajectory, verdict in zip(trajectories, verdicts, strict=True):
                _add(trajectory, weighted, verdict)


def as_sample(trajectory: Trajectory) -> Sample:
    """Convert a trajectory to a verifier's sample: the opening, the answer, the images that were
    shown after the last action, and the environment's gold.
    """
    turns = trajectory.turns
    messages: list[Message] = []
    for number, turn in enumerate(turns):
        messages += turn.observation if number else []
        if turn.message is not None:
            messages.append(turn.message)
    opening = turns[0].observation if turns else []
    images = [image for message in trajectory.closing for image in message.images]
    return Sample(prompt=opening, response=messages, gold=trajectory.gold, images=images)


@dataclass(frozen=True, slots=True)
class _Answer:
    result: Any
    """A verdict, or a list of verdicts, one for each answer of a group."""
    retries: int = 0
    wait_s: float = 0.0
    """Seconds that the verifier wants to be left alone before the next request."""

    @property
    def unavailable(self) -> bool:
        """Whether another request may help."""
        verdicts: Any = [self.result] if isinstance(self.result, Verdict) else self.result
        return any(
            verdict.status is Status.UNAVAILABLE and verdict.retryable for verdict in verdicts
        )


async def _retry(weighted: WeightedVerifier, call: Callable[[], Any], deadline: float) -> _Answer:
    """Ask a verifier, and ask again while the verifier is unavailable and time is left."""
    answer = await _ask(weighted, call, weighted.timeout_s)
    for again in range(1, MAX_ASKED_AGAIN + 1):
        if not answer.unavailable:
            break
        wait_s = max(answer.wait_s, again * BACKOFF_S) * random.uniform(1.0, 1.5)
        left_s = deadline - time.monotonic() - wait_s
        if left_s <= 0:
            break
        await asyncio.sleep(wait_s)
        answer = await _ask(weighted, call, min(weighted.timeout_s, left_s), retries=again)
    return answer


async def _ask(
    weighted: WeightedVerifier, call: Callable[[], Any], timeout_s: float, *, retries: int = 0
) -> _Answer:
    """Call a verifier and wait for the answer; exceptions and lateness become verdicts.

    A plain method runs on a thread, unless the verifier declares `never_blocks`.
    """
    clock = asyncio.timeout(timeout_s)
    late = Verdict.unavailable(f"{weighted.name}: no verdict within {timeout_s:g} s")
    light = getattr(weighted.verifier, "never_blocks", False) or inspect.iscoroutinefunction(call)
    try:
        returned: Any = None
        if not light and weighted.threads is not None:
            returned = await weighted.threads.submit(
                next(_turns), call, timeout_s=timeout_s, late=lambda: late
            )
        async with clock:
            with failing_where_given_up():
                if light:
                    returned = call()
                elif weighted.threads is None:
                    returned = await asyncio.to_thread(call)
                given = await returned if inspect.isawaitable(returned) else returned
        return _Answer(_read(weighted, given), retries)
    except Exception as error:
        if isinstance(error, TimeoutError) and clock.expired():
            return _Answer(late, retries)
        if is_bug(error):
            logger.exception("verifier %s failed", weighted.name)
        verdict = failed(weighted.name, error)
        if not verdict.detail.startswith(weighted.name):
            verdict = replace(verdict, detail=f"{weighted.name}: {verdict.detail}")
        wait_s = error.retry_after_s if isinstance(error, Overloaded) else 0.0
        return _Answer(verdict, retries, wait_s)


def mean_metrics(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Return the mean of each metric over the verdicts that have a reward and that metric; the
    metrics of a verdict's parts are left out.
    """
    values_by_name: dict[str, list[float]] = {}
    for verdict in verdicts:
        for name, value in verdict.metrics.items() if verdict.ok else ():
            if PART_OF not in name:
                values_by_name.setdefault(name, []).append(value)
    return {name: statistics.fmean(values) for name, values in values_by_name.items()}


def _read(weighted: WeightedVerifier, returned: Any) -> Any:
    """Check that a verifier returned a verdict or a list of verdicts; anything else is a bug of the
    verifier.
    """
    if isinstance(returned, Verdict):
        return returned
    if isinstance(returned, Sequence) and all(isinstance(item, Verdict) for item in returned):
        return returned
    return Verdict.error(f"{weighted.name} gave {returned!r:.80}, which is no verdict")


def _count(trajectories: Sequence[Trajectory], answer: _Answer) -> None:
    """Record how often a verifier was asked again, on the first of the trajectories in question."""
    first = trajectories[0].metrics
    if answer.retries:
        first[RETRIES] = first.get(RETRIES, 0.0) + answer.retries
    if answer.unavailable:
        for trajectory in trajectories:
            trajectory.metrics[GAVE_UP] = 1.0


def _one_each(weighted: WeightedVerifier, result: Any, count: int) -> list[Verdict]:
    """Return a verdict for each answer of a group, or errors if the verifier gave another
    number.
    """
    if isinstance(result, Verdict):
        return [result] * count
    if len(result) != count:
        return [
            Verdict.error(f"{weighted.name} gave {len(result)} verdicts for {count} answers")
        ] * count
    return list(result)


def _add(trajectory: Trajectory, weighted: WeightedVerifier, verdict: Verdict) -> None:
    before = trajectory.verdict
    if verdict.reward is None:
        _leave_out(trajectory, verdict)
        return
    total = before.unwrap() + weighted.weight * verdict.reward
    if not math.isfinite(total):
        _leave_out(
            trajectory, Verdict.error(f"{weighted.name}: the reward of all parts is {total}")
        )
        return
    turns = [turn for turn in trajectory.turns if turn.message is not None]
    if verdict.turn_rewards and len(verdict.turn_rewards) != len(turns):
        problem = (
            f"{weighted.name} gave rewards of {len(verdict.turn_rewards)} turns for {len(turns)}"
        )
        _leave_out(trajectory, Verdict.error(problem))
        return
    if verdict.turn_rewards:
        for turn, earned in zip(turns, verdict.turn_rewards, strict=True):
            turn.reward += weighted.weight * earned
    name = weighted.name
    while name in before.parts:
        name = f"reward:{name}"
    inner = {f"{name}{PART_OF}{part}": value for part, (value, _) in verdict.parts.items()}
    trajectory.verdict = Verdict.of(
        total,
        verdict.detail or before.detail,
        parts={**before.parts, name: (verdict.reward, weighted.weight)},
        metrics={**before.metrics, **verdict.metrics, **inner},
    )


def _leave_out(trajectory: Trajectory, verdict: Verdict) -> None:
    """Take a trajectory whose worth is unknown out of the loss and the baseline."""
    trajectory.verdict = verdict
    trajectory.exclude_from_loss = trajectory.exclude_from_baseline = True


async def open_verifiers(
    rewards: Sequence[RewardConfig], stack: AsyncExitStack
) -> list[WeightedVerifier]:
    """Make each verifier; `stack` closes the verifiers of this process and the connections to
    servers.

    Raises:
        ConfigError: a verifier does not take the options that its name carries.
        UnknownVerifier: there is none of that name, here or on its server.
        RemoteError: a server could not be asked.
    """
    servers: dict[tuple[str, Secret], RemoteServer] = {}
    verifiers: list[WeightedVerifier] = []
    threads = WorkerThreads(name="ludus-verifier")
    await threads.start()
    stack.push_async_callback(threads.stop)
    for reward in rewards:
        url, hash_sign, name = reward.name.rpartition("#")
        if not hash_sign:
            bare, options = parse_served(reward.name)
            verifier = make_verifier(bare, **options)
            stack.push_async_callback(_close, verifier)
            judges = judges_of(verifier)
        else:
            key = (url, reward.token)
            if key not in servers:
                servers[key] = connect(url, token=reward.token if reward.token else None)
                stack.push_async_callback(servers[key].aclose)
            # A served verifier, which compares groups if the server says so, and the judges behind.
            server = servers[key]
            cards = {card.name: card for card in await asyncio.to_thread(server.verifiers)}
            if name not in cards:
                raise UnknownVerifier.near(
                    name, list(cards), hint=f"{server.urls[0]} serves {', '.join(cards) or 'none'}"
                )
            card = cards[name]
            verifier, judges = (
                server.group_verifier(name) if card.group else server.verifier(name),
                card.judges,
            )
        verifiers.append(
            WeightedVerifier(
                reward.name, verifier, reward.weight, reward.timeout_s, tuple(judges), threads
            )
        )
    return verifiers


async def _close(verifier: Verifier) -> None:
    close = getattr(verifier, "close", None)
    closed = close() if callable(close) else None
    if inspect.isawaitable(closed):
        await closed
