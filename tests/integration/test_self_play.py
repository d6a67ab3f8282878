"""examples/04_self_play.py: two roles of one policy, each with advantages of its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import torch

import ludus
from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.agent.episodes import read_episodes
from ludus.config import build, read_toml
from ludus.envs import EnvSession, Task
from ludus.envs.checks import check_env
from ludus.errors import ConfigError, UpdateRefused
from ludus.findings import read_findings
from ludus.messages import assistant
from ludus.metrics import read_metrics
from ludus.trainer.algorithms import dr_grpo_advantages
from ludus.trainer.config import TrainConfig
from ludus.trainer.learning.experience import gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.checkpoint import load_state
from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.recipes.recipe import Call, load_recipe
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.collect import Group, compared
from ludus.trainer.rollout.issues import Ticket
from ludus.trainer.rollout.sampling import SamplingPolicy
from ludus.trainer.stream.accounts import FILE, count_rollouts, read_rollouts
from ludus.trainer.train import run_training
from ludus.verdict import Verdict

EXAMPLE = Path(__file__).parents[2] / "examples" / "04_self_play.py"


@pytest.fixture(scope="module")
def example(run_example: Callable[[str], Any]) -> Any:
    return run_example("04_self_play.py")


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
        (
            {"role": [{"name": name, "learns": True} for name in ("proposer", "solver")]},
            "the run's own policy plays none",
        ),
        (
            {
                "role": [{"name": "proposer"}, {"name": "solver", "learns": True}],
                "sampling": "self_play,nlpo",
            },
            "role 'solver' learns by itself.*sampling.vocabulary",
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


class Parity(ludus.TextEnv):
    """Every proposal is a valid question, and rewards follow from the number of characters."""

    max_turns = 1
    reset_options: ClassVar[Mapping[str, type]] = {"role": str, "question": str}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        given = options or {}
        self.role, self.said = given.get("role", "solver"), given.get("question", "")
        return f"{self.role} {self.task.seed % 10} {self.said}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.said = str(len(action) % 3)
        return "", float(len(action) % 2), True, False, {}

    def gold(self) -> str | None:
        return self.said if self.role == "proposer" else None


@pytest.fixture(scope="module")
def parity() -> str:
    ludus.register("test/parity-v0")(Parity)
    return "test/parity-v0"


def two_learners(
    parity: str, model: Path, other: Path, folder: Path, *, steps: int, resume: bool = False
) -> TrainConfig:
    changes: dict[str, Any] = {
        "env": parity,
        "role": [{"name": "proposer"}, {"name": "solver", "model": str(other), "learns": True}],
        "steps": steps,
        "trainer": {"lr": 1e-3},
    }
    made = settings(folder, model, **changes)
    return replace(made, run=replace(made.run, resume=resume))


def weights_of(folder: Path) -> dict[str, Any]:
    return dict(load_model(str(folder)).named_parameters())


@pytest.mark.slow
async def test_each_of_two_learners_makes_the_step_of_its_own_rollouts_alone(
    parity: str, model: Path, tmp_path: Path
) -> None:
    """The oracle is a learner that has never seen the other role, given the recorded rollouts."""
    other = write_tiny_policy(tmp_path / "other", hidden=32, layers=1, heads=2, seed=7)
    config = two_learners(parity, model, other, tmp_path / "run", steps=1)
    result = await run_training(config)
    played = list(read_episodes(tmp_path / "run" / "episodes" / "step-000001.jsonl"))
    kept = {"proposer": result.checkpoint, "solver": result.checkpoint / "roles" / "solver"}
    for role, first in (("proposer", model), ("solver", other)):
        alone: dict[str, list[Episode]] = {}
        for each in played:
            if each.trajectories[0].role == role:
                alone.setdefault(each.group, []).append(each)
        assert len(alone) == 2
        groups = [Group(WORLD, episodes, 0) for episodes in alone.values()]
        learner = Learner(load_model(str(first)), config.trainer, ReadingOptions(temperature=1.0))
        updater = Updater(resolve(load_recipe("grpo"), max_tokens=6), learner)
        experience = updater.gather(compared(groups))
        assert experience is not None
        seed = torch.Generator().manual_seed(config.seed * 1_000_003)
        assert updater.step(experience, generator=seed)["grad_norm"] > 0
        expected, got = dict(learner.model.named_parameters()), weights_of(kept[role])
        for name, weight in expected.items():
            assert torch.allclose(got[name], weight, rtol=0, atol=1e-6), (role, name)
        begun = weights_of(first)
        assert not all(torch.equal(got[name], begun[name]) for name in begun)
    assert count_rollouts(tmp_path / "run").holds


async def test_a_step_that_one_of_two_learners_made_is_not_in_a_checkpoint(
    parity: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_tiny_policy(tmp_path / "other", hidden=24, layers=1, heads=2, seed=7)
    update, made = Learner.update, list[int]()

    def broken(learner: Learner, *given: Any, **options: Any) -> dict[str, float]:
        if learner.model.config.hidden_size == 24:
            made.append(learner.updates)
            if len(made) == 2:
                raise RuntimeError("the device is lost")
        return update(learner, *given, **options)

    monkeypatch.setattr(Learner, "update", broken)
    config = two_learners(parity, model, other, tmp_path / "run", steps=9)
    config = replace(config, run=replace(config.run, save_every=1))
    with pytest.raises(RuntimeError, match="the device is lost") as failed:
        await run_training(config)
    assert "some updates of a step were made" in failed.value.__notes__[0]
    (*_, newest) = checkpoints(tmp_path / "run" / "checkpoints")
    state = load_state(newest)
    assert state["step"] == state["learner"]["updates"] == 1
    assert state["roles"]["solver"]["learner"]["updates"] == 1


async def test_refused_updates_of_a_role_are_told_and_end_the_run(
    parity: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_tiny_policy(tmp_path / "other", hidden=24, layers=1, heads=2, seed=7)
    update, width = Learner.update, 24

    def broken(learner: Learner, *given: Any, **options: Any) -> dict[str, float]:
        numbers = update(learner, *given, **options)
        if learner.model.config.hidden_size == width:
            raise UpdateRefused("the gradient is not finite")
        return numbers

    monkeypatch.setattr(Learner, "update", broken)
    config = two_learners(parity, model, other, tmp_path / "run", steps=9)
    config = replace(config, trainer=replace(config.trainer, max_refused=2))
    with pytest.raises(UpdateRefused, match="2 updates in a row were refused, the last at step 2"):
        await run_training(config)
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "reward/mean" in row]
    assert [row["update/refused"] for row in rows] == [1.0, 1.0]
    assert {each.name for each in read_findings(tmp_path / "run")} >= {"refused", "refusal 0"}
    (kept,) = torch.load(tmp_path / "run" / "refused" / "step-000002.pt", weights_only=True)
    assert kept["reason"] == "the gradient is not finite"
    named = read_episodes(tmp_path / "run" / "episodes" / "refused-000002.jsonl")
    assert {each.trajectories[0].role for each in named} == {"solver"}


@pytest.mark.slow
async def test_two_learners_go_on_to_the_last_bit(parity: str, model: Path, tmp_path: Path) -> None:
    other = write_tiny_policy(tmp_path / "other", hidden=32, layers=1, heads=2, seed=7)
    whole = await run_training(two_learners(parity, model, other, tmp_path / "whole", steps=4))
    await run_training(two_learners(parity, model, other, tmp_path / "half", steps=2))
    rest = await run_training(
        two_learners(parity, model, other, tmp_path / "half", steps=4, resume=True)
    )
    for folder in (Path(), Path("roles") / "solver"):
        first, second = (weights_of(run.checkpoint / folder) for run in (whole, rest))
        assert all(torch.equal(first[name], second[name]) for name in first), folder
    rows = [row for row in read_metrics(whole.folder / "metrics.jsonl") if "reward/mean" in row]
    assert all(row["update/role/solver/grad_norm"] > 0 for row in rows)
    assert all(row["update/grad_norm"] != row["update/role/solver/grad_norm"] for row in rows)
