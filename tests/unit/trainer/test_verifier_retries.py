"""A verifier that is unavailable is asked again, within the episode's time; then the episode is
left out, and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.errors import Overloaded, RewardUnavailable, ServerFault, Unauthorized
from ludus.messages import assistant
from ludus.rewards import Sample, register_verifier
from ludus.trainer.config import RewardConfig
from ludus.trainer.rollout import scoring
from ludus.trainer.rollout.scoring import (
    GAVE_UP,
    RETRIES,
    EpisodeScorer,
    WeightedVerifier,
    open_verifiers,
)
from ludus.verdict import Status, Verdict

DOWN = Verdict.unavailable("the judge is down")


def episode() -> Episode:
    turns = [Turn(out_ids=[1], logprobs=[-1.0], message=assistant("yes"))]
    trajectory = Trajectory(verdict=Verdict.of(1.0), segments=[Segment(turns=turns)])
    return Episode(task="train/0", trajectories=[trajectory])


class Says:
    """Answers, or fails, as it is told; keeps when it was asked."""

    def __init__(self, *script: Any, after_s: float = 0.0) -> None:
        self.script, self.after_s = list(script), after_s
        self.asked: list[float] = []

    async def score(self, sample: Sample) -> Any:
        self.asked.append(time.monotonic())
        await asyncio.sleep(self.after_s)
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(said, BaseException):
            raise said
        return said


class Ranks(Says):
    async def score_group(self, samples: Sequence[Sample]) -> Any:
        return await self.score(samples[0])


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BACKOFF_S", 0.01)


async def scored(verifier: Says, *, left_s: float = 60.0, timeout_s: float = 5.0) -> Trajectory:
    made = episode()
    scorer = EpisodeScorer([WeightedVerifier("judge", verifier, 0.5, timeout_s)])
    await scorer.score(made, left_s=left_s)
    return made.trajectories[0]


FINE = Verdict.of(1.0)


@pytest.mark.parametrize(
    "down",
    [DOWN, ServerFault("503"), Overloaded("full", 0.0), TimeoutError(), RewardUnavailable(DOWN)],
)
@pytest.mark.parametrize("times", [1, 2])
async def test_it_is_asked_again_until_it_answers(down: Any, times: int) -> None:
    verifier = Says(*[down] * times, FINE)
    trajectory = await scored(verifier)
    assert len(verifier.asked) == times + 1
    assert trajectory.verdict.reward == 1.5
    assert trajectory.metrics == {RETRIES: float(times)}
    assert not trajectory.exclude_from_loss


@pytest.mark.parametrize("down", [DOWN, ServerFault("503")])
async def test_at_most_twice_and_then_the_episode_is_left_out(down: Any) -> None:
    verifier = Says(down)
    trajectory = await scored(verifier)
    assert len(verifier.asked) == 3
    assert trajectory.verdict.status is Status.UNAVAILABLE
    assert trajectory.verdict.reward is None
    assert trajectory.exclude_from_loss
    assert trajectory.exclude_from_baseline
    assert trajectory.metrics == {RETRIES: 2.0, GAVE_UP: 1.0}


@pytest.mark.parametrize(
    "said",
    [
        Verdict.error("a bug"),
        Verdict.invalid("no gold"),
        Verdict(status=Status.UNAVAILABLE, detail="for good"),
        RewardUnavailable(Verdict.invalid("no gold")),
        KeyError("a bug"),
        asyncio.CancelledError(),  # of a task that the verifier waited for
        Unauthorized("no token"),
        "yes",
        None,
        [FINE, FINE],
    ],
)
async def test_what_asking_again_cannot_mend_is_not_asked_again(said: Any) -> None:
    verifier = Says(said)
    trajectory = await scored(verifier)
    assert len(verifier.asked) == 1
    assert trajectory.verdict.reward is None
    assert trajectory.exclude_from_baseline
    assert RETRIES not in trajectory.metrics


async def test_it_is_left_alone_as_long_as_it_asks_for() -> None:
    verifier = Says(Overloaded("full", retry_after_s=0.3), FINE)
    assert (await scored(verifier)).verdict.reward == 1.5
    first, second = verifier.asked
    assert second - first >= 0.3


@pytest.mark.parametrize("left_s", [0.0, -5.0, 0.2])
async def test_not_once_the_time_of_the_episode_is_over(left_s: float) -> None:
    verifier = Says(Overloaded("full", retry_after_s=0.3), FINE)
    trajectory = await scored(verifier, left_s=left_s)
    assert len(verifier.asked) == 1  # the first question is always asked
    assert trajectory.metrics == {GAVE_UP: 1.0}


async def test_one_that_is_late_is_asked_again_for_as_long_as_is_left() -> None:
    verifier = Says(FINE, after_s=0.25)
    trajectory = await scored(verifier, timeout_s=0.1, left_s=0.9)
    assert len(verifier.asked) == 3
    assert trajectory.verdict.detail == "judge: no verdict within 0.1 s"


@pytest.mark.parametrize("down", [DOWN, [FINE, DOWN]])
async def test_a_verifier_of_groups_is_asked_again_about_the_group(down: Any) -> None:
    verifier = Ranks(down, [FINE, Verdict.of(0.0)])
    episodes = [episode(), episode()]
    await EpisodeScorer([WeightedVerifier("judge", verifier, 1.0)]).score_group(
        episodes, left_s=60.0
    )
    assert len(verifier.asked) == 2
    assert [one.trajectories[0].verdict.reward for one in episodes] == [2.0, 1.0]
    assert [one.trajectories[0].metrics.get(RETRIES) for one in episodes] == [1.0, None]


async def test_every_part_has_a_name_of_its_own_though_verifiers_share_theirs() -> None:
    made = episode()
    same = [WeightedVerifier("judge", Says(Verdict.of(reward))) for reward in (1.0, 2.0, 4.0)]
    await EpisodeScorer(same).score(made)
    verdict = made.trajectories[0].verdict
    parts = [reward for name, (reward, _) in verdict.parts.items() if "judge" in name]
    assert sorted(parts) == [1.0, 2.0, 4.0]


async def test_a_reward_that_overflows_is_no_reward() -> None:
    made = episode()
    await EpisodeScorer([WeightedVerifier("huge", Says(Verdict.of(1e308)), 1e10)]).score(made)
    verdict = made.trajectories[0].verdict
    assert (verdict.status, verdict.detail) == (
        Status.ERROR,
        "huge: the reward of all parts is inf",
    )


async def test_a_plain_verifiers_time_begins_when_a_thread_is_free_for_it() -> None:
    class Plain:
        def score(self, sample: Sample) -> Verdict:
            time.sleep(0.1)
            return FINE

    register_verifier("test/plain", Plain)
    made = [episode() for _ in range(500)]
    async with AsyncExitStack() as stack:
        verifiers = await open_verifiers([RewardConfig(name="test/plain", timeout_s=2.0)], stack)
        scorer = EpisodeScorer(verifiers)
        await asyncio.gather(*(scorer.score(one, left_s=2.0) for one in made))
    assert [one.trajectories[0].verdict.reward for one in made] == [2.0] * 500


async def test_a_plain_comparison_of_a_group_leaves_the_loop_free_beside_an_async_score() -> None:
    class Compares(Says):
        def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
            time.sleep(0.5)
            return [FINE for _ in samples]

    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    ticking = asyncio.create_task(tick())
    scorer = EpisodeScorer([WeightedVerifier("compares", Compares(FINE), 1.0)])
    await scorer.score_group([episode(), episode()])
    await asyncio.sleep(0.05)
    ticking.cancel()
    assert longest < 0.4
