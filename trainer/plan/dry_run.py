"""The plan of a run: what it would do, what it takes, and what would have no effect.

Everything that a run checks before it spends anything is checked here as well, without a model's
weights, an engine, or a file in the run folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ludus.agent import ChatFormat, Sampling, TokenPolicy, opening_of
from ludus.agent.context import make_context
from ludus.envs import make_async
from ludus.envs.protocol import Briefing
from ludus.errors import ConfigError
from ludus.metrics import read_metrics
from ludus.wire.arguments import parse_served

from ..chat_template import open_chat
from ..config import AsyncConfig, TrainConfig
from ..demonstrations import demonstrate
from ..engines import load_images, load_tokenizer
from ..engines.model_paths import locate_model
from ..engines.models import outline_model
from ..learning.devices import pick_device
from ..learning.precision import slow_precision
from ..ranks.group import place_of
from ..recipes import Algorithm, UpdatePlan, plan_updates
from ..recipes.off_policy import told_correction
from ..rollout import Collector, EnvSource, open_source
from ..rollout.context_check import check_context, row_length
from ..rollout.verifiers import open_verifiers
from ..run.changes import refuse_changes
from ..run.checkpoint import checkpoints, step_of
from ..run.claim import refuse_folder
from ..run.judges import unmeasured
from ..setup import refuse_empty, run_path, settle
from .effects import Circumstances, recipe_effects
from .idle import idle_settings
from .memory import MemoryEstimate, require_fit
from .no_engine import PlannedEngine
from .size import (
    ModelSize,
    checkpoint_bytes,
    checkpoints_kept,
    checkpoints_written,
)

DEMONSTRATIONS = 8
"""Number of demonstrations from which the expected length of an answer is taken."""
PAST_STEPS = 10
"""Number of last steps from which a resumed run takes it."""
SPANS = 256
"""Turns of an episode that neither the environment nor the settings bound."""

Lines = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A plan, as lines under headings."""

    sections: Mapping[str, Lines]
    notes: list[str]
    """What will have no effect or may go wrong, one sentence each."""

    def __str__(self) -> str:
        """Return the plan as text."""
        text: list[str] = []
        wide = max(len(name) for lines in self.sections.values() for name, _ in lines)
        for heading, lines in self.sections.items():
            text += [heading, *(f"  {name:<{wide}}  {value}" for name, value in lines), ""]
        if self.notes:
            text += ["notes", *(f"  - {note}" for note in self.notes), ""]
        return "\n".join(text)


async def make_plan(config: TrainConfig) -> RunPlan:
    """Return the plan of a run; neither its folder nor an engine is touched.

    Raises:
        ConfigError: the run cannot work; the message is that of the run itself.
    """
    config, algorithm = settle(config)
    path = run_path(config)
    refuse_folder(path, resume=config.run.resume)
    found = checkpoints(path / "checkpoints") if config.run.resume else []
    start = found[-1] if found else None
    async with AsyncExitStack() as stack:
        source = open_source(config.env, url=config.env_url, token=config.env_token)
        stack.push_async_callback(source.close)
        config = replace(config, env=await source.named())
        changed = refuse_changes(path, config, algorithm.recipe) if config.run.resume else []
        await refuse_empty(source, {config.split: "split", config.eval.split: "eval.split"})
        verifiers = await open_verifiers(config.reward, stack)
        model_path = locate_model(start or config.model.path)
        tokenizer = load_tokenizer(model_path)
        images = load_images(model_path, tokenizer, max_pixels=config.model.max_image_pixels)
        chat = open_chat(config.model, model_path, tokenizer, images=images)
        outline = outline_model(model_path)
        context = make_context(config.context)
        stack.push_async_callback(context.close)
        policy = TokenPolicy(
            PlannedEngine(_longest_row(config, outline)),
            chat.chat_format,
            Sampling(max_tokens=config.rollout.max_tokens, temperature=config.rollout.temperature),
            window=config.rollout.window or None,
            context=context,
        )
        await check_context(config, Collector(source, policy))
        opening = await _opening(config, source, chat.chat_format)
        updates = plan_updates(
            algorithm,
            groups=config.rollout.tasks_per_step,
            wanted=config.trainer.updates_per_step,
        )
        size = ModelSize.of(outline, config)
        task = _Facts(
            config=config,
            algorithm=algorithm,
            updates=updates,
            first_step=step_of(start) if start else 0,
            window=policy.window,
            opening=opening,
            expected=await _expected(config, path, chat.chat_format, window=policy.window),
            tasks=await source.size(config.split),
            held_out=await source.size(config.eval.split),
            size=size,
            memory=require_fit(
                config,
                outline,
                reference="ref_logp" in algorithm.needs,
                ranks=place.world if (place := place_of()) else 1,
            ),
        )
        sections = {
            "run": _run(task, path),
            "model": _model(task, model_path),
            "a step": _step(task),
            "the recipe": recipe_effects(algorithm, _circumstances(config, updates)),
            "the whole run": _whole(task),
            "memory (estimate)": _memory(task),
        }
        notes = [
            *(f"the run continues with another setting: {one}" for one in changed),
            *updates.notes,
            *([told_correction(algorithm)] if config.overlap.max_staleness else []),
            *idle_settings(config, updates=updates.settings.count),
            *slow_precision(config.model.dtype, pick_device(config.model.device)),
            *unmeasured(verifiers),
            *filter(None, [chat.report.notice()]),
            *_worries(task, path),
        ]
    return RunPlan(sections, notes)


@dataclass(frozen=True, slots=True)
class _Opening:
    tokens: int
    briefing: Briefing


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the lines of a plan are made from."""

    config: TrainConfig
    algorithm: Algorithm
    updates: UpdatePlan
    first_step: int
    window: int
    opening: _Opening
    expected: tuple[float, str] | None
    """Sampled tokens of a rollout, and where the number is from."""
    tasks: int | None
    held_out: int | None
    size: ModelSize
    memory: MemoryEstimate

    @property
    def rollouts(self) -> int:
        return self.config.rollout.tasks_per_step * self.config.rollout.group_size

    @property
    def turns(self) -> int:
        return self.config.rollout.max_turns or self.opening.briefing.max_turns or SPANS

    @property
    def most_tokens(self) -> int:
        """The most sampled tokens of a rollout."""
        most = self.turns * self.config.rollout.max_tokens
        if self.config.context.manager != "none":
            return most
        return min(most, max(0, self.window - self.opening.tokens))


def _longest_row(config: TrainConfig, outline: Any) -> int:
    """Return the most tokens of prompt and answer that the engine would take."""
    longest = int(outline.config.get_text_config().max_position_embeddings)
    if config.engine == "vllm":
        longest = min(longest, config.vllm.max_model_len)
    return min(row_length(config) or longest, longest)


async def _opening(config: TrainConfig, source: EnvSource, chat_format: ChatFormat) -> _Opening:
    """Return the length of the first task's prompt."""
    task = (await source.tasks(config.split, [0]))[0]
    session = await source.open()
    try:
        observation, info = await session.reset(seed=0, options={"task": task.id})
    finally:
        await source.release(session)
    briefing = info["briefing"]
    opening = opening_of(briefing, observation)
    return _Opening(len(chat_format.prompt(opening, briefing.tools)), briefing)


async def _expected(
    config: TrainConfig, path: Path, chat_format: ChatFormat, *, window: int
) -> tuple[float, str] | None:
    """Return the expected number of sampled tokens of a rollout: of the run so far, or of the
    environment's expert; None where neither is known.
    """
    metrics = path / "metrics.jsonl"
    rows = read_metrics(metrics) if config.run.resume and metrics.exists() else []
    past = [row["episode/tokens"] for row in rows if "episode/tokens" in row][-PAST_STEPS:]
    if past:
        return fmean(past), f"mean of the last {len(past)} steps of this run"
    if config.env_url:
        return None
    env_id, arguments = parse_served(config.env)
    session = make_async(env_id, **arguments)
    try:
        lengths = [
            (await demonstrate(session, chat_format, split=config.split, seed=seed))
            .trajectories[0]
            .sampled_tokens
            for seed in range(DEMONSTRATIONS)
        ]
    except ConfigError:  # no expert
        return None
    finally:
        await session.close()
    return fmean(lengths), f"{DEMONSTRATIONS} demonstrations of the environment's expert"


def _circumstances(config: TrainConfig, updates: UpdatePlan) -> Circumstances:
    exact = config.engine == "local" and config.model.dtype == "float32"
    return Circumstances(updates=updates, stale=config.overlap.max_staleness > 0, exact=exact)


def _run(task: _Facts, path: Path) -> Lines:
    config = task.config
    after = f"continues after step {task.first_step}" if config.run.resume else "starts"
    return [
        ("folder", f"{path} ({after}; ends after step {config.steps})"),
        ("environment", config.env + (f" at {config.env_url}" if config.env_url else "")),
        ("recipe", f"{task.algorithm.recipe.name}: {task.algorithm.recipe.summary}"),
    ]


def _model(task: _Facts, model_path: str) -> Lines:
    config, size = task.config, task.size
    trained = "" if size.trained == size.total else f", {size.trained:,} of them trained"
    device = pick_device(config.model.device)
    return [
        ("path", model_path),
        ("parameters", f"{size.total:,}{trained}"),
        ("context", f"a window of {task.window:,} tokens"),
        ("computes in", f"{config.model.dtype} on {device}; engine {config.engine}"),
    ]


def _step(task: _Facts) -> Lines:
    rollout = task.config.rollout
    expected = "unknown before the first step"
    if task.expected is not None:
        one = min(task.expected[0], task.most_tokens)
        expected = f"about {one * task.rollouts:,.0f} ({task.expected[1]})"
    return [
        ("rollouts", f"{rollout.tasks_per_step} tasks x {rollout.group_size} = {task.rollouts}"),
        ("prompt of the first task", f"{task.opening.tokens:,} tokens"),
        (
            "sampled tokens, at most",
            f"{task.rollouts * task.most_tokens:,} ({task.turns} turns of {rollout.max_tokens})",
        ),
        ("sampled tokens, expected", expected),
        ("staleness", staleness_told(task.config.overlap)),
        (
            "updates",
            f"{task.updates.settings.count} ({task.updates.settings.splits} mini-batches x "
            f"{task.updates.settings.epochs} epochs)",
        ),
    ]


def staleness_told(overlap: AsyncConfig) -> str:
    """Describe how old rollouts may be when they are trained.

    >>> staleness_told(AsyncConfig(max_staleness=2, deadline=3, late="mask"))
    'generation runs at most 2 steps ahead; a rollout is trained within 3 steps, or masked'
    """
    if not overlap.max_staleness:
        return "none: rollouts are sampled by the weights that train on them"
    ahead = f"generation runs at most {overlap.max_staleness} steps ahead"
    if not overlap.deadline:
        return f"{ahead}; a single rollout may be older, since only the average is bounded"
    late = {"wait": "and the learner waits", "mask": "or masked", "drop": "or its group dropped"}
    return f"{ahead}; a rollout is trained within {overlap.deadline} steps, {late[overlap.late]}"


def _whole(task: _Facts) -> Lines:
    config = task.config
    left = max(0, config.steps - task.first_step)
    played = left * config.rollout.tasks_per_step
    tasks = "endless" if task.tasks is None else f"{task.tasks:,}"
    passes = "" if not task.tasks else f", {played / task.tasks:.2g} passes over the split"
    evaluations = 2 + ((config.steps - 1) // config.eval.every if config.eval.every else 0)
    episodes = min(config.eval.tasks, task.held_out or config.eval.tasks) * config.eval.samples
    beside = {"no": "training waits", "own": "beside training, one version each"}.get(
        config.eval.beside, "beside training, versions may change meanwhile"
    )
    one = checkpoint_bytes(config, task.size)
    return [
        ("steps and updates", f"{left:,} steps, {left * task.updates.settings.count:,} updates"),
        ("tasks", f"{played:,} of split {config.split!r} ({tasks}){passes}"),
        ("sampled tokens, at most", f"{left * task.rollouts * task.most_tokens:,}"),
        ("evaluations", f"{evaluations} of {episodes} episodes each; {beside}"),
        (
            "checkpoints",
            f"{checkpoints_written(config)} written, {checkpoints_kept(config)} on the disk at "
            "most; "
            f"{_bytes(one)} each, {_bytes(one * checkpoints_kept(config))} in all",
        ),
    ]


def _memory(task: _Facts) -> Lines:
    found = task.memory
    lines = [(name, _bytes(count)) for name, count in found.rows()]
    whose = f" on rank 0 of {found.ranks}" if found.ranks > 1 else ""
    peak = f"{_bytes(found.total)}{whose}; {_bytes(found.free)} are free"
    return [*lines, ("at the peak", peak)]


def _worries(task: _Facts, path: Path) -> list[str]:
    """Return what may go wrong for want of room, and what repeats itself."""
    config, found = task.config, list[str]()
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    room = shutil.disk_usage(there).free
    disk = checkpoint_bytes(config, task.size) * checkpoints_kept(config)
    if disk > room:
        found.append(
            f"disk: checkpoints take about {_bytes(disk)} and {_bytes(room)} are free at "
            f"{str(there)!r}; lower run.keep, or name another run.folder"
        )
    if task.tasks is not None and task.tasks < config.rollout.tasks_per_step:
        found.append(
            f"split {config.split!r} has {task.tasks} tasks, and a step plays "
            f"{config.rollout.tasks_per_step}: tasks repeat within a step"
        )
    if task.held_out is not None and task.held_out < config.eval.tasks:
        found.append(
            f"split {config.eval.split!r} has {task.held_out} tasks, and eval.tasks is "
            f"{config.eval.tasks}: {task.held_out} are played"
        )
    if task.opening.tokens + config.rollout.max_tokens > task.window:
        found.append(
            f"the first task's prompt of {task.opening.tokens} tokens leaves less than "
            f"rollout.max_tokens = {config.rollout.max_tokens} in a window of {task.window}: "
            "answers are cut, or episodes end at once (context_full)"
        )
    return found


def _bytes(count: float) -> str:
    """Write a number of bytes.

    >>> _bytes(1_500_000)
    '1.5 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
