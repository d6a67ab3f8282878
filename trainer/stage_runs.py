"""Runs of several stages: maths then code, demonstrations then rewards, play then learn.

    [[stage]]
    name = "warm"
    kind = "sft"
    steps = 50

    [[stage]]
    name = "reward"
    steps = 100

Stages share the tokens of the run (`tokens`), where these have a bound: each takes what those
before it have left, and one for which nothing is left is not run.

A stage is a run of its own, in a folder below the run's, `1-warm`, `2-reward`; it starts from the
newest checkpoint of the stage before, with a fresh optimizer and schedules of its own. A stage that
has ended leaves `ended.json`; a run that is resumed goes on in the first stage without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from ludus.agent import EpisodeLimits, Sampling
from ludus.agent.context import make_context
from ludus.agent.episodes import write_episodes
from ludus.agent.evaluation import evaluate
from ludus.config import as_table, to_toml
from ludus.envs import make_async
from ludus.errors import ConfigError
from ludus.metrics import replace_file
from ludus.wire.address import parse_served

from .config import SFTConfig, TrainConfig
from .engines.local_policy import local_policy
from .findings.history import rows_of
from .models.checkpoint_folders import checkpoints, newest_checkpoint, step_of
from .ranks.launch import current_ranks
from .recipes.recipe import load_policies, load_recipe
from .run.metrics import tokens_of
from .settings.parts import StageConfig
from .sft import run_sft

ENDED = "ended.json"
"""Says that a stage is over."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The files and last step of a run, or of the last of several stages."""

    folder: Path
    checkpoint: Path
    step: int
    interrupted: bool
    stopped: str = ""
    """Why the run ended before its last step; empty if nothing ended it early."""
    summary: tuple[str, ...] = ()
    """How the run stands and why, in three lines at most."""


class StageEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage has left."""

    checkpoint: str
    step: int
    stopped: str = ""
    tokens: int = 0
    """Tokens of the stage; see `TrainConfig.tokens`."""


Train = Callable[[TrainConfig], Awaitable[TrainResult]]


async def run_stages(config: TrainConfig, train: Train) -> TrainResult:
    """Train the stages of a run one after the other; returns the result of the last that was run.

    Args:
        config: the settings, with stages.
        train: trains a stage that learns from rewards.

    Raises:
        ConfigError: a stage cannot be, or the run has several ranks.
    """
    if current_ranks():
        raise ConfigError(
            "[[stage]] runs in one process; under torchrun start the stages one by one, each with "
            "the checkpoint of the one before as --model.path"
        )
    folder = stages_folder(config)
    folder.mkdir(parents=True, exist_ok=True)
    if not config.run.resume and any(folder.glob(f"*/{ENDED}")):
        raise ConfigError(
            f"{str(folder)!r} holds stages that have ended; go on by --run.resume, or name another "
            "folder by --run.folder"
        )
    replace_file(folder / "config.toml", to_toml(as_table(config)).encode())
    result: TrainResult | None = None
    model, tokens = config.model.path, 0
    for number, stage in enumerate(config.stage):
        place = folder / f"{number + 1}-{stage.name}"
        if config.tokens and tokens >= config.tokens:
            break
        end_path = place / ENDED
        ended = (
            msgspec.json.decode(end_path.read_bytes(), type=StageEnd) if end_path.exists() else None
        )
        if ended is None:
            # A resumed run goes on in a stage that has begun, and begins the next.
            resume: Literal["auto", False] = "auto" if config.run.resume else False
            run = replace(config.run, folder=str(place), resume=resume)
            left = config.tokens - tokens if config.tokens else 0
            begun = replace(config, model=replace(config.model, path=model), run=run, tokens=left)
            result = await KINDS[stage.kind](begun, number, train)
            if result.interrupted:
                return result
            ended = StageEnd(
                checkpoint=str(result.checkpoint),
                step=result.step,
                stopped=result.stopped,
                tokens=round(sum(tokens_of(row) for row in rows_of(place))),
            )
            replace_file(place / ENDED, msgspec.json.encode(ended))
        else:
            result = TrainResult(place, Path(ended.checkpoint), ended.step, False, ended.stopped)
        model, tokens = ended.checkpoint, tokens + ended.tokens
    assert result is not None, "refused without stages"
    return result


def stages_folder(config: TrainConfig) -> Path:
    """Return the folder of a run with stages."""
    names = "-".join(stage.name for stage in config.stage)
    return Path(config.run.folder) if config.run.folder else Path("runs") / f"stages-{names}"


def least_bound(*bounds: int) -> int:
    """Return the smallest bound; 0 stands for none.

    >>> least_bound(0, 300), least_bound(200, 300), least_bound(0, 0)
    (300, 200, 0)
    """
    return min(filter(None, bounds), default=0)


def rl_stage(config: TrainConfig, number: int) -> TrainConfig:
    """Return the settings of a stage that learns from rewards."""
    stage = config.stage[number]
    rollout = replace(
        config.rollout,
        tasks_per_step=stage.tasks_per_step or config.rollout.tasks_per_step,
        group_size=stage.group_size or config.rollout.group_size,
        max_tokens=stage.max_tokens or config.rollout.max_tokens,
    )
    stop_at = config.eval.stop_at if stage.until is None else stage.until
    return replace(
        config,
        stage=[],
        env=stage.env or config.env,
        env_url=stage.env_url or config.env_url,
        environment=[] if stage.env else config.environment,
        split=stage.split or config.split,
        recipe=stage.recipe or config.recipe,
        sampling=stage.sampling or config.sampling,
        steps=stage.steps,
        tokens=least_bound(config.tokens, stage.tokens),
        seed=config.seed + number,  # another order of tasks, where two stages share them
        rollout=rollout,
        trainer=replace(config.trainer, lr=stage.lr or config.trainer.lr),
        eval=replace(config.eval, stop_at=stop_at),
    )


def sft_stage(config: TrainConfig, number: int) -> SFTConfig:
    """Return the settings of a stage that learns from demonstrations, or from data.

    Raises:
        ConfigError: the stage names no environment, or one on a server, and no data.
    """
    stage: StageConfig = config.stage[number]
    env = stage.env or config.env
    data = stage_data(config, number)
    if not data and (not env or stage.env_url or (config.env_url and not stage.env)):
        raise ConfigError(
            f"stage {stage.name!r}: demonstrations are played in this process: name one "
            "environment by env, without env_url"
        )
    return SFTConfig(
        env="" if data else env,
        data=data,
        min_reward=stage.min_reward,
        epochs=0.0,
        steps=stage.steps,
        tokens=least_bound(config.tokens, stage.tokens),
        stop_loss=stage.until or 0.0,
        batch_size=stage.batch_size,
        seed=config.seed + number,
        split=stage.split or config.split,
        window=config.rollout.window,
        model=config.model,
        context=config.context,
        trainer=replace(
            config.trainer,
            lr=stage.lr or config.trainer.lr,
            updates_per_step=0,
            max_kl=0.0,
            reference_every=0,
        ),
        run=config.run,
    )


def stage_data(config: TrainConfig, number: int) -> str:
    """Return what a stage learns from; the name of an earlier stage stands for its folder."""
    name = config.stage[number].data
    for place, earlier in enumerate(config.stage[:number]):
        if earlier.name == name:
            return str(stages_folder_of(config) / f"{place + 1}-{name}")
    return name


def stages_folder_of(config: TrainConfig) -> Path:
    """Return the folder of a run with stages, from the settings of a stage."""
    return Path(config.run.folder).parent


async def _warm_stage(config: TrainConfig, number: int, train: Train) -> TrainResult:
    settings = sft_stage(config, number)
    folder = Path(settings.run.folder)
    try:
        checkpoint, interrupted = await run_sft(settings), False
    except asyncio.CancelledError:
        if not checkpoints(folder / "checkpoints"):
            raise
        checkpoint, interrupted = newest_checkpoint(folder / "checkpoints"), True
    step = step_of(checkpoint)
    early = "until or tokens were reached"
    stopped = "" if interrupted or step == settings.steps else early
    return TrainResult(folder, checkpoint, step, interrupted, stopped)


async def _play_stage(config: TrainConfig, number: int, train: Train) -> TrainResult:
    """Play the environment with the policy, and keep every episode; a stage that is cut is played
    again.

    Raises:
        ConfigError: the settings are of a run whose episodes more than the environment rewards.
    """
    settings = rl_stage(config, number)
    beyond = {"env_url": settings.env_url, "environment": settings.environment,
              "reward": settings.reward}  # fmt: skip
    if named := [name for name, value in beyond.items() if value]:
        raise ConfigError(
            f"stage {config.stage[number].name!r}: kind play plays one environment in this "
            f"process, by its own reward; {named[0]} is set. Play with kind rl instead, whose "
            "episodes run.episodes_every keeps"
        )
    rollout, folder = settings.rollout, Path(config.run.folder)
    policies = load_policies(settings.sampling, settings.recipe)
    sampling = load_recipe(settings.recipe, policies).sampling
    env_id, arguments = parse_served(settings.env)
    context = make_context(settings.context)
    try:
        async with local_policy(
            settings.model,
            Sampling(
                max_tokens=rollout.max_tokens,
                temperature=rollout.temperature or sampling.temperature,
            ),
            context=context,
            window=rollout.window or None,
            max_rows=rollout.concurrency,
        ) as policy:
            episodes = await evaluate(
                lambda: make_async(env_id, **arguments),
                lambda _: policy,
                split=settings.split,
                tasks=settings.steps * rollout.tasks_per_step,
                samples=rollout.group_size or sampling.group_size,
                concurrency=rollout.concurrency,
                seed=settings.seed,
                limits=EpisodeLimits(
                    max_turns=rollout.max_turns, episode_timeout_s=rollout.episode_timeout_s
                ),
            )
    finally:
        await context.close()
    (folder / "episodes").mkdir(parents=True, exist_ok=True)
    write_episodes(folder / "episodes" / "step-000001.jsonl", episodes)
    turns = [turn for each in episodes for part in each.trajectories for turn in part.turns]
    row = {"step": 1, "tokens": sum(len(turn.out_ids) for turn in turns)}
    replace_file(folder / "metrics.jsonl", msgspec.json.encode(row) + b"\n")
    return TrainResult(folder, Path(config.model.path), settings.steps, interrupted=False)


Stage = Callable[[TrainConfig, int, Train], Awaitable[TrainResult]]
KINDS: dict[str, Stage] = {
    "rl": lambda config, number, train: train(rl_stage(config, number)),
    "sft": _warm_stage,
    "play": _play_stage,
}
"""What runs a stage of each kind."""
