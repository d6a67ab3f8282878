"""examples/04_self_play.py: two roles of one policy, each with advantages of its own."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.agent.episodes import read_episodes
from ludus.config import build, read_toml
from ludus.envs import EnvSession, Task
from ludus.envs.checks import check_env
from ludus.errors import ConfigError
from ludus.messages import assistant
from ludus.metrics import read_metrics
from ludus.trainer.algorithms import dr_grpo_advantages
from ludus.trainer.config import TrainConfig
from ludus.trainer.learning.experience import gather
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.recipes.recipe import Call
from ludus.trainer.rollout.collect import Group, compared
from ludus.trainer.rollout.issues import Ticket
from ludus.trainer.rollout.sampling import SamplingPolicy
from ludus.trainer.stream.accounts import FILE, count_rollouts, read_rollouts
from ludus.trainer.train import run_training
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


async def test_a_proposer_s_gold_is_its_question_where_it_is_valid(example: Any) -> None:
    env = example.Atlas(role="proposer")
    session = EnvSession(env)
    await session.reset(seed=1)
    env.pages = {"b": "f", "f": "a", "a": "b"}
    await session.step("?b")
    info = (await session.step("b1=f"))[-1]
    assert info["gold"] == "b1"
    await session.reset(seed=1)
    assert "gold" not in (await session.step("b1=f"))[-1], "no page was looked up"


def episode(
    reward: float | None, role: str, index: int, gold: str = "", about: str = ""
) -> Episode:
    turn = Turn(out_ids=[3, 4], logprobs=[0.0, 0.0], versions=[0, 0], message=assistant("x"))
    verdict = Verdict.unavailable("lost") if reward is None else Verdict.of(reward)
    segments = [Segment(prompt_ids=[1, 2], turns=[turn])]
    trajectory = Trajectory(
        role=role, about=about, verdict=verdict, segments=segments, gold=gold or None
    )
    trajectory.exclude_from_baseline = trajectory.exclude_from_loss = reward is None
    return Episode(task="train/0", trajectories=[trajectory], index=index, ordinal=index)


WORLD = Task(id="train/0", split="train")


def policy(answers: int = 2) -> tuple[SamplingPolicy, Ticket]:
    call = Call(name="self_play", options={"answers": answers})
    sampling = SamplingPolicy([call], group_size=3, seed=0)
    ticket = Ticket(ordinal=0, task=WORLD)
    return sampling, msgspec.structs.replace(ticket, issue=sampling.issue(ticket))


def test_every_valid_question_is_answered_as_often_as_asked() -> None:
    sampling, ticket = policy()
    assert ticket.issue is not None
    assert sampling.most == 3 * (1 + 2)
    assert {(each.role, each.options["role"]) for each in ticket.issue.each} == {
        ("proposer", "proposer")
    }
    asked = [episode(0.0, "proposer", n, gold) for n, gold in enumerate(("b2", "", "c1"))]
    further = sampling.more(ticket, [asked])
    assert further is not None
    told = [(each.role, each.about, each.options) for each in further.each]
    first = ("solver", "0: b2", {"role": "solver", "question": "b2"})
    third = ("solver", "2: c1", {"role": "solver", "question": "c1"})
    assert told == [first, first, third, third]
    assert sampling.more(ticket, [asked, []]) is None, "there are two rounds and no more"


@pytest.mark.parametrize(
    ("gold", "answers", "reward"),
    [
        ("b2", [1.0, 0.0, 0.0, 1.0], 0.5),
        ("b2", [1.0, 1.0], 0.0),
        ("b2", [0.0, None, 1.0, 1.0], 1 / 3),  # a lost solver says nothing
        ("b2", [None, None], None),  # nothing is known of the question, and that is no reward
        ("", [], 0.0),
    ],
)
def test_a_proposer_earns_the_share_of_solvers_that_fail(
    gold: str, answers: list[float | None], reward: float | None
) -> None:
    sampling, ticket = policy()
    asked = episode(0.0, "proposer", 0, gold)
    solved = [episode(one, "solver", 1 + n, about=f"0: {gold}") for n, one in enumerate(answers)]
    sampling.finish(ticket, [asked, *solved])
    (trajectory,) = asked.trajectories
    if reward is None:
        assert not trajectory.verdict.ok
        assert trajectory.exclude_from_baseline
        return
    assert trajectory.verdict.reward == pytest.approx(reward)
    assert trajectory.verdict.parts["valid"] == (float(bool(gold)), 0.0)


def test_each_role_is_compared_with_its_own() -> None:
    """Questions about a world are one group, answers to a question another: advantages are those of
    the groups credited alone.
    """
    asked = [episode(0.5, "proposer", 0, "b1"), episode(0.0, "proposer", 1, "c1")]
    solved = [
        *(episode(r, "solver", 2 + n, about="0: b1") for n, r in enumerate((1.0, 0.0))),
        *(episode(r, "solver", 4 + n, about="1: c1") for n, r in enumerate((1.0, 1.0))),
    ]
    groups = compared([Group(WORLD, [*asked, *solved], 0)])
    experience = gather(groups)
    assert experience is not None
    assert experience.groups.tolist() == [0, 0, 1, 1, 2, 2]
    advantages = dr_grpo_advantages(experience.rewards, experience.groups).tolist()
    assert advantages == [0.25, -0.25, 0.5, -0.5, 0.0, 0.0]
    alone = [Group(WORLD, asked, 0)]
    assert compared(alone) == alone, "one role stays as it is"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=32, layers=1, heads=2)


def settings(folder: Path, model: Path, **changes: Any) -> TrainConfig:
    table = read_toml(EXAMPLE.with_suffix(".toml"))
    small = {
        "model": {"path": str(model), "device": "cpu"},
        "rollout": {"tasks_per_step": 2, "group_size": 3, "max_tokens": 6},
        "eval": {"tasks": 2},
        "run": {"folder": str(folder), "tensorboard": False, "episodes_every": 1},
        "stage": [],
        "sampling": "self_play",
        "steps": 1,
    }
    return build(TrainConfig, {**table, **small, **changes})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"role": [{"name": "proposer"}]}, "role 'solver' has no policy: add \\[\\[role\\]\\]"),
        ({"role": [{"name": "judge"}]}, "role 'judge' is none of the sampling policy"),
        ({"sampling": ""}, "role 'proposer' is none of the sampling policy"),
        (
            {"recipe": "spo", "rollout": {"tasks_per_step": 2, "group_size": 1}},
            "recipe 'spo' tracks the success of each task",
        ),
        (
            {"role": [{"name": name, "model": "x"} for name in ("proposer", "solver")]},
            "every role has a model of its own",
        ),
        ({"sampling": "self_play,dars"}, "dars and self_play all decide about the rollouts"),
    ],
)
async def test_a_role_without_a_policy_is_refused_before_anything_is_played(
    example: Any, model: Path, tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        await run_training(settings(tmp_path / "run", model, **changes))


@pytest.mark.slow
async def test_the_example_trains_both_roles_from_its_file(example: Any, tmp_path: Path) -> None:
    table = read_toml(EXAMPLE.with_suffix(".toml"))
    for stage, steps in zip(table["stage"], (120, 2), strict=True):
        stage["steps"] = steps
    phrases = ["proposer", "solver", "system\n", "user\n", "assistant\n"]
    phrases += ["\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"]
    small = write_tiny_policy(tmp_path / "model", phrases=phrases, hidden=64, layers=2, heads=4)
    changes = {**table, "run": {"folder": str(tmp_path / "run"), "episodes_every": 1}}
    changes["rollout"] = {"tasks_per_step": 4, "group_size": 3, "max_tokens": 6}
    changes["model"] = {"path": str(small), "device": "cpu"}
    await run_training(build(TrainConfig, changes))
    folder = tmp_path / "run" / "2-play"
    assert count_rollouts(folder).holds
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "reward/mean" in row]
    assert all(row["update/grad_norm"] > 0 for row in rows)
    episodes = read_episodes(folder / "episodes" / "step-000002.jsonl")
    asked = [each for each in episodes if each.trajectories[0].role == "proposer"]
    assert len(asked) == 12, "4 worlds, 3 proposals each"
    assert any(each.trajectories[0].gold for each in asked), "some question is valid"
    for each in asked:
        (trajectory,) = each.trajectories
        answers = [
            other.trajectories[0].verdict.unwrap()
            for other in episodes
            if other.group == each.group
            and other.trajectories[0].about == f"{each.index}: {trajectory.gold}"
        ]
        assert len(answers) == (4 if trajectory.gold else 0)
        failed = 1 - sum(answers) / 4 if answers else 0.0
        assert trajectory.verdict.reward == pytest.approx(failed)


@pytest.mark.slow
async def test_a_role_with_a_model_of_its_own_plays_and_does_not_learn(
    example: Any, model: Path, tmp_path: Path
) -> None:
    other = write_tiny_policy(tmp_path / "other", hidden=32, layers=1, heads=2, seed=7)
    weights = {file.name: file.read_bytes() for file in other.iterdir() if file.is_file()}
    roles = [{"name": "proposer"}, {"name": "solver", "model": str(other)}]
    await run_training(settings(tmp_path / "run", model, role=roles, control="random"))
    records = read_rollouts(tmp_path / "run" / FILE)
    assert count_rollouts(tmp_path / "run").holds
    by_role = {
        each.trajectories[0].role: each
        for each in read_episodes(tmp_path / "run" / "episodes" / "step-000001.jsonl")
    }
    assert by_role["proposer"].trajectories[0].exclude_from_loss is False
    assert {each.reason for each in records} <= {"", "excluded"}
    assert weights == {file.name: file.read_bytes() for file in other.iterdir() if file.is_file()}
