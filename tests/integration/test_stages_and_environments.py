"""Stages of a run, and several environments in one: in order, resumed, told apart, refused."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.agent.episodes import read_episodes
from ludus.config import build, read_toml
from ludus.envs import GeneratedTasks, Info, Task, TaskSet, TextEnv
from ludus.envs.registry import register_env
from ludus.errors import ConfigError
from ludus.messages import Message
from ludus.metrics import read_metrics
from ludus.trainer.config import (
    EnvironmentConfig,
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    StageConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.data.recorded import recorded_trajectories
from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.models.loading import load_tokenizer
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.recipes.inputs import Inputs
from ludus.trainer.recipes.recipe import load_recipe
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.mixture import MixedSource
from ludus.trainer.stage_runs import ENDED, TrainResult, run_stages, sft_stage
from ludus.trainer.train import run_training

SUMS = "ludus/arithmetic-v0?max_operations=1&max_number=3"
TAGS = "ludus/search-v0?style=tags"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=32, layers=2, heads=2)


def config(model: Path, folder: Path, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "env": SUMS,
        "steps": 2,
        "model": ModelConfig(path=str(model)),
        "rollout": RolloutConfig(tasks_per_step=4, group_size=2, max_tokens=6, max_turns=2),
        "trainer": TrainerConfig(lr=1e-3),
        "eval": EvalConfig(tasks=4),
        "run": RunConfig(folder=str(folder), tensorboard=False, save_every=1, episodes_every=1),
        "control": "random",
    }
    return TrainConfig(**{**settings, **changes})


STAGES = [
    StageConfig(name="warm", kind="sft", steps=1, batch_size=2),
    StageConfig(name="sums", steps=1, tasks_per_step=2),
    StageConfig(name="search", steps=1, tasks_per_step=2, env="ludus/search-v0", recipe="rloo"),
]


async def test_stages_begin_where_the_one_before_ended_and_a_resume_skips_what_is_done(
    model: Path, tmp_path: Path
) -> None:
    settings = config(model, tmp_path / "run", stage=STAGES)
    result = await run_training(settings)
    folders = [tmp_path / "run" / name for name in ("1-warm", "2-sums", "3-search")]
    assert result.folder == folders[-1]
    starts = [read_toml(folder / "config.toml")["model"]["path"] for folder in folders]
    ends = [json.loads((folder / ENDED).read_text())["checkpoint"] for folder in folders]
    assert starts == [str(model), *ends[:-1]]
    assert read_toml(folders[2] / "config.toml")["recipe"] == "rloo"
    assert read_toml(tmp_path / "run" / "config.toml")["stage"][0]["kind"] == "sft"
    weights = torch.load(
        checkpoints(folders[2] / "checkpoints")[-1] / "trainer.pt", weights_only=True
    )
    # the last stage is lost, and nothing else: it is trained again, to the last bit
    shutil.rmtree(folders[2])
    kept = [(folder / ENDED).stat().st_mtime_ns for folder in folders[:2]]
    written = build(TrainConfig, read_toml(tmp_path / "run" / "config.toml"))
    again = replace(written, run=replace(settings.run, resume=True))
    await run_training(again)
    assert [(folder / ENDED).stat().st_mtime_ns for folder in folders[:2]] == kept
    other = torch.load(
        checkpoints(folders[2] / "checkpoints")[-1] / "trainer.pt", weights_only=True
    )
    one, two = (each["learner"]["optimizer"]["state"] for each in (weights, other))
    for key in one:
        assert torch.equal(one[key]["exp_avg"], two[key]["exp_avg"])


def spent_in(folder: Path) -> list[float]:
    """The tokens of each step, counted in the episodes that were kept."""
    steps = sorted((folder / "episodes").glob("step-*.jsonl"))
    return [
        sum(
            len(turn.out_ids) for each in read_episodes(step) for turn in each.trajectories[0].turns
        )
        for step in steps
    ]


async def test_stages_share_one_budget_of_tokens_also_where_the_run_is_cut(
    model: Path, tmp_path: Path
) -> None:
    """Each stage ends with the step that reaches what the ones before have left."""
    stages = [
        StageConfig(name="warm", kind="sft", steps=50, batch_size=2, tokens=100),
        StageConfig(name="play", steps=50, tasks_per_step=2),
        StageConfig(name="late", steps=50, tasks_per_step=2),
    ]
    settings = config(model, tmp_path / "run", stage=stages, tokens=300)
    await run_training(settings)
    folders = [tmp_path / "run" / name for name in ("1-warm", "2-play", "3-late")]
    assert not folders[2].exists(), "nothing was left for it"
    warm = [row["tokens"] for row in read_metrics(folders[0] / "metrics.jsonl")]
    assert sum(warm[:-1]) < 100 <= sum(warm)
    played = spent_in(folders[1])
    assert sum(played[:-1]) < 300 - sum(warm) <= sum(played)
    ended = [json.loads((folder / ENDED).read_text()) for folder in folders[:2]]
    assert [each["tokens"] for each in ended] == [sum(warm), sum(played)]
    assert "tokens = " in ended[1]["stopped"]
    # cut in the middle of the second stage, and resumed: the same steps
    shutil.rmtree(tmp_path / "run" / "2-play")
    await run_training(
        config(
            model,
            tmp_path / "run",
            stage=[*stages[:1], replace(stages[1], steps=1)],
            tokens=300,
            run=replace(settings.run, resume=True),
        )
    )
    (folders[1] / ENDED).unlink()
    await run_training(replace(settings, run=replace(settings.run, resume=True)))
    assert spent_in(folders[1]) == played


async def test_environments_with_different_tool_formats_share_the_tasks_and_are_told_apart(
    model: Path, tmp_path: Path
) -> None:
    """One with tools and one of plain tags: each has its own briefing, metrics and evaluation."""
    several = [
        EnvironmentConfig(env=SUMS, name="sums", weight=3.0),
        EnvironmentConfig(env=TAGS, name="tags"),
    ]
    settings = config(model, tmp_path / "run", env="", environment=several, steps=2)
    result = await run_training(settings)
    rows = read_metrics(result.folder / "metrics.jsonl")
    last = [row for row in rows if "reward/mean" in row][-1]
    assert (last["env/sums/groups"], last["env/tags/groups"]) == (3, 1)
    assert last["env/sums/reward"] == pytest.approx(last["env/sums/reward"])
    held_out = [row for row in rows if "eval/mean" in row][-1]
    assert {"eval/sums/mean", "eval/tags/mean"} <= set(held_out)
    episodes = [
        episode
        for step in (1, 2)
        for episode in read_episodes(result.folder / "episodes" / f"step-{step:06d}.jsonl")
    ]
    tasks = {episode.group: episode.task for episode in episodes}
    assert Counter(task.partition("::")[0] for task in tasks.values()) == {"sums": 6, "tags": 2}
    prompts = {
        episode.task.partition("::")[0]: len(episode.trajectories[0].segments[0].prompt_ids)
        for episode in episodes
    }
    assert prompts["sums"] != prompts["tags"]
    read = load_tokenizer(str(model)).decode
    for episode in episodes:
        prompt = read(episode.trajectories[0].segments[0].prompt_ids)
        assert ("calculator" in prompt) == episode.task.startswith("sums::"), "tools of its own"


async def test_the_mixture_keeps_to_its_shares_and_begins_finite_splits_again() -> None:
    several = [
        EnvironmentConfig(env=SUMS, name="a", weight=2.0),
        EnvironmentConfig(env=SUMS, name="b", weight=1.0),
    ]
    source = MixedSource(several, evaluated="test")
    tasks = await source.tasks("train", range(30))
    for count in range(1, 31):
        first = sum(task.id.startswith("a::") for task in tasks[:count])
        assert abs(first - 2 * count / 3) < 1
    held_out = await source.tasks("test", range(10))
    assert Counter(task.id[0] for task in held_out) == {"a": 5, "b": 5}
    again = await MixedSource(several, evaluated="test").tasks("train", [29, 3])
    assert [task.id for task in again] == [tasks[29].id, tasks[3].id]
    # where a run of many steps is continued: the time is linear in the tasks before
    (late,) = await source.tasks("train", [300_000])
    assert late.id.startswith("a::")
    await source.close()


async def test_environments_are_closed_though_one_of_them_fails_to_close() -> None:
    closed: list[str] = []

    class Closing(TextEnv):
        never_blocks = True

        def __init__(self, name: str = "") -> None:
            self.name = name

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, Info]:
            return "begin", {}

        def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
            return "", 1.0, True, False, {}

        def close(self) -> None:
            closed.append(self.name)
            raise OSError(f"{self.name} cannot be closed")

    register_env("me/closing-v0", Closing)
    several = [EnvironmentConfig(env=f"me/closing-v0?name={name}", name=name) for name in "ab"]
    source = MixedSource(several)
    for name in "ab":
        await source.release(await source.open(Task(id=f"{name}::train/0", split="train")))
    with pytest.raises(OSError, match="cannot be closed"):
        await source.close()
    assert Counter(closed) == {"a": 2, "b": 2}  # the session that was played, and that of tasks


def test_statistics_over_the_batch_are_taken_within_each_environment() -> None:
    """Against each environment credited alone; rewards of one are a hundred times the other's."""
    algorithm = resolve(load_recipe("lite_ppo"), max_tokens=8)
    rewards = torch.tensor([1.0, 0, 1, 1, 100, 0, 300, 100])
    groups = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    environments = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    mask = torch.ones(8, 2)

    def credited(chosen: torch.Tensor, apart: torch.Tensor | None) -> torch.Tensor:
        inputs = Inputs(
            rewards=rewards[chosen],
            groups=groups[chosen],
            environments=apart,
            mask=mask[chosen],
            rollouts=torch.arange(len(chosen)),
            old_logp=torch.zeros(len(chosen), 2),
            sampler_logp=torch.zeros(len(chosen), 2),
            truncated=torch.zeros(len(chosen), dtype=torch.bool),
        )
        advantages = algorithm.credit(inputs).inputs.advantages
        assert advantages is not None
        return advantages

    together = credited(torch.arange(8), environments)
    alone = [credited(torch.arange(4), None), credited(torch.arange(4, 8), None)]
    torch.testing.assert_close(together, torch.cat(alone))
    assert not torch.allclose(together, credited(torch.arange(8), None))


async def test_one_environment_and_several_are_not_both(model: Path, tmp_path: Path) -> None:
    several = [EnvironmentConfig(env=SUMS)]
    with pytest.raises(ConfigError, match="leave out one of them"):
        await run_training(config(model, tmp_path / "run", environment=several))


def test_settings_that_cannot_be_are_refused_where_they_are_made() -> None:
    with pytest.raises(ConfigError, match="stage 'a' has no end: set its steps"):
        StageConfig(name="a", until=0.9)
    with pytest.raises(ConfigError, match="kind is 'sftt'; did you mean 'sft'"):
        StageConfig(name="a", kind="sftt", steps=1)
    with pytest.raises(ConfigError, match="two stages are named 'a'"):
        TrainConfig(stage=[StageConfig(name="a", steps=1), StageConfig(name="a", steps=2)])
    with pytest.raises(ConfigError, match="two environments are named 'arithmetic-v0'"):
        TrainConfig(environment=[EnvironmentConfig(env=SUMS), EnvironmentConfig(env=SUMS)])
    with pytest.raises(ConfigError, match="leave out '/' and '::'"):
        EnvironmentConfig(env=SUMS, name="a::b")


async def test_stages_that_have_ended_are_not_begun_again_by_mistake(
    model: Path, tmp_path: Path
) -> None:
    place = tmp_path / "run" / "1-a"
    place.mkdir(parents=True)
    (place / ENDED).write_text('{"checkpoint": "x", "step": 1}')
    settings = config(model, tmp_path / "run", stage=[StageConfig(name="a", steps=1)])
    with pytest.raises(ConfigError, match=r"stages that have ended; go on by --run\.resume"):
        await run_training(settings)


class EvenLetters(TextEnv):
    """Pays for an even number of characters, which a policy from random weights often writes."""

    never_blocks = True
    max_turns = 1

    def tasks(self, split: str) -> TaskSet:
        return GeneratedTasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        return f"Write. ({self.task.id})", {}

    def step(self, action: str | Message) -> tuple[str, float, bool, bool, dict[str, Any]]:
        text = action if isinstance(action, str) else action.text
        return "", float(len(text) % 2 == 0), True, False, {}


def test_demonstrations_are_not_played_here_of_an_environment_on_a_server() -> None:
    server, warm = "http://127.0.0.1:8000", StageConfig(name="warm", kind="sft", steps=1)
    for stage in (warm, replace(warm, env=SUMS, env_url=server)):
        with pytest.raises(ConfigError, match="played in this process"):
            sft_stage(TrainConfig(env=SUMS, env_url=server, stage=[stage]), 0)
    here = replace(warm, env=SUMS)
    assert sft_stage(TrainConfig(env=TAGS, env_url=server, stage=[here]), 0).env == SUMS


async def test_expert_iteration_plays_chooses_and_learns(model: Path, tmp_path: Path) -> None:
    register_env("even/letters-v0", EvenLetters)
    stages = [
        StageConfig(name="play", kind="play", steps=4),
        StageConfig(name="best", kind="sft", data="play", min_reward=1.0, steps=3, batch_size=8),
        StageConfig(name="again", kind="play", steps=1),
    ]
    rollout = RolloutConfig(tasks_per_step=4, group_size=4, max_tokens=6)
    run = tmp_path / "run"
    settings = config(model, run, env="even/letters-v0", stage=stages, control="", rollout=rollout)
    result = await run_training(settings)
    assert result.folder == run / "3-again"
    file = run / "1-play" / "episodes" / "step-000001.jsonl"
    played = [episode.trajectories[0] for episode in read_episodes(file)]
    assert len(played) == 4 * 4 * 4
    sampled = sum(len(turn.out_ids) for each in played for turn in each.turns)
    assert json.loads((run / "1-play" / ENDED).read_text())["tokens"] == sampled
    rewards = Counter(each.verdict.reward for each in played)
    assert rewards[1.0] > 0 < rewards[0.0]  # there is something to choose from
    chosen = list(recorded_trajectories(str(run / "1-play"), min_reward=1.0))
    assert len(chosen) == rewards[1.0]
    learned = read_metrics(run / "2-best" / "metrics.jsonl")
    assert [row["step"] for row in learned] == [1, 2, 3]
    ends = [
        json.loads((run / name / ENDED).read_text())["checkpoint"] for name in ("1-play", "2-best")
    ]
    assert ends[0] == str(model)  # to play is not to learn
    assert Path(ends[1]).parent.parent == run / "2-best"


async def test_a_stage_that_plays_samples_as_the_settings_or_the_recipe_say(
    model: Path, tmp_path: Path
) -> None:
    register_env("even/letters-v0", EvenLetters)
    stages = [StageConfig(name="play", kind="play", steps=1)]
    cold = RolloutConfig(tasks_per_step=2, max_tokens=6, temperature=1e-6)
    settings = config(
        model, tmp_path / "run", env="even/letters-v0", stage=stages, control="", rollout=cold
    )
    await run_training(settings)
    answers: dict[str, list[list[int]]] = {}
    for episode in read_episodes(tmp_path / "run/1-play/episodes/step-000001.jsonl"):
        sampled = [token for turn in episode.trajectories[0].turns for token in turn.out_ids]
        answers.setdefault(episode.task, []).append(sampled)
    size = load_recipe(settings.recipe).sampling.group_size
    assert [len(each) for each in answers.values()] == [size, size]
    assert all(each == [each[0]] * size for each in answers.values()), "almost greedy"


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        ({"kind": "rl", "data": "x.jsonl"}, "data would change nothing in a stage of kind rl"),
        ({"kind": "rl", "batch_size": 3}, "batch_size would change nothing in a stage of kind rl"),
        ({"kind": "sft", "group_size": 4}, "group_size would change nothing"),
        ({"kind": "sft", "recipe": "rloo"}, "recipe would change nothing in a stage of kind sft"),
        ({"kind": "sft", "data": "x", "env": SUMS}, "env would change nothing .* sft with data"),
        ({"kind": "sft", "min_reward": 1.0}, "chooses episodes of data"),
        ({"kind": "play", "tokens": 10}, "tokens would change nothing in a stage of kind play"),
        ({"kind": "play", "until": 0.5}, "until would change nothing"),
    ],
)
def test_stages_that_cannot_be_are_refused(stage: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        StageConfig(name="x", steps=1, **stage)


async def test_a_stage_that_has_begun_goes_on_only_where_a_resume_is_asked_for(
    model: Path, tmp_path: Path
) -> None:
    asked: list[RunConfig] = []

    async def train(each: TrainConfig) -> TrainResult:
        asked.append(each.run)
        folder = Path(each.run.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.jsonl").write_text("")
        return TrainResult(folder, folder / "end", 2, interrupted=False, stopped=folder.name)

    stages = [StageConfig(name="a", steps=2), StageConfig(name="b", steps=2)]
    settings = config(model, tmp_path / "run", stage=stages)
    (tmp_path / "run" / "1-a" / "checkpoints" / "step-000001").mkdir(parents=True)
    again = replace(settings, run=replace(settings.run, resume=True))
    result = await run_stages(settings, train)
    assert [each.resume for each in asked] == [False, False]  # so that the stage itself refuses
    for folder in (tmp_path / "run").glob("*/ended.json"):
        folder.unlink()
    assert await run_stages(again, train) == result
    assert [each.resume for each in asked[2:]] == ["auto", "auto"]
    # All have ended: the result is still that of the last.
    assert await run_stages(again, train) == result
    assert len(asked) == 4
