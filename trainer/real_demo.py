"""The demo on released weights: RL alone makes a small instruct model answer as it was asked.

SmolLM2-135M-Instruct is asked short questions about numbers (`ludus/number-quiz-v0`). At first the
model wraps its answers in sentences, most of them wrong. GRPO trains it on rewards alone, without
demonstrations. The same held-out questions are answered greedily before and after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ludus.agent import Episode
from ludus.agent.episodes import read_episodes
from ludus.errors import ConfigError, TrainingFailed
from ludus.estimates import Estimate, mean_over_tasks, wilson

from .config import EvalConfig, ModelConfig, RolloutConfig, RunConfig, TrainConfig, TrainerConfig
from .demo import claim
from .engines.model_paths import locate_model
from .run.progress import ProgressWatcher
from .run.report import write_report
from .train import run_training

ENV = "ludus/number-quiz-v0"
KIND = "right_"
"""Beginning of the metric that names the kind of a question."""
WRITTEN = ("grpo", "report.html")


@dataclass(frozen=True, slots=True)
class RealDemoConfig:
    """The sizes of the demo on released weights."""

    folder: str = "runs/demo-real"
    """Folder to write, overwritten each time; must be missing, empty, or the folder of an earlier
    demo.
    """
    model: str = "smollm2"
    """A released model, or any other model path."""
    seed: int = 0
    steps: int = 36
    tasks_per_step: int = 8
    group_size: int = 8
    held_out_tasks: int = 150
    """Number of held-out questions, at least 2: an interval needs them."""


@dataclass(frozen=True, slots=True)
class RealDemoResult:
    """The measurements and files of a finished demo; all are means over held-out questions, with
    95 % intervals.
    """

    before: Estimate
    """Reward before training."""
    after: Estimate
    gain: Estimate
    """Difference of the rewards, question by question."""
    right_before: Estimate
    """Share of questions answered by the right number and nothing else."""
    right_after: Estimate
    report: Path


@dataclass(frozen=True, slots=True)
class Answered:
    """A held-out question with the answers before and after training."""

    kind: str
    question: str
    before: str
    after: str
    reward_before: float
    reward_after: float


async def run_real_demo(config: RealDemoConfig, console: Console | None = None) -> RealDemoResult:
    """Train, show what has changed, and write the report.

    Raises:
        ConfigError: the folder holds something else, or too few questions are held out.
        MissingExtra: the package with the model is not installed.
        CancelledError: the demo was interrupted; there is nothing to report.
    """
    if config.held_out_tasks < 2:
        raise ConfigError(f"held_out_tasks must be at least 2, got {config.held_out_tasks}")
    out = console or Console()
    folder = Path(config.folder)
    model = locate_model(config.model)  # before anything of an earlier demo is removed
    claim(folder, WRITTEN)
    out.print(f"[bold]1[/bold]  the model: {escape(config.model)}, in {escape(model)}")
    out.print(f"[bold]2[/bold]  GRPO on {ENV}, from rewards alone")
    with ProgressWatcher(config.steps, out) as watcher:
        result = await run_training(training_of(config, model), watcher=watcher)
    if result.interrupted:  # `train` took the cancellation, to save; here it goes on
        raise asyncio.CancelledError
    return conclude(folder, result.folder, out)


def training_of(config: RealDemoConfig, model: str) -> TrainConfig:
    """Return the settings of the demo's training run."""
    return TrainConfig(
        env=ENV,
        recipe="grpo",
        steps=config.steps,
        seed=config.seed,
        model=ModelConfig(path=model),
        rollout=RolloutConfig(
            tasks_per_step=config.tasks_per_step, group_size=config.group_size, max_tokens=12
        ),
        trainer=TrainerConfig(lr=2e-5),
        eval=EvalConfig(tasks=config.held_out_tasks, every=12),
        run=RunConfig(folder=str(Path(config.folder) / "grpo"), save_every=0, keep=1),
    )


def conclude(folder: Path, run: Path, out: Console) -> RealDemoResult:
    """Compare the first and the last evaluation of a run, show the comparison, and write the
    report.

    Raises:
        TrainingFailed: fewer than two questions have a reward in both evaluations.
    """
    files = sorted((run / "episodes").glob("eval-*.jsonl"))
    pairs = answered_twice(read_episodes(files[0]), read_episodes(files[-1]))
    if len(pairs) < 2:
        raise TrainingFailed(f"only {len(pairs)} held-out questions have a reward twice")
    before, after = [one.reward_before for one in pairs], [one.reward_after for one in pairs]
    gains = [late - early for early, late in zip(before, after, strict=True)]
    result = RealDemoResult(
        before=mean_over_tasks(before),
        after=mean_over_tasks(after),
        gain=mean_over_tasks(gains),
        right_before=wilson(before.count(1.0), len(pairs)),
        right_after=wilson(after.count(1.0), len(pairs)),
        report=folder / "report.html",
    )
    measured = {
        "reward before": result.before,
        "reward after": result.after,
        "gain": result.gain,
        "right and nothing else, before": result.right_before,
        "right and nothing else, after": result.right_after,
    }
    written = write_report(
        run,
        title="ludus demo-real",
        lead=(
            f"GRPO on {ENV} from rewards alone, without demonstrations. The figures are means over "
            f"{len(pairs)} held-out questions, answered greedily, with 95 % intervals."
        ),
        facts={
            name: " (".join(one.cells()).replace(" to ", " - ") + ")"
            for name, one in measured.items()
        },
    )
    result.report.write_bytes(written.read_bytes())
    _show(pairs, measured, out)
    shown = "excludes" if result.gain.low > 0 else "does NOT exclude"
    out.print(f"   the interval of the gain {shown} zero\n   report: {result.report}")
    return result


def answered_twice(first: Sequence[Episode], last: Sequence[Episode]) -> list[Answered]:
    """Return the questions that have a reward in both evaluations."""
    late = {episode.task: episode for episode in last}
    found: list[Answered] = []
    for early in first:
        other = late.get(early.task)
        rewards = [one.trajectories[0].verdict.reward for one in (early, other) if one is not None]
        if other is None or None in rewards:
            continue
        metrics = early.trajectories[0].verdict.metrics
        found.append(
            Answered(
                kind=next((name for name in metrics if name.startswith(KIND)), ""),
                question=early.trajectories[0].turns[0].observation[-1].text,
                before=_said(early),
                after=_said(other),
                reward_before=float(rewards[0] or 0.0),
                reward_after=float(rewards[1] or 0.0),
            )
        )
    return found


def _said(episode: Episode) -> str:
    message = episode.trajectories[0].turns[0].message
    return "" if message is None else message.text


def _show(pairs: Sequence[Answered], measured: dict[str, Estimate], out: Console) -> None:
    table = Table("", "", "95% interval", box=None, title_justify="left")
    for name, estimate in measured.items():
        table.add_row(name, *estimate.cells())
    out.print(f"[bold]3[/bold]  {len(pairs)} held-out questions, answered greedily")
    out.print(table)
    episodes = Table("question", "before", "", "after", "", box=None)
    for one in one_of_each(pairs):
        episodes.add_row(
            escape(one.question),
            escape(repr(one.before)),
            f"{one.reward_before:g}",
            escape(repr(one.after)),
            f"{one.reward_after:g}",
        )
    out.print(episodes)


def one_of_each(pairs: Sequence[Answered]) -> list[Answered]:
    """Return the first question of each kind, whatever was answered."""
    found: dict[str, Answered] = {}
    for one in pairs:
        found.setdefault(one.kind, one)
    return list(found.values())
