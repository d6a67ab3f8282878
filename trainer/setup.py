"""What a run is made of, put together from its settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ludus.agent import ChatFormat, Engine, Limits, Sampling, TokenPolicy
from ludus.agent.context import make_context
from ludus.agent.parsing import tool_format
from ludus.envs.connect import connect
from ludus.errors import ConfigError
from ludus.rewards import make_verifier

from .checkpoint import checkpoints, load_state, step_of
from .config import RewardConfig, TrainConfig
from .devices import pick_device
from .engines import LocalEngine, load_model, load_tokenizer
from .engines.vllm import start_vllm
from .learner import Learner
from .pool import TaskPool
from .recipes import Algorithm, Recipe, load_recipe, resolve
from .rollout import Collector, EnvSource, Scorer, open_source
from .rollout.scoring import WeightedVerifier
from .run_folder import RunFolder
from .tasks import Tasks, TaskStream
from .tracker import SuccessTracker
from .update import Updater
from .windows import check_context, row_length

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class Parts:
    """Everything the main loop calls."""

    config: TrainConfig
    folder: RunFolder
    source: EnvSource
    tokenizer: Any
    engine: Engine
    learner: Learner
    updater: Updater
    collector: Collector
    evaluator: Collector
    tasks: Tasks
    first_step: int
    """Steps already done: 0, or those of the checkpoint that is gone on from."""


async def assemble(config: TrainConfig) -> Parts:
    """Load, connect and check everything a run needs, before anything is spent.

    Raises:
        ConfigError: something is missing or cannot work together.
    """
    config.require_complete()
    algorithm = resolve(_recipe(config), max_tokens=config.rollout.max_tokens)
    config = _with_recipe(config, algorithm.recipe)
    folder = RunFolder(
        run_path(config), config, resume=config.run.resume, tensorboard=config.run.tensorboard
    )
    found = checkpoints(folder.checkpoints) if config.run.resume else []
    start = found[-1] if found else None
    if config.run.resume and start is None:
        raise ConfigError(
            f"nothing to resume: {str(folder.checkpoints)!r} holds no checkpoint; leave out "
            "--run.resume"
        )
    source = open_source(config.env, url=config.env_url, token=config.env_token)
    await source.tasks(config.split, [0])
    model_path = str(start or config.model.path)
    tokenizer = load_tokenizer(model_path)
    learner = _learner(config, model_path, values="values" in algorithm.needs)
    tasks = _tasks(config, algorithm.recipe, source)
    if start is not None:
        _restore(start, learner, tasks)
    first_step = step_of(start) if start else 0
    engine = await _engine(config, model_path, learner, folder, version=first_step)
    try:
        collector, evaluator = _collectors(config, engine, tokenizer, source)
        await check_context(config, collector)
        tracker = tasks.tracker if isinstance(tasks, TaskPool) else None
        updater = _updater(config, algorithm, learner, tracker)
    except BaseException:
        await engine.close()
        raise
    return Parts(
        config=config,
        folder=folder,
        source=source,
        tokenizer=tokenizer,
        engine=engine,
        learner=learner,
        updater=updater,
        collector=collector,
        evaluator=evaluator,
        tasks=tasks,
        first_step=first_step,
    )


def _recipe(config: TrainConfig) -> Recipe:
    """The recipe, with what the settings say of sampling put over it."""
    given = {"group_size": config.rollout.group_size, "temperature": config.rollout.temperature}
    return load_recipe(
        config.recipe, {"sampling": {name: value for name, value in given.items() if value}}
    )


def _tasks(config: TrainConfig, recipe: Recipe, source: EnvSource) -> Tasks:
    """Tasks in turn, or drawn from a pool by what a tracker knows of them."""
    sampling = recipe.sampling
    if sampling.tracker is None:
        return TaskStream(source, config.split, config.seed)
    tracker = SuccessTracker(sampling.tracker)
    return TaskPool(source, config.split, config.seed, tracker, prioritise=sampling.prioritise)


def _restore(start: Path, learner: Learner, tasks: Tasks) -> None:
    """Go on from what a checkpoint keeps beside the model."""
    state = load_state(start)
    if not {"learner", "tasks"} <= set(state):
        raise ConfigError(
            f"{str(start)!r} was not written by ludus train; start from it with "
            "--model.path instead"
        )
    if set(state["tasks"]) != set(tasks.state()):
        raise ConfigError(
            f"{str(start)!r} was written by a recipe that orders its tasks in another way; start "
            "from it with --model.path instead"
        )
    learner.restore(state["learner"])
    tasks.restore(state["tasks"])


def _with_recipe(config: TrainConfig, recipe: Recipe) -> TrainConfig:
    """The settings with the recipe's own group size and temperature where they name none."""
    sampling = recipe.sampling
    rollout = replace(
        config.rollout, group_size=sampling.group_size, temperature=sampling.temperature
    )
    return replace(config, rollout=rollout)


def run_path(config: TrainConfig) -> Path:
    """Where a run goes."""
    if config.run.folder:
        return Path(config.run.folder)
    env = config.env.partition("?")[0].replace("/", "-")
    return Path("runs") / f"{env}-{Path(config.recipe).stem}"


def _learner(config: TrainConfig, path: str, *, values: bool = False) -> Learner:
    # Weights stay float32: a step of a small learning rate is lost in the rounding of bfloat16.
    model = load_model(path, device=pick_device(config.model.device))
    half = config.model.dtype != "float32"
    return Learner(
        model,
        config.trainer,
        temperature=config.rollout.temperature,
        values=values,
        autocast=DTYPES[config.model.dtype] if half else None,
    )


async def _engine(
    config: TrainConfig, path: str, learner: Learner, folder: RunFolder, *, version: int
) -> Engine:
    if config.engine == "vllm":
        return await _vllm_engine(config, path, learner, folder, version=version)
    device = pick_device(config.model.device)
    model = load_model(path, dtype=DTYPES[config.model.dtype], device=device)
    return LocalEngine(
        model,
        max_rows=config.rollout.concurrency,
        max_length=row_length(config),
        version=version,
    )


async def _vllm_engine(
    config: TrainConfig, path: str, learner: Learner, folder: RunFolder, *, version: int
) -> Engine:
    """A server with the learner's weights, whatever it was started with."""
    engine = await start_vllm(
        config.vllm,
        folder=path,
        model=learner.model,
        dtype=config.model.dtype,
        cpu=pick_device(config.model.device) == "cpu",
        log=folder.path / "vllm.log",
    )
    try:
        await engine.set_weights(learner.weights(), version)
    except BaseException:
        await engine.close()
        raise
    return engine


def _updater(
    config: TrainConfig, algorithm: Algorithm, learner: Learner, tracker: SuccessTracker | None
) -> Updater:
    if algorithm.compares and config.context.manager != "none":
        raise ConfigError(
            f"recipe {algorithm.recipe.name!r}: {algorithm.loss_fn.name} compares the rows "
            f"of a group, but context.manager = {config.context.manager!r} cuts rollouts into "
            "several rows"
        )
    wants_reference = "ref_logp" in algorithm.needs
    reference = _learner(config, config.model.path) if wants_reference else None
    return Updater(
        algorithm,
        learner,
        reference=reference,
        tracker=tracker,
        updates=config.trainer.updates_per_step,
    )


def _collectors(
    config: TrainConfig, engine: Engine, tokenizer: Any, source: EnvSource
) -> tuple[Collector, Collector]:
    """One that explores for training, one that plays as evaluation asks."""
    rollout = config.rollout
    chat_format = ChatFormat(tokenizer, tool_format(config.model.tool_format))
    scorer = Scorer([_verifier(one) for one in config.reward])
    limits = Limits(max_turns=rollout.max_turns, episode_timeout_s=rollout.episode_timeout_s)

    def collector(temperature: float) -> Collector:
        sampling = Sampling(max_tokens=rollout.max_tokens, temperature=temperature)
        policy = TokenPolicy(
            engine,
            chat_format,
            sampling,
            window=rollout.window or None,
            context=make_context(config.context),
        )
        return Collector(
            source,
            policy,
            scorer=scorer,
            limits=limits,
            concurrency=rollout.concurrency,
            retries=rollout.retries,
        )

    return collector(rollout.temperature), collector(config.eval.temperature)


def _verifier(one: RewardConfig) -> WeightedVerifier:
    url, hash_sign, name = one.name.rpartition("#")
    verifier = connect(url).verifier(name) if hash_sign else make_verifier(one.name)
    return WeightedVerifier(one.name, verifier, one.weight, one.timeout_s)
