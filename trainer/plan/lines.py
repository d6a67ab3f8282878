"""The lines of a plan, section by section."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..config import AsyncConfig
from ..models.devices import pick_device
from .facts import PlanFacts
from .size import checkpoint_bytes, checkpoints_kept, checkpoints_written

Lines = list[tuple[str, str]]
"""Name and value of each line."""


def run_lines(facts: PlanFacts, path: Path) -> Lines:
    """Say where the run is, and what it plays."""
    config = facts.config
    after = f"continues after step {facts.first_step}" if config.run.resume else "starts"
    return [
        ("folder", f"{path} ({after}; ends after step {config.steps})"),
        ("environment", config.env + (f" at {config.env_url}" if config.env_url else "")),
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
    return [
        ("steps and updates", f"{steps:,} steps, {steps * facts.updates.settings.count:,} updates"),
        ("tasks", f"{played:,} of split {config.split!r} ({tasks}){passes}"),
        ("sampled tokens, at most", f"{steps * facts.most_rollouts * facts.most_tokens:,}"),
        ("evaluations", f"{evaluations} of {episodes} episodes each; {beside}"),
        (
            "checkpoints",
            f"{checkpoints_written(config)} written, {checkpoints_kept(config)} on the disk at "
            "most; "
            f"{_bytes(size)} each, {_bytes(size * checkpoints_kept(config))} in all",
        ),
    ]


def memory_lines(facts: PlanFacts) -> Lines:
    """List what the run holds in memory."""
    memory = facts.memory
    lines = [(name, _bytes(count)) for name, count in memory.rows()]
    whose = f" on rank 0 of {memory.ranks}" if memory.ranks > 1 else ""
    peak = f"{_bytes(memory.total)}{whose}; {_bytes(memory.free)} are free"
    return [*lines, ("at the peak", peak)]


def worries(facts: PlanFacts, path: Path) -> list[str]:
    """Return what may go wrong for want of room, and what repeats itself."""
    config, concerns = facts.config, list[str]()
    # The run's folder need not exist yet; its disk is that of the nearest folder above it.
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    room = shutil.disk_usage(existing).free
    disk = checkpoint_bytes(config, facts.size) * checkpoints_kept(config)
    if disk > room:
        concerns.append(
            f"disk: checkpoints take about {_bytes(disk)} and {_bytes(room)} are free at "
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
