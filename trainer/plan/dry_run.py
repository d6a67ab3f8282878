"""The plan of a run: what the run would do and take, and which settings have no effect.

Everything that a run checks before it spends anything is checked here as well, without a model's
weights, an engine, or a file in the run folder.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ludus.agent import Generation, Sampling, TokenPolicy
from ludus.agent.context import make_context
from ludus.agent.engine import WeightSource
from ludus.agent.images import PlacedImage
from ludus.agent.templates.choice import OpenedTemplate

from ..config import AsyncConfig, ClusterConfig, TrainConfig
from ..models.checkpoint_folders import checkpoints, step_of
from ..models.devices import chosen_precision, pick_device, slow_precision
from ..models.loading import load_images, load_tokenizer, open_chat, outline_model
from ..models.tiny import find_model
from ..open_engine import check_context, row_length
from ..ranks.group import place_of
from ..recipes.effects import Circumstances, idle_settings, recipe_effects
from ..recipes.resolution import plan_updates, told_correction
from ..rollout.collect import Collector
from ..rollout.mixture import source_of
from ..rollout.scoring import open_verifiers
from ..run.changes import refuse_changes
from ..run.claim import refuse_folder, settled_resume
from ..run.judges import unmeasured
from ..setup import refuse_empty, run_path, settle
from .facts import PlanFacts, expected_tokens, first_prompt
from .memory import (
    ModelSize,
    checkpoint_bytes,
    checkpoints_bytes,
    checkpoints_kept,
    checkpoints_written,
    require_fit,
)

Lines = list[tuple[str, str]]
"""Name and value of each line."""


def run_lines(facts: PlanFacts, path: Path) -> Lines:
    """Say where the run is, and what the run plays."""
    config = facts.config
    environments = config.env or ", ".join(
        f"{each.env} ({each.weight:g})" for each in config.environment
    )
    after = f"continues after step {facts.first_step}" if config.run.resume else "starts"
    return [
        ("folder", f"{path} ({after}; ends after step {config.steps})"),
        ("environment", environments + (f" at {config.env_url}" if config.env_url else "")),
        ("recipe", f"{facts.algorithm.recipe.name}: {facts.algorithm.recipe.summary}"),
    ]


def model_lines(facts: PlanFacts, model_path: str) -> Lines:
    """Describe the model."""
    config, size = facts.config, facts.size
    trained = "" if size.trained == size.total else f", {size.trained:,} of them trained"
    device = pick_device(config.model.device)
    return [
        ("path", model_path),
        ("parameters", f"{size.total:,}{trained}"),
        ("context", f"a window of {facts.window:,} tokens"),
        ("computes in", f"{config.model.dtype} on {device}; engine {config.engine}"),
    ]


def step_lines(facts: PlanFacts) -> Lines:
    """Describe a step: rollouts, tokens, staleness, updates."""
    rollout = facts.config.rollout
    expected = "unknown before the first step"
    if facts.expected is not None:
        per_rollout = min(facts.expected[0], facts.most_tokens)
        expected = f"about {per_rollout * facts.rollouts:,.0f} ({facts.expected[1]})"
    more = facts.most_rollouts - facts.rollouts
    refill = f", and up to {more} more in the place of dropped ones" if more else ""
    groups = f"{rollout.tasks_per_step} tasks x {rollout.group_size} = {facts.rollouts}"
    return [
        ("rollouts", groups + refill),
        ("prompt of the first task", f"{facts.opening.tokens:,} tokens"),
        (
            "sampled tokens, at most",
            f"{facts.most_rollouts * facts.most_tokens:,} (at most {facts.turns} turns of "
            f"{rollout.max_tokens} in a rollout)",
        ),
        ("sampled tokens, expected", expected),
        ("staleness", staleness_told(facts.config.overlap)),
        (
            "updates",
            f"{facts.updates.settings.count} ({facts.updates.settings.splits} mini-batches x "
            f"{facts.updates.settings.epochs} epochs)",
        ),
    ]


def staleness_told(overlap: AsyncConfig) -> str:
    """Describe how old rollouts may be at training.

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


def cluster_lines(cluster: ClusterConfig) -> Lines:
    """Say what a run asks of Ray: the table `[cluster]`, and its sum.

    >>> cluster_lines(ClusterConfig(learner_ranks=2, gpus_of_rank=0.5))
    [('learner_ranks', '2, each 1 CPU and 0.5 GPU'), ('in all', '2 CPU and 1 GPU')]
    """
    server = (cluster.cpus_of_server, 0.0)
    each = {
        "learner_ranks": (cluster.cpus_of_rank, cluster.gpus_of_rank),
        "environments": server,
        "rewards": server,
        "engines": (cluster.cpus_of_engine, cluster.gpus_of_engine),
    }
    counts = {name: getattr(cluster, name) for name in each if getattr(cluster, name)}
    sums = [sum(count * each[name][kind] for name, count in counts.items()) for kind in (0, 1)]
    lines = [(name, f"{count}, each {_resources(*each[name])}") for name, count in counts.items()]
    return [*lines, ("in all", _resources(*sums))]


def _resources(cpus: float, gpus: float) -> str:
    return f"{cpus:g} CPU" + (f" and {gpus:g} GPU" if gpus else "")


def whole_lines(facts: PlanFacts) -> Lines:
    """Describe the whole run: steps, tasks, evaluations, checkpoints."""
    config = facts.config
    steps = max(0, config.steps - facts.first_step)
    played = steps * config.rollout.tasks_per_step
    tasks = "endless" if facts.tasks is None else f"{facts.tasks:,}"
    passes = "" if not facts.tasks else f", {played / facts.tasks:.2g} passes over the split"
    evaluations = 2 + ((config.steps - 1) // config.eval.every if config.eval.every else 0)
    episodes = min(config.eval.tasks, facts.held_out or config.eval.tasks) * config.eval.samples
    beside = {"no": "training waits", "own": "beside training, one version each"}.get(
        config.eval.beside, "beside training, versions may change meanwhile"
    )
    size = checkpoint_bytes(config, facts.size)
    on_disk = checkpoints_bytes(config, facts.size, facts.memory.ranks)
    return [
        ("steps and updates", f"{steps:,} steps, {steps * facts.updates.settings.count:,} updates"),
        ("tasks", f"{played:,} of split {config.split!r} ({tasks}){passes}"),
        ("sampled tokens, at most", f"{steps * facts.most_rollouts * facts.most_tokens:,}"),
        ("evaluations", f"{evaluations} of {episodes} episodes each; {beside}"),
        (
            "checkpoints",
            f"{checkpoints_written(config)} written, {checkpoints_kept(config)} on the disk at "
            "most; "
            f"{sized(size)} each, {sized(on_disk)} in all",
        ),
    ]


def memory_lines(facts: PlanFacts) -> Lines:
    """List what the run holds in memory."""
    memory = facts.memory
    if facts.config.learner:
        return [("weights and passes", f"elsewhere, at {facts.config.learner}")]
    lines = [(name, sized(count)) for name, count in memory.rows()]
    whose = f" on rank 0 of {memory.ranks}" if memory.ranks > 1 else ""
    peak = f"{sized(memory.total)}{whose}; {sized(memory.free)} are free"
    return [*lines, ("at the peak", peak)]


def worries(facts: PlanFacts, path: Path) -> list[str]:
    """Return what may go wrong for want of room, and what repeats itself."""
    config, concerns = facts.config, list[str]()
    # The run's folder need not exist yet; its disk is that of the nearest folder above it.
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    room = shutil.disk_usage(existing).free
    disk = checkpoints_bytes(config, facts.size, facts.memory.ranks)
    if disk > room:
        concerns.append(
            f"disk: checkpoints take about {sized(disk)} and {sized(room)} are free at "
            f"{str(existing)!r}; lower run.keep, or name another run.folder"
        )
    if facts.tasks is not None and facts.tasks < config.rollout.tasks_per_step:
        concerns.append(
            f"split {config.split!r} has {facts.tasks} tasks, and a step plays "
            f"{config.rollout.tasks_per_step}: tasks repeat within a step"
        )
    if facts.held_out is not None and facts.held_out < config.eval.tasks:
        concerns.append(
            f"split {config.eval.split!r} has {facts.held_out} tasks, and eval.tasks is "
            f"{config.eval.tasks}: {facts.held_out} are played"
        )
    if facts.opening.tokens + config.rollout.max_tokens > facts.window:
        concerns.append(
            f"the first task's prompt of {facts.opening.tokens} tokens leaves less than "
            f"rollout.max_tokens = {config.rollout.max_tokens} in a window of {facts.window}: "
            "answers are cut, or episodes end at once (context_full)"
        )
    return concerns


def sized(count: float) -> str:
    """Write a number of bytes.

    >>> sized(1_500_000)
    '1.5 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


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
    """Return the plan of a run; neither the run folder nor an engine is touched.

    Raises:
        ConfigError: the run cannot work; the message is that of the run itself.
    """
    asked = config.model.dtype
    path = run_path(config)
    config, algorithm = settle(replace(config, run=settled_resume(config.run, path)))
    refuse_folder(path, resume=config.run.resume is True)
    kept = checkpoints(path / "checkpoints") if config.run.resume else []
    start = kept[-1] if kept else None
    async with AsyncExitStack() as stack:
        source = source_of(config)
        stack.push_async_callback(source.close)
        config = replace(config, env=await source.named())
        changed = refuse_changes(path, config, algorithm.recipe) if config.run.resume else []
        await refuse_empty(source, {config.split: "split", config.eval.split: "eval.split"})
        verifiers = await open_verifiers(config.reward, stack)
        model_path = find_model(start or config.model.path)
        outline = outline_model(model_path)
        chat, policy = _policy_of(config, model_path, outline, stack)
        await check_context(config, Collector(source, policy))
        opening = await first_prompt(config, source, chat.chat_format)
        updates = plan_updates(
            algorithm, groups=config.rollout.tasks_per_step, wanted=config.trainer.updates_per_step
        )
        size = ModelSize.of(outline, config)
        facts = PlanFacts(
            config=config,
            algorithm=algorithm,
            updates=updates,
            first_step=step_of(start) if start else 0,
            window=policy.window,
            opening=opening,
            expected=await expected_tokens(config, path, chat.chat_format),
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
        sections = _sections(facts, path, model_path)
        notes = [
            *(f"the run continues with another setting: {change}" for change in changed),
            *updates.notes,
            *([told_correction(algorithm)] if config.overlap.max_staleness else []),
            *idle_settings(config, updates=updates.settings.count),
            *slow_precision(config.model.dtype, pick_device(config.model.device)),
            *chosen_precision(asked, config.model.dtype),
            *unmeasured(verifiers),
            *not_installed(config),
            *filter(None, [chat.report.notice()]),
            *worries(facts, path),
        ]
    return RunPlan(sections, notes)


def not_installed(config: TrainConfig) -> Iterator[str]:
    """Yield a note for each package that the run needs and this machine lacks.

    These are notes, not errors, since a plan may be made for another machine.
    """
    starts = config.engine == "vllm" and not config.vllm.url and not config.vllm.python
    wanted = {"vllm": "--engine vllm"} if starts else {}
    wanted |= {name: f"run.trackers = {name}" for name in config.run.trackers}
    for package, setting in wanted.items():
        if importlib.util.find_spec(package) is None:
            yield (
                f"{setting} needs {package}, which is not installed here, so this machine would "
                f"refuse the run: pip install 'ludus-rl[{package}]'"
            )


def _policy_of(
    config: TrainConfig, model_path: str, outline: Any, stack: AsyncExitStack
) -> tuple[OpenedTemplate, TokenPolicy]:
    """Return the chat format of the model, and the policy of the run without an engine."""
    tokenizer = load_tokenizer(model_path)
    images = load_images(model_path, tokenizer, max_pixels=config.model.max_image_pixels)
    chat = open_chat(config.model, model_path, tokenizer, images=images)
    context = make_context(config.context)
    stack.push_async_callback(context.close)
    longest = int(outline.config.get_text_config().max_position_embeddings)
    if config.engine == "vllm":
        longest = min(longest, config.vllm.max_model_len)
    policy = TokenPolicy(
        PlannedEngine(min(row_length(config) or longest, longest)),
        chat.chat_format,
        Sampling(max_tokens=config.rollout.max_tokens, temperature=config.rollout.temperature),
        window=config.rollout.window or None,
        context=context,
    )
    return chat, policy


def _sections(facts: PlanFacts, path: Path, model_path: str) -> dict[str, Lines]:
    """Return the lines of a plan by section title."""
    config = facts.config
    circumstances = Circumstances(
        updates=facts.updates,
        stale=config.overlap.max_staleness > 0,
        exact=config.engine == "local" and config.model.dtype == "float32",
    )
    asked = (
        {"asked of the cluster": cluster_lines(config.cluster)} if config.cluster.address else {}
    )
    return {
        "run": run_lines(facts, path),
        "model": model_lines(facts, model_path),
        "a step": step_lines(facts),
        "the recipe": recipe_effects(facts.algorithm, circumstances),
        "the whole run": whole_lines(facts),
        "memory (estimate)": memory_lines(facts),
        **asked,
    }


class PlannedEngine:
    """The engine of a plan: everything but its length is refused.

    Args:
        max_length: the most tokens of prompt and answer together.
    """

    version = 0

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        """Raise, since a plan samples nothing."""
        _refuse()

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        """Raise, since a plan has no weights."""
        _refuse()

    async def set_weights(self, source: WeightSource, version: int) -> None:
        """Raise, since a plan has no weights."""
        _refuse()

    async def pause(self) -> None:
        """Return at once, since nothing is being sampled."""

    async def resume(self) -> None:
        """Return at once, since nothing was paused."""

    async def abort(self) -> None:
        """Return at once, since no request is running."""

    async def close(self) -> None:
        """Return at once, since no model was loaded."""


def _refuse() -> NoReturn:
    raise AssertionError("a plan samples nothing and has no weights")
