"""One warm start, one training run, and what is kept of it. Each is done once for a plan: what is
finished is found again when the table is started anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import statistics
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from algorithms_worlds import SHAPE, Stage, World, world_of

from ludus.errors import LudusError

if TYPE_CHECKING:
    from ludus.trainer.config import TrainConfig

OVERRIDES = {"spo": "[sampling.tracker]\npool = 256\nprior_rollouts = 2\n"}
"""Where a recipe's own size is for another scale: 8 rollouts of each of 1024 tasks before the first
step are twice the whole budget here.
"""


@dataclass(frozen=True)
class Plan:
    """What one invocation runs."""

    out: Path
    steps: int
    eval_tasks: int
    eval_every: int
    lr_scale: float = 1.0


@dataclass(frozen=True)
class Job:
    """One recipe in one environment with one seed."""

    recipe: str
    environment: str
    seed: int

    def folder(self, plan: Plan) -> Path:
        """Where its run goes."""
        return place_of(plan, self.environment, self.seed) / f"{self.recipe}-{plan.steps}"


@dataclass
class Run:
    """What is kept of a run."""

    recipe: str
    environment: str
    seed: int
    tokens: list[float] = field(default_factory=list)
    """Sampled so far, at each evaluation; a survey before the first step counts."""
    accuracy: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    """Tokens a rollout, step by step."""
    updates: float = 0.0
    """Optimizer updates a step, mean over steps."""
    ratio_min: float = 1.0
    ratio_max: float = 1.0
    clip_low: float = 0.0
    """Share of tokens stopped below, mean over steps."""
    clip_high: float = 0.0
    seconds: float = 0.0
    """Of CPU."""
    refused: str = ""
    """Why it could not be run."""

    def at(self, tokens: float) -> float:
        """Accuracy where this many tokens had been sampled, between evaluations a straight line."""
        for (t0, t1), (a0, a1) in zip(pairwise(self.tokens), pairwise(self.accuracy), strict=True):
            if t0 <= tokens <= t1:
                return a0 + (a1 - a0) * (tokens - t0) / (t1 - t0)
        return self.accuracy[-1]

    def efficiency(self, budget: float) -> float:
        """Mean accuracy over the budget: the area under the curve, 1 at most."""
        points = 64
        return statistics.fmean(self.at(budget * k / points) for k in range(points + 1))

    def worst_fall(self) -> float:
        """The greatest fall from an evaluation to a later one."""
        best, fall = 0.0, 0.0
        for accuracy in self.accuracy:
            best = max(best, accuracy)
            fall = max(fall, best - accuracy)
        return fall


def warm_start(plan: Plan, environment: str, seed: int) -> Path:
    """The checkpoint every recipe starts from in this environment with this seed."""
    world = world_of(environment)
    folder = place_of(plan, environment, seed) / "warm"
    mark, key = folder / "done.json", _digest(environment, seed, asdict(world), SHAPE)
    if (kept := _kept(mark, key)) is not None:
        return folder / str(kept)
    shutil.rmtree(folder, ignore_errors=True)
    model = _fresh_model(folder / "model", environment, world, seed)
    for number, stage in enumerate(world.stages):
        model = _stage(world, stage, environment, seed, model, folder / f"stage-{number}")
    mark.write_text(json.dumps({"key": key, "value": str(model.relative_to(folder))}))
    return model


def train_recipe(plan: Plan, job: Job, start: Path) -> Run:
    """Train once, or find what an earlier invocation kept."""
    folder = job.folder(plan)
    mark, key = folder / "done.json", _key(plan, job)
    if (kept := _kept(mark, key)) is not None:
        return Run(**kept)
    shutil.rmtree(folder, ignore_errors=True)
    run = _train(plan, job, start, folder)
    if not run.refused:
        mark.write_text(json.dumps({"key": key, "value": asdict(run)}))
    return run


def place_of(plan: Plan, environment: str, seed: int) -> Path:
    """The folder of an environment and seed."""
    kind = "".join(c if c.isalnum() else "-" for c in environment.rpartition("/")[2])
    return plan.out / f"{kind}-{seed}"


def _train(plan: Plan, job: Job, start: Path, folder: Path) -> Run:
    from ludus.trainer.train import run_training

    _one_thread()
    run = Run(job.recipe, job.environment, job.seed)
    began = time.process_time()
    try:
        asyncio.run(run_training(_settings(plan, job, start, folder)))
    except LudusError as error:
        run.refused = str(error)
        return run
    run.seconds = time.process_time() - began
    _read(run, folder / "metrics.jsonl")
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return run


def _settings(plan: Plan, job: Job, start: Path, folder: Path) -> TrainConfig:
    from ludus.agent.context import ContextSettings
    from ludus.trainer.config import (
        EvalConfig,
        ModelConfig,
        RolloutConfig,
        RunConfig,
        TrainConfig,
        TrainerConfig,
    )
    from ludus.trainer.recipes.recipe import load_recipe

    world, sampling = world_of(job.environment), load_recipe(job.recipe).sampling
    return TrainConfig(
        env=job.environment,
        recipe=_recipe_file(plan, job.recipe),
        steps=plan.steps,
        seed=job.seed,
        model=ModelConfig(path=str(start), device="cpu"),
        rollout=RolloutConfig(
            tasks_per_step=world.rollouts // sampling.group_size,
            group_size=sampling.group_size,
            max_tokens=world.max_tokens,
            temperature=sampling.temperature,
            window=world.window,
            concurrency=world.rollouts,
        ),
        context=ContextSettings(**world.context),
        trainer=TrainerConfig(lr=world.lr * plan.lr_scale),
        eval=EvalConfig(tasks=plan.eval_tasks, every=plan.eval_every * world.evals),
        run=RunConfig(folder=str(folder), tensorboard=False, episodes_every=0, save_every=0),
    )


def _recipe_file(plan: Plan, recipe: str) -> str:
    """The recipe by name, or a file that starts from it with a size for this scale."""
    if recipe not in OVERRIDES:
        return recipe
    path = plan.out / f"{recipe}-small.toml"
    path.write_text(f'base = "{recipe}"\n{OVERRIDES[recipe]}')
    return str(path)


def _fresh_model(path: Path, environment: str, world: World, seed: int) -> Path:
    from ludus.envs import make_async
    from ludus.trainer.models.tiny import briefing_phrases, write_tiny_policy
    from ludus.wire.address import parse_served

    name, arguments = parse_served(environment)
    phrases = briefing_phrases(make_async(name, **arguments).env.briefing())
    return write_tiny_policy(path, phrases=[*phrases, *world.phrases], seed=seed, **SHAPE)


def _stage(
    world: World, stage: Stage, environment: str, seed: int, model: Path, folder: Path
) -> Path:
    from ludus.agent.context import ContextSettings
    from ludus.trainer.config import ModelConfig, RunConfig, SFTConfig, TrainerConfig
    from ludus.trainer.sft import run_sft

    _one_thread()
    config = SFTConfig(
        env=f"{environment}{'&' if '?' in environment else '?'}{stage.demo}",
        steps=stage.steps,
        batch_size=stage.batch,
        seed=seed,
        window=world.window,
        context=ContextSettings(**world.context),
        model=ModelConfig(path=str(model), device="cpu"),
        trainer=TrainerConfig(lr=world.warm_lr, warmup_steps=20),
        run=RunConfig(folder=str(folder), tensorboard=False),
    )
    return asyncio.run(run_sft(config))


def _read(run: Run, log: Path) -> None:
    """Read the curves off the run's own log."""
    rollouts = world_of(run.environment).rollouts
    tokens, clips, updates = 0.0, list[tuple[float, float]](), list[float]()
    for line in log.read_text().splitlines():
        row = json.loads(line)
        tokens += row.get("survey/tokens", 0.0)
        if "eval/mean" in row:
            run.tokens.append(tokens)
            run.accuracy.append(row["eval/mean"])
        if "episode/tokens" in row:
            tokens += row["episode/tokens"] * row.get("episode/count", rollouts)
            run.lengths.append(row["episode/tokens"])
        if "update/updates" in row:
            updates.append(row["update/updates"])
        if "update/ratio_max" in row:
            run.ratio_min = min(run.ratio_min, row["update/ratio_min"])
            run.ratio_max = max(run.ratio_max, row["update/ratio_max"])
            clips.append((row["update/clip_low"], row["update/clip_high"]))
    run.updates = statistics.fmean(updates) if updates else 0.0
    if clips:
        run.clip_low, run.clip_high = (statistics.fmean(side) for side in zip(*clips, strict=True))


def _key(plan: Plan, job: Job) -> str:
    """Of everything a run depends on; another plan is another run."""
    from ludus.trainer.recipes.recipe import load_recipe
    from ludus.trainer.recipes.resolution import effective

    rules = {key: str(value) for key, value in effective(load_recipe(job.recipe)).items()}
    numbers = {key: value for key, value in asdict(plan).items() if key != "out"}
    world = asdict(world_of(job.environment))
    return _digest(asdict(job), numbers, world, SHAPE, OVERRIDES.get(job.recipe), rules)


def _digest(*parts: object) -> str:
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()


def _kept(mark: Path, key: str):
    """What an earlier invocation left, if it was of the same plan."""
    if not mark.is_file():
        return None
    record = json.loads(mark.read_text())
    return record["value"] if record["key"] == key else None


def _one_thread() -> None:
    import torch

    # two runs at once on two cores beat one run on two threads for a model this small
    torch.set_num_threads(1)
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
