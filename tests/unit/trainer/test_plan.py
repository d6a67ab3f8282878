"""The plan of a run: sizes, effects of a recipe, and settings that change nothing."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from ludus.agent.context import ContextSettings
from ludus.cli.main import main
from ludus.errors import ConfigError
from ludus.trainer.config import (
    AsyncConfig,
    EvalConfig,
    LocalConfig,
    LoraConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
    VLLMConfig,
)
from ludus.trainer.models.loading import load_model, outline_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.plan.dry_run import make_plan, not_installed, staleness_told
from ludus.trainer.plan.memory import (
    ModelSize,
    checkpoint_bytes,
    checkpoints_bytes,
    checkpoints_kept,
    checkpoints_written,
    estimate_memory,
)
from ludus.trainer.recipes.effects import Circumstances, idle_settings, recipe_effects
from ludus.trainer.recipes.recipe import load_recipe, recipe_names
from ludus.trainer.recipes.resolution import plan_updates, resolve
from ludus.trainer.run.claim import FolderLock


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


def config(model: Path, folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": "ludus/arithmetic-v0",
        "steps": 10,
        "model": ModelConfig(path=str(model)),
        "rollout": RolloutConfig(tasks_per_step=2, group_size=3, max_tokens=5, max_turns=4),
        "run": RunConfig(folder=str(folder / "run")),
    }
    return TrainConfig(**{**settings, **changes})


def effects(name: str, *, groups: int = 16, stale: bool = False, exact: bool = True) -> Any:
    algorithm = resolve(load_recipe(name), max_tokens=256)
    updates = plan_updates(algorithm, groups=groups)
    return dict(recipe_effects(algorithm, Circumstances(updates, stale=stale, exact=exact)))


def test_a_clip_says_from_which_update_it_can_act() -> None:
    assert "never acts" in effects("grpo")["clip of ppo_clip_loss"]
    assert "from the second of 2 updates" in effects("gspo", groups=2)["clip of gspo_loss"]
    assert "replace what it drops" in str(effects("dapo"))
    assert "plays up to 8,192 rollouts before the first step" in str(effects("spo"))


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_has_effects_and_each_correction_says_whether_it_can_act(name: str) -> None:
    recipe = load_recipe(name)
    found = effects(name)
    assert found
    corrections = recipe.algorithm.corrections
    for one in [corrections.weights, *(each.name for each in corrections.filters)]:
        if one:
            assert "hardly acts" in found[f"correction {one}"]
            assert "can act" in effects(name, stale=True)[f"correction {one}"]
            assert "can act" in effects(name, exact=False)[f"correction {one}"]


BASE = TrainConfig(steps=20)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (replace(BASE, vllm=VLLMConfig(max_model_len=9)), "vllm.max_model_len is set, but the"),
        (
            replace(BASE, engine="vllm", local=LocalConfig(kept_tokens=9)),
            "local.kept_tokens is set, but the engine is 'vllm'",
        ),
        (
            replace(BASE, context=ContextSettings(summary_tokens=9)),
            "context.summary_tokens is set, but context.manager is 'none'",
        ),
        (
            replace(BASE, trainer=TrainerConfig(warmup_steps=20)),
            "the run makes 20 updates: the learning rate never reaches",
        ),
        (
            replace(BASE, trainer=TrainerConfig(warmup_steps=30, lr_decay="linear")),
            "the learning rate never falls",
        ),
        (replace(BASE, run=RunConfig(save_every=20)), "run.save_every is 20, but the run has 20"),
        (
            replace(BASE, run=RunConfig(episodes_every=99)),
            "no file of episodes is written before the end",
        ),
        (replace(BASE, eval=EvalConfig(every=20)), "eval.every is 20, but the run has 20 steps"),
        (
            replace(BASE, eval=EvalConfig(every=5, patience=9)),
            "only 3 evaluations are made before the last",
        ),
        (replace(BASE, eval=EvalConfig(passing=0.5)), "eval.samples is 1: pass@k is not measured"),
        (replace(BASE, run=RunConfig(resume_changed=True)), "run.resume is not"),
        (replace(BASE, overlap=AsyncConfig(correction="none")), "no rollout is stale"),
        (replace(BASE, local=LocalConfig(keep_cache=True)), "local.keep_cache is set, but nothing"),
    ],
)
def test_a_setting_that_changes_nothing_is_told(changed: TrainConfig, told: str) -> None:
    assert idle_settings(BASE, updates=1) == []  # the defaults are no nuisance
    (text, *_) = [one for one in idle_settings(changed, updates=1) if told in one]
    assert text


def test_a_size_is_that_of_the_model_itself(model: Path, tmp_path: Path) -> None:
    outline, real = outline_model(model), load_model(model)
    settings = config(model, tmp_path)
    size = ModelSize.of(outline, settings)
    count = sum(one.numel() for one in real.parameters())
    assert size == ModelSize(count, count)
    parts = dict(estimate_memory(settings, outline, reference=True).rows())
    assert parts["the learner's weights"] == 4 * count
    assert parts["the optimizer's moments"] == 8 * count
    assert parts["the engine's weights"] == 4 * count
    assert parts["the reference's weights"] == 4 * count
    own = replace(settings, eval=EvalConfig(beside="own"))
    assert dict(estimate_memory(own, outline).rows())["the engine's weights"] == 8 * count


def test_lora_trains_its_matrices_alone(model: Path, tmp_path: Path) -> None:
    def adapted(targets: str) -> tuple[Any, ModelSize]:
        trainer = TrainerConfig(lora=LoraConfig(rank=2, targets=targets))
        settings = config(model, tmp_path, trainer=trainer)
        return settings, ModelSize.of(outline_model(model), settings)

    settings, size = adapted("q_proj")
    assert size.trained == 2 * (16 + 16)  # one layer, 16 in and 16 out
    assert checkpoint_bytes(settings, size) == 4 * size.total + 8 * 64
    assert adapted("q_proj, o_proj")[1] == adapted("q_proj,o_proj")[1]  # as the learner reads it


@pytest.mark.parametrize(
    ("run", "eval_", "written", "kept"),
    [
        (RunConfig(save_every=0), EvalConfig(), 2, 2),  # 5, 10
        (RunConfig(save_every=3, keep=2), EvalConfig(), 4, 4),  # 3, 6, 9, 10
        (RunConfig(save_every=5, keep=2), EvalConfig(every=2), 6, 4),  # 2, 4, 5, 6, 8, 10
        (RunConfig(save_every=0), EvalConfig(every=2, keep_best=False), 1, 1),
    ],
)
def test_checkpoints_are_counted(
    run: RunConfig, eval_: EvalConfig, written: int, kept: int
) -> None:
    settings = TrainConfig(steps=10, run=run, eval=eval_)
    assert (checkpoints_written(settings), checkpoints_kept(settings)) == (written, kept)


@pytest.mark.parametrize(
    ("ranks", "run", "lora", "disk"),
    [
        (1, RunConfig(keep=2), LoraConfig(), 4 * 12),
        (2, RunConfig(keep=2), LoraConfig(), 4 * 12 + 2 * 4),  # the last and the best are whole
        (2, RunConfig(keep=2, whole="always"), LoraConfig(), 4 * 12 + 4 * 4),
        (2, RunConfig(keep=2), LoraConfig(rank=4), 4 * 16 + 2 * 40),  # the base is in no shard
        (2, RunConfig(keep=2), LoraConfig(rank=4, save="adapter"), 4 * 16),
    ],
)
def test_checkpoints_of_ranks_hold_the_weights_in_shards(
    ranks: int, run: RunConfig, lora: LoraConfig, disk: int
) -> None:
    settings = TrainConfig(steps=1000, run=run, trainer=TrainerConfig(lora=lora))
    size = ModelSize(10, 1) if lora.rank else ModelSize(1, 1)
    assert checkpoints_bytes(settings, size, ranks) == disk


def test_a_plan_without_overlap_has_no_staleness() -> None:
    assert staleness_told(AsyncConfig()).startswith("none")
    ahead = AsyncConfig(max_staleness=2)
    assert "at most 2 steps ahead; a single rollout may be older" in staleness_told(ahead)


async def test_a_plan_of_a_run_ahead_tells_its_bound_and_its_correction(
    model: Path, tmp_path: Path
) -> None:
    overlap = AsyncConfig(max_staleness=2, deadline=3, late="mask")
    plan = await make_plan(config(model, tmp_path, overlap=overlap, eval=EvalConfig(every=2)))
    step, whole = dict(plan.sections["a step"]), dict(plan.sections["the whole run"])
    assert "within 3 steps, or masked" in step["staleness"]
    assert "beside training, versions may change meanwhile" in whole["evaluations"]
    assert "can act" in dict(plan.sections["the recipe"])["correction tis_weights"]
    assert any("stale tokens are corrected by tis_weights" in note for note in plan.notes)


async def test_a_plan_leaves_no_trace_and_bounds_the_tokens(model: Path, tmp_path: Path) -> None:
    plan = await make_plan(config(model, tmp_path, vllm=VLLMConfig(max_model_len=9)))
    assert list(tmp_path.iterdir()) == []
    step = dict(plan.sections["a step"])
    assert step["rollouts"] == "2 tasks x 3 = 6"
    assert step["sampled tokens, at most"] == "120 (at most 4 turns of 5 in a rollout)"
    assert "demonstrations of the environment's expert" in step["sampled tokens, expected"]
    assert step["staleness"].startswith("none")
    assert any("vllm.max_model_len" in note for note in plan.notes)
    assert "steps and updates" in str(plan)


@pytest.mark.parametrize(("bound", "turns"), [(0, 6), (3, 3), (50, 6)])
async def test_an_episode_has_no_more_turns_than_its_environment_or_its_settings_allow(
    model: Path, tmp_path: Path, bound: int, turns: int
) -> None:
    rollout = RolloutConfig(tasks_per_step=2, group_size=3, max_tokens=5, max_turns=bound)
    plan = await make_plan(config(model, tmp_path, rollout=rollout))
    told = dict(plan.sections["a step"])["sampled tokens, at most"]
    assert f"(at most {turns} turns of 5 in a rollout)" in told


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        # six rollouts, and four times as many in the place of dropped ones
        ({"recipe": "dapo"}, 5 * 6 * 4 * 5),
        # a summary of 7 tokens may take the place of a turn of 5
        (
            {
                "context": ContextSettings(manager="summarize", summary_tokens=7),
                "rollout": RolloutConfig(2, 3, max_tokens=5, max_turns=4, window=600),
            },
            6 * 4 * 7,
        ),
    ],
)
async def test_the_bound_on_tokens_counts_what_a_filter_and_a_context_manager_add(
    model: Path, tmp_path: Path, changes: dict[str, Any], most: int
) -> None:
    plan = await make_plan(replace(config(model, tmp_path), **changes))
    assert dict(plan.sections["a step"])["sampled tokens, at most"].startswith(f"{most:,} (")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"recipe": "gpro"}, "no recipe named 'gpro'"),
        ({"env": "ludus/arithmetik-v0"}, "did you mean 'ludus/arithmetic-v0'"),
        ({"model": ModelConfig(path="/nowhere")}, "cannot load"),
        ({"split": "tets"}, "tets"),
        ({"rollout": RolloutConfig(group_size=1)}, "group_size = 1 all advantages are 0"),
        ({"rollout": RolloutConfig(window=100_000)}, "rollout.window is 100000, but the engine"),
        ({"run": RunConfig(folder="{folder}", resume=True)}, "nothing to resume"),
    ],
)
async def test_a_plan_refuses_what_the_run_would_refuse(
    model: Path, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    run = changes.get("run", RunConfig())
    changes = {**changes, "run": replace(run, folder=str(tmp_path / "run"))}
    with pytest.raises(Exception, match=told):
        await make_plan(replace(config(model, tmp_path), **changes))
    assert list(tmp_path.iterdir()) == []


def lone_advantages(rewards: Tensor, group: Tensor) -> Tensor:
    return rewards


async def test_a_tensor_that_no_run_makes_is_refused_before_a_model_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lone", sys.modules[__name__])
    (tmp_path / "own.toml").write_text(
        'base = "grpo"\nname = "own"\n[algorithm]\nadvantage = "lone:lone_advantages"\n'
    )
    own = str(tmp_path / "own.toml")
    with pytest.raises(ConfigError, match="needs group, which this trainer does not compute"):
        await make_plan(replace(config(tmp_path / "no-model", tmp_path), recipe=own))
    assert main(["recipes", "show", own]) == 2
    assert "needs group, which" in capsys.readouterr().err


def test_the_command_prints_the_plan(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--env=ludus/arithmetic-v0", f"--model.path={model}", f"--run.folder={tmp_path}/run"]
    assert main(["train", "grpo", "--dry-run", *common, "--steps=7"]) == 0
    shown = capsys.readouterr().out
    assert "ends after step 7" in shown
    assert "never acts: with one update a step every ratio is 1" in shown
    assert main(["train", "grpo", *common, "--rollout.window=99999", "--dry_run"]) == 2
    assert "rollout.window is 99999, but the engine takes 1024 tokens" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


async def test_a_plan_for_a_folder_in_use_is_refused_and_changes_nothing_there(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    lock = FolderLock(folder)
    before = (folder / ".lock").read_bytes()
    with pytest.raises(ConfigError, match="in use by another run of this process"):
        await make_plan(config(model, tmp_path))
    with pytest.raises(ConfigError, match="in use by another run of this process"):
        FolderLock(folder)  # it still holds
    lock.release()
    await make_plan(config(model, tmp_path))
    assert [path.name for path in folder.iterdir()] == [".lock"]
    assert (folder / ".lock").read_bytes() == before


def test_what_a_run_needs_and_this_machine_lacks_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    asked = replace(BASE, engine="vllm", run=RunConfig(trackers=("wandb",)))
    engine, tracker = not_installed(asked)
    assert "ludus-rl[vllm]" in engine
    assert "run.trackers = wandb needs wandb" in tracker
    elsewhere = replace(BASE, engine="vllm", vllm=VLLMConfig(url="http://127.0.0.1:8000"))
    assert list(not_installed(elsewhere)) == list(not_installed(BASE)) == []
