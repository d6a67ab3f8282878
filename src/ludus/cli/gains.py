"""What RL changed about a policy, as printed by `ludus explain RUN --gains`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from ludus.agent.episodes import read_episodes
from ludus.agent.viewer import RunReader
from ludus.agent.viewer.gains import ExperienceGap, Gains, evaluations_of, experience, gains
from ludus.errors import ConfigError, LudusError

SHOWN = 8
"""Tasks that are listed of each kind."""


class RunGains(msgspec.Struct, frozen=True, kw_only=True):
    """What `ludus explain --gains --json` prints."""

    gains: Gains
    experience: ExperienceGap | None
    weights: dict[str, Any] | None
    """See `ChangedWeights`; None with the reason in `no_weights`."""
    no_weights: str = ""


def measure_gains(folder: Path, before: str, after: str) -> RunGains:
    """Compare a run's first and last evaluation, or two files of episodes.

    Raises:
        ConfigError: there are no two sets of episodes on the same tasks.
    """
    reader = RunReader(folder, folder.name, None)
    reader.refresh()
    pair = evaluations_of(reader)
    if bool(before) is not bool(after):
        raise ConfigError("--before and --after are files of ludus eval --out; name both")
    if before:
        pair = read_episodes(Path(before)), read_episodes(Path(after))
    if pair is None:
        raise ConfigError(
            f"{str(folder)!r} has no two evaluations: train with --eval.every, or name files of "
            "ludus eval --samples 16 --out FILE by --before and --after"
        )
    passing = reader.settings.get("eval", {}).get("passing", 1.0)
    try:
        comparison = gains(*pair, passing=float(passing))
    except ValueError as error:
        raise ConfigError(f"{error}; play the same split and seed") from None
    weights, why = _weights(reader)
    return RunGains(
        gains=comparison, experience=experience(reader), weights=weights, no_weights=why
    )


def _weights(reader: RunReader) -> tuple[dict[str, Any] | None, str]:
    model = reader.settings.get("model", {})
    path = str(model.get("path", "")) if isinstance(model, dict) else ""
    last = sorted((reader.path / "checkpoints").glob("step-*"))
    try:
        from ludus.trainer.models.changed import changed_weights
        from ludus.trainer.models.tiny import find_model
    except ImportError:
        return None, "needs the extra train"
    if not last or not path:
        return None, "the model before or the checkpoint after is not there"
    try:
        first = Path(find_model(path))  # a run stands for its best checkpoint
        if not any(first.glob("*.safetensors")):
            return None, f"the model before, {path!r}, is not in a folder of this machine"
        return msgspec.to_builtins(changed_weights(first, last[-1])), ""
    except LudusError as error:
        return None, str(error)


def show_gains(run_gains: RunGains) -> None:
    """Print what was measured."""
    console = Console(highlight=False, soft_wrap=True)
    comparison = run_gains.gains
    console.print(
        f"{comparison.tasks} tasks, up to {comparison.before_samples} samples of each before and "
        f"{comparison.after_samples} after"
    )
    kinds = {
        "sharpened": comparison.sharpened, "gained": comparison.gained,
        "dulled": comparison.dulled, "lost": comparison.lost,
    }  # fmt: skip
    for name, tasks in kinds.items():
        note = f" ({comparison.by_chance:.1f} expected by chance)" if name == "gained" else ""
        some = ", ".join(tasks[:SHOWN]) + (" ..." if len(tasks) > SHOWN else "")
        console.print(f"  {name:<10} {len(tasks):>4}{note}  {some}", markup=False)
    console.print(f"  always     {comparison.always:>4}\n  never      {comparison.never:>4}")
    table = Table("", "before", "after", "change, 95% interval", box=None)
    for k in sorted(comparison.before_pass.keys() & comparison.after_pass.keys()):
        was, now = comparison.before_pass[k], comparison.after_pass[k]
        table.add_row(f"pass@{k}", f"{was.value:.3f}", f"{now.value:.3f}", "")
    for habit in comparison.habits:
        value, interval = habit.change.cells()
        change = f"{value} ({interval})"
        table.add_row(
            f"{habit.habit} an episode", f"{habit.before:.2f}", f"{habit.after:.2f}", change
        )
    console.print(table)
    if run_gains.experience is not None:
        seen = run_gains.experience
        value, interval = seen.gap.cells()
        console.print(
            f"best experience {seen.best:.3f}, policy {seen.policy:.3f} on {seen.tasks} training "
            f"tasks: {value} ({interval}) was experienced and is not done"
        )
    if run_gains.weights is None:
        console.print(f"changed weights: not known, {run_gains.no_weights}", markup=False)
    else:
        share, rounded = run_gains.weights["share"], run_gains.weights["share_bfloat16"]
        console.print(
            f"{share:.1%} of {run_gains.weights['weights']} weights changed by more than 1e-5 "
            f"({rounded:.1%} in bfloat16), by {run_gains.weights['norm']:.2%} of their norm"
        )
