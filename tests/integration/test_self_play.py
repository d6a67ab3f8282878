"""examples/04_self_play.py: two roles of one policy, each with advantages of its own."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.agent.episodes import read_episodes
from ludus.envs import EnvSession, Task
from ludus.envs.checks import check_env
from ludus.messages import assistant
from ludus.trainer.learning.experience import gather
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict

EXAMPLE = Path(__file__).parents[2] / "examples" / "04_self_play.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("self_play_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_environment_keeps_the_contract(example: Any) -> None:
    check_env(example.ENV)


def test_where_a_question_leads_by_hand(example: Any) -> None:
    pages = {"b": "f", "f": "a", "a": "b"}
    assert [example.walked(pages, f"b{hops}") for hops in (1, 2, 3, 4)] == ["f", "a", "b", "f"]
    assert example.walked({"b": "f"}, "b2") == ""


@pytest.mark.parametrize(
    ("looked", "claim", "question"),
    [
        ("bf", "b2={a}", "b2"),
        ("b", "b1={f}", "b1"),
        ("b", "b2={a}", ""),  # right, but from a page it never looked up
        ("bf", "b2={f}", ""),  # a step short
        ("bf", "b9={a}", ""),
        ("bf", "b2", ""),
        ("bf", "", ""),
    ],
)
async def test_a_question_is_valid_if_what_was_looked_up_leads_to_the_claim(
    looked: str, claim: str, question: str, example: Any
) -> None:
    env = example.Atlas()
    session = EnvSession(env)
    await session.reset(seed=1, options={"role": "proposer"})
    env.pages = {"b": "f", "f": "a", "a": "b"}
    for letter in looked:
        shown = (await session.step(f"?{letter}"))[0]
        assert shown == f"{letter}>{env.pages[letter]}"
    await session.step(claim.format(a="a", f="f"))
    assert example.valid_question(env) == question


def episode(reward: float | None, role: str, tokens: int = 2) -> Episode:
    turn = Turn(out_ids=list(range(3, 3 + tokens)), logprobs=[0.0] * tokens)
    turn.versions, turn.message = [0] * tokens, assistant("x")
    verdict = Verdict.unavailable("lost") if reward is None else Verdict.of(reward)
    trajectory = Trajectory(
        role=role, verdict=verdict, segments=[Segment(prompt_ids=[1, 2], turns=[turn])]
    )
    trajectory.exclude_from_baseline = trajectory.exclude_from_loss = reward is None
    return Episode(task="train/0", trajectories=[trajectory])


@pytest.mark.parametrize(
    ("question", "answers", "reward"),
    [
        ("b2", [1.0, 0.0, 0.0, 1.0], 0.5),
        ("b2", [1.0, 1.0], 0.0),
        ("b2", [0.0, None, 1.0, 1.0], 1 / 3),  # a lost solver says nothing
        ("", [], 0.0),
    ],
)
def test_a_proposer_earns_the_share_of_solvers_that_fail(
    question: str, answers: list[float | None], reward: float, example: Any
) -> None:
    asked = episode(0.0, "proposer")
    example.reward_proposer(asked, question, [episode(one, "solver") for one in answers])
    verdict = asked.trajectories[0].verdict
    assert verdict.reward == pytest.approx(reward)
    assert verdict.parts["valid"] == (float(bool(question)), 0.0)


def test_each_role_is_compared_with_its_own(example: Any) -> None:
    """Proposals about a world are one group, answers to a question another."""
    world = Task(id="train/0", split="train")
    proposals = Group(world, [episode(0.5, "proposer"), episode(0.0, "proposer")], 0)
    answers = Group(world, [episode(1.0, "solver"), episode(0.0, "solver")], 0)
    played = example.Round([proposals], [answers], [])
    experience = gather([*played.proposals, *played.answers])
    assert experience is not None
    assert experience.groups.tolist() == [0, 0, 1, 1]
    assert experience.rewards.tolist() == [0.5, 0.0, 1.0, 0.0]
    numbers = played.numbers()
    assert (numbers["proposer"], numbers["solver"], numbers["valid"]) == (0.25, 0.5, 0.5)


@pytest.mark.slow
async def test_a_few_steps_train_both_roles(example: Any, tmp_path: Path) -> None:
    numbers = await example.train(tmp_path, steps=2, warm_steps=120, worlds=4, rollouts=3)
    assert len(numbers) == 2
    for one in numbers:
        assert 0 < one["valid"] <= 1
        assert 0 <= one["solver"] <= 1
        assert 0 <= one["proposer"] <= one["valid"]
        assert one["grad_norm"] > 0
    matches = read_episodes(tmp_path / "step-000002.jsonl")
    assert len(matches) == 12  # 4 worlds, 3 proposals each
    for match in matches:
        roles = [one.role for one in match.trajectories]
        assert roles[0] == "proposer"
        assert roles[1:] in ([], ["solver"] * 3)
        failed = 1 - sum(one.verdict.unwrap() for one in match.trajectories[1:]) / 3
        expected = failed if roles[1:] else 0.0
        assert match.trajectories[0].verdict.reward == pytest.approx(expected)
