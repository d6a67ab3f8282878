"""Control runs: the reward of training is replaced, and nothing else."""

from __future__ import annotations

from statistics import fmean

import pytest

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.errors import ConfigError
from ludus.trainer.rollout.controls import ControlScorer, read_control
from ludus.verdict import Verdict


def episodes(reward: float, count: int = 200) -> list[Episode]:
    """Episodes of two turns that earned a reward; every second one had an unreadable call."""
    rollouts: list[Episode] = []
    for ordinal in range(count):
        turns = [
            Turn(out_ids=[1], logprobs=[-1.0]),
            Turn(out_ids=[2], logprobs=[-1.0], reward=reward),
        ]
        trajectory = Trajectory(
            verdict=Verdict.of(reward), terminated=True, segments=[Segment(turns=turns)]
        )
        trajectory.metrics = {"parse_errors": 1.0} if ordinal % 2 else {}
        rollouts.append(Episode(task="train/0", trajectories=[trajectory], ordinal=ordinal))
    return rollouts


async def rewards(control: str, earned: float, seed: int = 0) -> list[float]:
    """The rewards that a control gives; they are the returns as well."""
    rollouts = episodes(earned)
    await ControlScorer([], control, seed).score_group(rollouts)
    given = [rollout.trajectories[0] for rollout in rollouts]
    assert all(each.verdict.metrics["true_reward"] == earned for each in given)
    assert [each.ret for each in given] == [each.verdict.unwrap() for each in given]
    return [each.verdict.unwrap() for each in given]


async def test_each_control_gives_its_reward_whatever_was_earned() -> None:
    assert set(await rewards("inverted", 0.25)) == {0.75}
    assert fmean(await rewards("format", 0.0)) == 0.5
    drawn = await rewards("random", 1.0)
    assert drawn == await rewards("random", 0.0)  # it says nothing of the answer
    assert drawn != await rewards("random", 0.0, seed=1)
    assert 0.36 < fmean(drawn) < 0.64  # four standard errors of 200 fair draws: 4 * 0.5 / sqrt(200)
    flipped = await rewards("noise=0.2", 1.0)
    assert 0.69 < fmean(flipped) < 0.91  # 0.8 within 4 * 0.4 / sqrt(200)


async def test_what_has_no_reward_gets_none() -> None:
    (lost,) = episodes(0.0, 1)
    lost.trajectories[0].verdict = Verdict.unavailable("the judge is down")
    await ControlScorer([], "random", 0).score_group([lost])
    assert not lost.trajectories[0].verdict.ok


@pytest.mark.parametrize("text", ["chance", "noise", "noise=2", "noise=x", "random=0.5"])
def test_another_control_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(ConfigError, match="take random, inverted, format, noise=P"):
        read_control(text)
