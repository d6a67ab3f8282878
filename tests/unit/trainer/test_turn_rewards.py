"""A verifier's rewards of turns reach credit."""

import pytest

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.envs.tasks import Task
from ludus.messages import assistant
from ludus.rewards import Sample
from ludus.trainer.learning.experience import gather
from ludus.trainer.rollout.collect import Group
from ludus.trainer.rollout.scoring import EpisodeScorer, WeightedVerifier
from ludus.verdict import Status, Verdict


class Stepwise:
    """Pays each turn what a list says, and the whole a little more."""

    never_blocks = True

    def __init__(self, *rewards: float) -> None:
        self.rewards = rewards

    def score(self, sample: Sample) -> Verdict:
        return Verdict.of(sum(self.rewards) + 0.5, turn_rewards=self.rewards)


def episode() -> Episode:
    turns = [
        Turn(out_ids=[7, 8], logprobs=[-1.0, -1.0], versions=[0, 0], message=assistant("a")),
        Turn(
            obs_ids=[9],
            out_ids=[10],
            logprobs=[-1.0],
            versions=[0],
            message=assistant("b"),
            reward=1.0,
        ),
    ]
    segment = Segment(prompt_ids=[1, 2], turns=turns)
    return Episode(task="t", trajectories=[Trajectory(verdict=Verdict.of(1.0), segments=[segment])])


async def scored(*rewards: float, weight: float = 1.0) -> Episode:
    played = episode()
    verifier = WeightedVerifier("steps", Stepwise(*rewards), weight=weight)
    await EpisodeScorer([verifier]).score(played)
    return played


async def test_what_a_turn_earned_is_on_its_last_token() -> None:
    played = await scored(0.25, -1.0, weight=2.0)
    (trajectory,) = played.trajectories
    assert trajectory.verdict.reward == pytest.approx(1.0 + 2 * (0.25 - 1.0 + 0.5))
    assert [turn.reward for turn in trajectory.turns] == [0.5, 1.0 - 2.0]
    experience = gather([_group(played)])
    assert experience is not None
    # ids: 1 2 | 7 8 | 9 | 10
    assert experience.turn_rewards[0].tolist() == [0.0, 0.0, 0.0, 0.5, 0.0, -1.0]
    # the rest of the rollout's reward, 2 * 0.5, is the end's
    rest = experience.rewards[0] - experience.turn_rewards.sum()
    assert float(rest) == pytest.approx(1.0)


async def test_rewards_of_another_number_of_turns_are_an_error_and_no_reward() -> None:
    (trajectory,) = (await scored(0.25, 0.5, 1.0)).trajectories
    assert trajectory.verdict.status is Status.ERROR
    assert "3 turns for 2" in trajectory.verdict.detail
    assert trajectory.exclude_from_loss
    assert trajectory.exclude_from_baseline
    assert [turn.reward for turn in trajectory.turns] == [0.0, 1.0]


def _group(played: Episode) -> Group:
    return Group(task=Task(id="t", split="train"), episodes=[played], retries=0)
