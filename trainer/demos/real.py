"""The demo on released weights: RL makes a small instruct model answer as it was asked, or use a
tool as it should.

- `quiz`: SmolLM2-135M-Instruct is asked short questions about numbers (`ludus/number-quiz-v0`). At
  first the model wraps its answers in sentences, most of them wrong. Training is on rewards alone,
  without demonstrations.
- `calculator`: the model works out expressions with a tool (`ludus/arithmetic-v0`). It never calls
  a tool by itself, so that a short warm start shows it how. The demonstrator of the warm start
  mistakes the first operator for another, and RL removes that fault.

The same held-out questions are answered greedily before and after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ludus.agent import Episode
from ludus.agent.episodes import read_episodes
from ludus.agent.viewer.page import write_report
from ludus.errors import ConfigError, TrainingFailed
from ludus.estimates import Estimate, mean_over_tasks, wilson

from ..config import (
    EvalConfig,
    LoraConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    SFTConfig,
    TrainConfig,
    TrainerConfig,
)
from ..models.tiny import find_model
from ..run.journal import ProgressWatcher, sft_progress
from ..settings.demos import RealDemoConfig
from ..sft import run_sft
from ..train import run_training
from .calculator import FAULT_IN_WORDS, TASKS as EXPRESSIONS, claim

KIND = "right_"
"""Beginning of the metric that names the kind of a question."""
WRITTEN = ("warm-start", "rl", "report.html")
RECIPE = "dr_grpo"
"""Dr. GRPO does not divide rewards by the group's standard deviation. Where all answers of a group
are wrong, that division makes the difference of 0.05 between a number alone and a number in a
sentence as important as the right answer of another group, and the policy settles on short wrong
numbers.
"""

LORA_RATE = 20
"""Learning rate of an adapter over that of all weights. An adapter's matrices are small and begin
at a product of zero, so that a rate for whole weights would hardly move the model. Of 5, 10 and 20
the last learned most (docs/training.md).
"""


@dataclass(frozen=True, slots=True)
class RealDemoTask:
    """What a demo trains, with the settings that were found for SmolLM2-135M-Instruct."""

    env: str
    """The environment, with its arguments."""
    steps: int
    """Number of training steps."""
    group_size: int
    """Number of rollouts of each question in a step."""
    max_tokens: int
    """The most tokens of a turn."""
    lr: float
    """The learning rate of the reinforcement learning."""
    faulty: str = ""
    """Further arguments of the environment, whose demonstrator teaches the warm start. Without them
    there is no warm start.
    """
    warm_start_steps: int = 0
    """Number of steps of the warm start, with eight demonstrations each."""


REAL_DEMO_TASKS: dict[str, RealDemoTask] = {
    "quiz": RealDemoTask(
        env="ludus/number-quiz-v0", steps=24, group_size=16, max_tokens=12, lr=2e-5
    ),
    "calculator": RealDemoTask(
        env=f"ludus/arithmetic-v0?{EXPRESSIONS}",
        steps=15,
        group_size=8,
        max_tokens=40,
        lr=1e-5,
        faulty="&demo_fault=wrong-operator&demo_fault_rate=0.85",
        warm_start_steps=8,
    ),
}


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
    model = find_model(config.model)  # before anything of an earlier demo is removed
    claim(folder, WRITTEN)
    task = chosen(config)
    out.print(f"[bold]1[/bold]  the model: {escape(config.model)}, in {escape(model)}")
    if task.warm_start_steps:
        out.print(
            f"   warm start: {task.warm_start_steps} steps; the demonstrator {FAULT_IN_WORDS}"
        )
        with sft_progress(out) as progress:
            model = str(await run_sft(warm_start_of(config, model), progress=progress))
    out.print(f"[bold]2[/bold]  {RECIPE} on {escape(task.env)}, from rewards alone")
    with ProgressWatcher(task.steps, out) as watcher:
        result = await run_training(training_of(config, model), watcher=watcher)
    # A cancelled `run_training` saves the run and returns. The cancellation is raised again here,
    # because nothing can be reported about an interrupted demo.
    if result.interrupted:
        raise asyncio.CancelledError
    start = f", after a warm start whose demonstrator {FAULT_IN_WORDS}" if task.faulty else ""
    lead = f"{RECIPE} on {task.env}, from rewards alone{start}."
    return conclude(folder, result.folder, out, lead=lead)


def chosen(config: RealDemoConfig) -> RealDemoTask:
    """Return what the demo trains, with the sizes that the settings give in place of the task's.

    Raises:
        ConfigError: the task has no warm start, but steps for it are given.
    """
    task = REAL_DEMO_TASKS[config.task]
    if config.warm_start_steps and not task.faulty:
        raise ConfigError(
            f"the task {config.task!r} is learned from rewards alone, but warm_start_steps is "
            f"{config.warm_start_steps}; leave it out"
        )
    return replace(
        task,
        steps=config.steps or task.steps,
        group_size=config.group_size or task.group_size,
        warm_start_steps=config.warm_start_steps or task.warm_start_steps,
    )


def warm_start_of(config: RealDemoConfig, model: str) -> SFTConfig:
    """Return the settings of the demo's warm start."""
    task = chosen(config)
    return SFTConfig(
        env=f"{task.env}{task.faulty}",
        steps=task.warm_start_steps,
        batch_size=8,
        seed=config.seed,
        model=ModelConfig(path=model),
        trainer=TrainerConfig(lr=5e-5, warmup_steps=10),
        run=RunConfig(folder=str(Path(config.folder) / "warm-start")),
    )


def training_of(config: RealDemoConfig, model: str) -> TrainConfig:
    """Return the settings of the demo's training run."""
    task = chosen(config)
    return TrainConfig(
        env=task.env,
        recipe=RECIPE,
        steps=task.steps,
        seed=config.seed,
        model=ModelConfig(path=model),
        rollout=RolloutConfig(
            tasks_per_step=config.tasks_per_step,
            group_size=task.group_size,
            max_tokens=task.max_tokens,
        ),
        trainer=TrainerConfig(
            lr=task.lr * (LORA_RATE if config.lora_rank else 1),
            updates_per_step=1,
            lora=LoraConfig(rank=config.lora_rank),
            checkpoint_layers=bool(config.lora_rank),
        ),
        eval=EvalConfig(tasks=config.held_out_tasks, every=max(1, task.steps // 3)),
        run=RunConfig(folder=str(Path(config.folder) / "rl"), save_every=0, keep=1),
    )


def conclude(folder: Path, run: Path, out: Console, *, lead: str) -> RealDemoResult:
    """Compare the first and the last evaluation of a run, show the comparison, and write the
    report, which begins with the sentence `lead`.

    Raises:
        TrainingFailed: fewer than two questions have a reward in both evaluations.
    """
    files = sorted((run / "episodes").glob("eval-*.jsonl"))
    pairs = answered_twice(read_episodes(files[0]), read_episodes(files[-1]))
    if len(pairs) < 2:
        raise TrainingFailed(
            f"only {len(pairs)} held-out questions have a reward both before and after training; a "
            "comparison needs two"
        )
    before = [answered.reward_before for answered in pairs]
    after = [answered.reward_after for answered in pairs]
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
            f"{lead} The figures are means over "
            f"{len(pairs)} held-out questions, answered greedily, with 95 % intervals."
        ),
        facts={
            name: " (".join(estimate.cells()).replace(" to ", " - ") + ")"
            for name, estimate in measured.items()
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
    answered: list[Answered] = []
    for early in first:
        later = late.get(early.task)
        rewards = [
            episode.trajectories[0].verdict.reward
            for episode in (early, later)
            if episode is not None
        ]
        if later is None or None in rewards:
            continue
        metrics = early.trajectories[0].verdict.metrics
        answered.append(
            Answered(
                kind=next((name for name in metrics if name.startswith(KIND)), ""),
                question=early.trajectories[0].turns[0].observation[-1].text,
                before=_spoken(early),
                after=_spoken(later),
                reward_before=float(rewards[0] or 0.0),
                reward_after=float(rewards[1] or 0.0),
            )
        )
    return answered


def _spoken(episode: Episode) -> str:
    """Return what the policy wrote in an episode: calls as `tool(arguments)`, and texts."""
    parts: list[str] = []
    for turn in episode.trajectories[0].turns:
        if turn.message is not None:
            calls = turn.message.tool_calls or []
            parts += [
                f"{call.name}({', '.join(map(str, call.arguments.values()))})" for call in calls
            ]
            parts.append(turn.message.text)
    return ", ".join(filter(None, parts))


def _show(pairs: Sequence[Answered], measured: dict[str, Estimate], out: Console) -> None:
    table = Table("", "", "95% interval", box=None, title_justify="left")
    for name, estimate in measured.items():
        table.add_row(name, *estimate.cells())
    out.print(f"[bold]3[/bold]  {len(pairs)} held-out questions, answered greedily")
    out.print(table)
    episodes = Table("question", "before", "", "after", "", box=None)
    for answered in one_of_each(pairs):
        episodes.add_row(
            escape(answered.question),
            escape(repr(answered.before)),
            f"{answered.reward_before:g}",
            escape(repr(answered.after)),
            f"{answered.reward_after:g}",
        )
    out.print(episodes)


def one_of_each(pairs: Sequence[Answered]) -> list[Answered]:
    """Return the first question of each kind, whatever was answered."""
    by_kind: dict[str, Answered] = {}
    for answered in pairs:
        by_kind.setdefault(answered.kind, answered)
    return list(by_kind.values())
