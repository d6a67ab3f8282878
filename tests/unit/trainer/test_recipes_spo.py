"""Single-stream SPO: what is tracked of each task, which task comes next, and exact resumption."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import ludus
from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.agent.images import PlacedImage
from ludus.envs import EnvSession, ListedTasks, Task, TaskSet, TextEnv
from ludus.envs.protocol import Reset, Step
from ludus.errors import ConfigError, TrainingFailed
from ludus.messages import ImagePart
from ludus.metrics import read_metrics
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.learning.experience import gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.tiny import build_model, write_tiny_policy
from ludus.trainer.recipes.recipe import TrackerSettings, load_recipe
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.batch import Batch, Row
from ludus.trainer.rollout.collect import Group
from ludus.trainer.rollout.evaluate import HeldOutScores
from ludus.trainer.rollout.source import LocalSource
from ludus.trainer.rollout.tasks import TaskPool
from ludus.trainer.rollout.tracker import Score, SuccessTracker
from ludus.trainer.train import run_training
from ludus.verdict import Verdict

ROW = Row([5, 6, 7, 8], [0, 1, 0, 1], [0.0, -1.0, 0.0, -2.0])


class Ten(TextEnv):
    """Ten tasks."""

    def tasks(self, split: str) -> TaskSet:
        return ListedTasks(split, [Task(id=str(n), split=split) for n in range(10)])

    def reset(self, *, seed: int | None = None, options: object = None) -> Reset:
        return "", {}

    def step(self, action: str) -> Step:
        return "", 0.0, True, False, {}


def tracker(*, pool: int = 10, floor: float = 0.05) -> SuccessTracker:
    return SuccessTracker(TrackerSettings(pool=pool, floor=floor))


def pool(of: SuccessTracker, *, prioritise: bool = True) -> TaskPool:
    source = LocalSource("ten-v0", lambda: EnvSession(Ten()))
    return TaskPool(source, "train", 0, of, prioritise=prioritise)


async def ids(tasks: TaskPool, count: int) -> list[str]:
    return [task.id for task in await tasks.take(count)]


def shifted(by: float) -> Score:
    """A policy whose log-probabilities have moved by `by` on every token."""

    def score(batch: Batch) -> Tensor:
        return batch.sampler_logp + by

    return score


# --- what is tracked ------------------------------------------------------------------------------


def test_a_task_starts_from_its_first_rollouts_and_an_unknown_one_in_the_middle() -> None:
    made = tracker()
    made.begin("a", 2, 8)
    alpha, beta = made.counts(["a", "b"])
    # N0 = 8: 8 * 2.5 / 9 and 8 * 6.5 / 9; nothing played: 8 * 0.5 each
    torch.testing.assert_close(alpha, torch.tensor([20 / 9, 4.0]))
    torch.testing.assert_close(beta, torch.tensor([52 / 9, 4.0]))


def test_the_past_fades_with_how_far_the_policy_moved() -> None:
    made = tracker()
    rewards, first = torch.tensor([1.0, 0.0]), torch.zeros(2)
    assert torch.equal(made.drift(["a", "b"], shifted(0.5)), first)
    made.remember(["a", "b"], rewards, first, [[ROW], [ROW]])
    # no drift: 0.96 * 4 + r and 0.96 * 4 + 1 - r
    torch.testing.assert_close(made.counts(["a", "b"])[0], torch.tensor([4.84, 3.84]))
    drift = made.drift(["b", "c"], shifted(-0.006))
    torch.testing.assert_close(drift, torch.tensor([0.006, 0.0]))
    made.remember(["b"], torch.tensor([1.0]), drift[:1], [[ROW]])
    # 2^(-0.1) * 3.84 + 1 = 0.933033 * 3.84 + 1
    torch.testing.assert_close(made.counts(["b"])[0], torch.tensor([4.582846]))


def test_drift_is_a_mean_over_the_tokens_of_all_segments() -> None:
    made = tracker()
    short = Row([5, 6], [0, 1], [0.0, -1.0])
    made.remember(["a"], torch.tensor([1.0]), torch.zeros(1), [[ROW, short]])

    def score(batch: Batch) -> Tensor:
        moved = torch.tensor([[0.3], [0.9]]).expand(batch.mask.shape)
        return batch.sampler_logp + moved  # also where nothing is trained

    # tokens of the first row moved by 0.3 (two of them), of the second by 0.9
    torch.testing.assert_close(made.drift(["a"], score), torch.tensor([0.5]))


def test_a_restored_response_is_scored_with_its_images(tmp_path: Path) -> None:
    picture = PlacedImage(ImagePart(data=b"\xff\0png"), start=0, tokens=2)
    made, restored = tracker(), tracker()
    made.remember(["a"], torch.tensor([1.0]), torch.zeros(1), [[replace(ROW, images=(picture,))]])
    torch.save(made.state(), tmp_path / "state.pt")
    restored.restore(torch.load(tmp_path / "state.pt", weights_only=True))
    shown = list[object]()

    def score(batch: Batch) -> Tensor:
        shown.append(batch.images)
        return batch.sampler_logp

    made.drift(["a"], score)
    restored.drift(["a"], score)
    assert shown == [((picture,),)] * 2
    older = {task: [*counts, [row[:3] for row in rows]] for task, (*counts, rows) in
             made.state().items()}  # fmt: skip
    restored.restore(older)
    assert restored.counts(["a"]) == made.counts(["a"])


def test_of_a_task_that_comes_twice_both_read_the_old_state_and_the_last_counts() -> None:
    made = tracker()
    made.remember(["a", "a"], torch.tensor([1.0, 0.0]), torch.zeros(2), [[ROW], [ROW]])
    torch.testing.assert_close(made.counts(["a"])[0], torch.tensor([3.84]))


@pytest.mark.parametrize("reward", [-1.0, 1.5, float("nan")])
def test_a_reward_that_is_no_success_rate_stops_the_run_and_changes_nothing(reward: float) -> None:
    made = tracker()
    with pytest.raises(TrainingFailed, match="tracks success rates"):
        made.remember(["a"], torch.tensor([reward]), torch.zeros(1), [[ROW]])
    assert made.state() == {}
    with pytest.raises(TrainingFailed, match="tracks success rates"):
        made.begin("a", 8 * reward, 8)


# --- which task comes next ------------------------------------------------------------------------


async def test_uncertain_tasks_come_first_and_none_twice_at_once() -> None:
    known = tracker(floor=0.0)
    for task in "01234":
        known.begin(task, 8, 8)
    rows = [ROW]
    for _ in range(40):  # 0.96 * x + 1 has its fixed point at 25, and beta dies away
        known.remember(list("01234"), torch.ones(5), torch.zeros(5), [rows] * 5)
    tasks = pool(known)
    drawn = [set(await ids(tasks, 4)) for _ in range(50)]
    assert all(len(each) == 4 for each in drawn)
    solved = sum(len(each & set("01234")) for each in drawn)
    # weights sqrt(v (1 - v)) are 0.5 and, at v = 1 - 0.2/25, less than 0.1
    assert solved < 0.25 * 200


async def test_without_priorities_every_task_is_drawn_alike() -> None:
    known = tracker(floor=0.0)
    known.begin("3", 10**6, 10**6)
    tasks = pool(known, prioritise=False)
    drawn = [each for _ in range(60) for each in await ids(tasks, 5)]
    assert drawn.count("3") == pytest.approx(30, abs=15)


async def test_the_pool_of_a_finite_split_is_a_part_of_it_and_more_come_round_again() -> None:
    tasks = pool(tracker(pool=4))
    assert len(await tasks.members()) == 4
    drawn = await ids(tasks, 10)
    assert sorted(drawn[:4]) == sorted(drawn[4:8])
    assert set(drawn[8:]) < set(drawn)


async def test_a_restored_pool_draws_what_would_have_been_drawn() -> None:
    known = tracker()
    tasks = pool(known)
    await tasks.take(3)
    known.remember(["4"], torch.tensor([1.0]), torch.zeros(1), [[ROW]])
    tasks.retire(["1", "2"])
    again = pool(tracker())
    again.restore(tasks.state())
    assert again.state() == tasks.state()
    assert [await ids(again, 3) for _ in range(5)] == [await ids(tasks, 3) for _ in range(5)]


async def test_retired_tasks_are_not_drawn_until_all_are_retired() -> None:
    tasks = pool(tracker())
    tasks.retire("01234567")
    assert set(await ids(tasks, 2)) == {"8", "9"}
    tasks.retire("89")
    assert len(await ids(tasks, 10)) == 10


async def test_first_rollouts_that_failed_are_no_attempts() -> None:
    task = Task(id="7", split="train")
    verdicts = [Verdict.of(1.0), Verdict.of(0.0), Verdict.unavailable("lost")]
    episodes = [Episode(task="7", trajectories=[Trajectory(verdict=one)]) for one in verdicts]
    tasks = pool(tracker())
    tasks.begin([Group(task, episodes, 0)])
    # N0 (S + .5) / (n + 1) = 8 * 1.5 / 3
    torch.testing.assert_close(tasks.tracker.counts(["7"])[0], torch.tensor([4.0]))


# --- an update ------------------------------------------------------------------------------------


def group(task: str, reward: float, seed: int) -> Group:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, 40, (8,), generator=generator).tolist()
    turn = Turn(out_ids=tokens[3:], logprobs=[-3.0] * 5)
    one = Trajectory(
        verdict=Verdict.of(reward), segments=[Segment(prompt_ids=tokens[:3], turns=[turn])]
    )
    return Group(Task(id=task, split="train"), [Episode(task=task, trajectories=[one])], 0)


def test_an_update_compares_with_the_tracked_rate_and_then_counts() -> None:
    known = tracker()
    known.begin("a", 8, 8)
    model = build_model(40, hidden=16, layers=2, heads=2, max_length=64)
    made = Updater(resolve(load_recipe("spo")), Learner(model, TrainerConfig()), tracker=known)
    experience = gather([group("a", 1.0, 1), group("b", 1.0, 2), group("b2", 0.0, 3)])
    assert experience is not None
    assert experience.tasks == ("a", "b", "b2")
    batch = made.credited(experience).batch
    # v = 8.5 / 9 and 1/2: surprises 1/18, 1/2, -1/2
    surprise = torch.tensor([1 / 18, 0.5, -0.5])
    expected = (surprise - surprise.mean()) / surprise.std()
    assert batch.inputs.advantages is not None
    torch.testing.assert_close(batch.inputs.advantages[:, 4], expected)
    numbers = made.step(experience, generator=torch.Generator().manual_seed(0))
    assert numbers["tracked_rate"] == pytest.approx((8.5 / 9 + 1) / 3)
    assert numbers["tracked_drift"] == 0.0
    torch.testing.assert_close(known.counts(["b", "b2"])[0], torch.tensor([4.84, 3.84]))
    # the words kept are the old policy's: nothing has moved if it is asked again
    old = known.drift(["a", "b"], lambda part: part.sampler_logp)
    assert old.tolist() == [0, 0]
    assert known.drift(["a", "b"], made.learner.score).gt(0).all()


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"sampling": {"tracker": None, "prioritise": False}}, "needs success rates"),
        ({"sampling": {"tracker": None}}, "needs tracked success rates"),
        ({"algorithm": {"advantage": "reinforce_advantages"}, "sampling": {"prioritise": False}},
         "success rates that nothing reads"),
        ({"sampling": {"tracker": {"pool": 0}}}, "pool must be at least 1"),
        ({"sampling": {"tracker": {"rho_low": 0.97}}}, "rho_low <= rho_high"),
        ({"sampling": {"tracker": {"half_life": 0.0}}}, "half_life must be positive"),
        ({"shaping": [{"name": "overlong_penalty_rewards",
                       "options": {"max_length": 8, "buffer": 2}}]}, "counts successes"),
    ],
)  # fmt: skip
def test_trackers_that_cannot_work_are_refused(overrides: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        resolve(load_recipe("spo", overrides))


# --- a run ----------------------------------------------------------------------------------------


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "spo"\nname = "mine"\n[sampling.tracker]\npool = 12\nprior_rollouts = 2\n'
    )
    return path


@pytest.fixture
def coin() -> str:
    """Rewards a number of characters that is even: something even noise earns at times."""

    class Coin(TextEnv):
        def reset(self, *, seed: int | None = None, options: object = None) -> Reset:
            return f"toss {self.task.id}", {}

        def step(self, action: str) -> Step:
            return "", float(len(action) % 2 == 0), True, False, {}

    ludus.register("test/coin-v0")(Coin)
    return "test/coin-v0"


def settings(coin: str, recipe: Path, model: Path, folder: Path, steps: int) -> TrainConfig:
    return TrainConfig(
        env=coin,
        recipe=str(recipe),
        steps=steps,
        model=ModelConfig(path=str(model), device="cpu"),
        rollout=RolloutConfig(tasks_per_step=6, max_tokens=6),
        trainer=TrainerConfig(lr=1e-3, updates_per_step=2),
        eval=EvalConfig(tasks=2),
        run=RunConfig(folder=str(folder), tensorboard=False, save_every=0, episodes_every=0),
    )


@pytest.mark.slow
async def test_a_resumed_run_is_the_run_that_was_not_cut(
    coin: str, recipe: Path, tmp_path: Path
) -> None:
    """Draws, success rates, drifts and weights: all of them are in the checkpoint."""
    model = write_tiny_policy(tmp_path / "model", hidden=32, layers=2, heads=2)
    whole = await run_training(settings(coin, recipe, model, tmp_path / "whole", 6))
    cut = settings(coin, recipe, model, tmp_path / "cut", 6)
    await _interrupted(cut, after=3)
    again = await run_training(replace(cut, run=replace(cut.run, resume=True)))
    first, second = (steps_of(result.folder) for result in (whole, again))
    assert set(first) == set(second) == {1, 2, 3, 4, 5, 6}
    for step in first:
        for name in ("reward/mean", "update/tracked_rate", "update/tracked_drift", "update/loss"):
            assert first[step][name] == second[step][name], (step, name)
    assert any(row["update/tracked_drift"] > 0 for row in first.values())
    rows = read_metrics(whole.folder / "metrics.jsonl")
    assert [row["survey/rollouts"] for row in rows if "survey/rollouts" in row] == [24]


def steps_of(folder: Path) -> dict[float, dict[str, float]]:
    rows = read_metrics(folder / "metrics.jsonl")
    return {row["step"]: row for row in rows if "reward/mean" in row}


async def _interrupted(config: TrainConfig, *, after: int) -> None:
    """Run until step `after` is done, then cancel, as Ctrl-C does."""
    task: asyncio.Task[object]

    class Stopper:
        def on_episode(self, episode: Episode) -> None: ...

        def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
            if step == after:
                task.cancel()

        def on_evaluation(self, step: int, evaluation: HeldOutScores) -> None: ...

    task = asyncio.create_task(run_training(config, watcher=Stopper()))
    await asyncio.wait([task])
