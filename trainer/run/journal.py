"""The journal of a run: each step's metrics and findings in files, and the terminal's display."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ludus.agent import Episode
from ludus.config import as_table
from ludus.errors import UpdateRefused
from ludus.findings import FILE, RunFinding, Severity, write_finding
from ludus.registry import imported

from ..config import TrainConfig
from ..findings.diagnosis import Diagnosis
from ..findings.history import FAILURES, RunHistory, read_failures, rows_of
from ..findings.summary import line_of
from ..learning.update import Updater
from ..rollout.collect import Group
from ..rollout.evaluate import HeldOutScores
from .evaluations import ScoreHistory
from .folder import RunFolder
from .metrics import failures_of

logger = logging.getLogger(__name__)

RENEWED_EVERY = 10
"""Steps between two lines of an open finding with its numbers of the day."""


@runtime_checkable
class Listener(Protocol):
    """A watcher that shows findings."""

    def on_finding(self, finding: RunFinding) -> None:
        """Called with a finding that a person should see: a warning or an error that has opened and
        is no consequence of another.
        """
        ...


class Journal:
    """The journal of a run.

    Args:
        folder: the run folder.
        config: the settings.
        updaters: know the updates that were refused; the first is the run's own.
        watcher: receives findings if it has `on_finding`; otherwise they are logged as warnings.
    """

    def __init__(
        self, folder: RunFolder, config: TrainConfig, updaters: Sequence[Updater], watcher: object
    ) -> None:
        self._folder = folder
        self._config = config
        self._updaters = updaters
        self._watcher = watcher
        recipe = msgspec.to_builtins(updaters[0].algorithm.recipe)
        history = RunHistory(as_table(config), recipe, folder=str(folder.path), imports=imported)
        history.failures = read_failures(folder.path)
        self.diagnosis = Diagnosis(history)
        """The findings so far; the rows of earlier steps give their findings again."""
        rows = list(rows_of(folder.path))
        for row in rows:
            self.diagnosis.add(row)
        self.scores = ScoreHistory(rows)
        """The held-out scores so far."""

    def tell(
        self, step: int, name: str, text: str, *, severity: Severity = "warning", remedy: str = ""
    ) -> None:
        """Write and show an event."""
        event = RunFinding(
            step=step, name=name, since=step, severity=severity, sentence=text, remedy=remedy
        )
        write_finding(self._folder.lines(FILE), event)
        self._show(event)

    def heard(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take a written row of metrics into account: write the findings that open or close."""
        for finding in self.diagnosis.add({"step": step, **numbers}):
            write_finding(self._folder.lines(FILE), finding)
            if finding.status == "open" and finding.step == finding.since and not finding.cause:
                self._show(finding)
        # A page that reads the file shows the numbers of today, not those of the opening.
        if step % RENEWED_EVERY == 0 or step == self._config.steps:
            for finding in self.diagnosis.standing():
                if finding.status == "open":
                    write_finding(self._folder.lines(FILE), finding)

    def record(self, step: int, groups: Sequence[Group], numbers: Mapping[str, float]) -> None:
        """Log a step, with why episodes have no reward; keep refused updates for inspection."""
        if refusals := [refusal for each in self._updaters for refusal in each.refusals]:
            episodes_file = str(self._folder.keep_refused(step, refusals))
            for number, refusal in enumerate(refusals):
                self.tell(step, f"refusal {number}", refusal.told(episodes_file), severity="info")
        for failure in failures_of(step, groups):
            self.diagnosis.history.failures.append(failure)
            self._folder.lines(FAILURES).append(msgspec.json.encode(failure))
        self._folder.log(step, numbers)
        self.heard(step, numbers)

    def _show(self, finding: RunFinding) -> None:
        if finding.severity == "info":
            return
        if isinstance(self._watcher, Listener):
            self._watcher.on_finding(finding)
        else:
            logger.warning("step %d: %s", finding.step, line_of(finding))

    def refuse_more(self, step: int) -> None:
        """Stop the run after too many refused updates in a row.

        Raises:
            UpdateRefused: `trainer.max_refused` updates of a policy in a row were refused.
        """
        for updater in self._updaters:
            if updater.refused_in_a_row < self._config.trainer.max_refused:
                continue
            last = updater.refusals[-1]
            raise UpdateRefused(
                f"{updater.refused_in_a_row} updates in a row were refused, the last at step "
                f"{step}: {last.told(str(self._folder.refused))}. The weights are those of the "
                f"last update that was made. What to do: {last.remedy}"
            )


class ProgressWatcher:
    """A `Watcher` that draws with rich.

    Args:
        steps: number of steps in the whole run.
        console: the console to draw on; where it is not a terminal, a line is printed every tenth
            of the run.
    """

    def __init__(self, steps: int, console: Console | None = None) -> None:
        self.console = console or Console()
        self.steps = steps
        self._played = 0
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task("training", total=steps, numbers="")
        self._last = ""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def on_episode(self, episode: Episode) -> None:
        """Show the progress of the step's rollouts."""
        self._played += 1
        self._progress.update(self._task, numbers=f"{self._last}  {self._played} episodes")

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of the step."""
        self._last, self._played = numbers_line(metrics), 0
        self._progress.update(self._task, completed=step, numbers=self._last)
        if not self.console.is_terminal and step % max(1, self.steps // 10) == 0:
            self.console.print(f"step {step}/{self.steps}  {self._last}")

    def on_evaluation(self, step: int, evaluation: HeldOutScores) -> None:
        """Print the result of held-out tasks."""
        self.console.print(f"held-out tasks after step {step}: {evaluation.told}")

    def on_finding(self, finding: RunFinding) -> None:
        """Print the finding above the bar."""
        colour = "red" if finding.severity == "error" else "yellow"
        at = f" at step {finding.step}" if finding.step else ""
        remedy = f" Try {finding.remedy}" if finding.remedy else ""
        self.console.print(
            f"[bold {colour}]{finding.name}[/bold {colour}]{at}: "
            f"{escape(finding.sentence)}.{escape(remedy)}"
        )


def numbers_line(metrics: Mapping[str, float]) -> str:
    """Return reward, speed and traffic of a step as a single line.

    >>> numbers_line({"reward/mean": 0.5, "tokens_per_s": 1234.0})
    'reward 0.500  1,234 tok/s'
    """
    reward = metrics.get("reward/mean")
    parts = ["no reward" if reward is None else f"reward {reward:.3f}"]
    parts.append(f"{metrics.get('tokens_per_s', 0.0):,.0f} tok/s")
    if "wire/steps" in metrics:
        parts.append(
            f"wire: {metrics['wire/sessions_opened']:,.0f} sessions, "
            f"{metrics.get('wire/steps_per_s', 0.0):,.0f} steps/s, "
            f"{metrics['wire/retries']:.0f} retries"
        )
    return "  ".join(parts)


@contextmanager
def sft_progress(
    console: Console | None = None, *, title: str = "supervised"
) -> Generator[Callable[[int, int, dict[str, float]], None]]:
    """Show a progress bar for supervised training; yields the function to call after each update
    with its number, that of all updates, and its metrics.

    Args:
        console: the console to draw on.
        title: what the bar is called.
    """
    out = console or Console()
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task(title, total=None, numbers="")

        def progress(step: int, steps: int, metrics: dict[str, float]) -> None:
            line = losses_line(metrics)
            bar.update(task, completed=step, total=steps, numbers=line)
            if not out.is_terminal and (step == steps or step % max(1, steps // 5) == 0):
                out.print(f"{title} {step}/{steps}  {line}")

        yield progress


def losses_line(metrics: Mapping[str, float]) -> str:
    """Return the losses and the speed of a supervised update as a single line.

    >>> losses_line({"loss": 0.5, "held_out/loss": 0.75, "tokens": 30.0, "time/step_s": 0.5})
    'loss 0.500  held-out loss 0.750  60 tok/s'
    """
    names = {"held_out/loss": "held-out loss", "held_out/accuracy": "held-out agreement"}
    parts = [f"{title} {metrics[name]:.3f}" for name, title in names.items() if name in metrics]
    speed = metrics["tokens"] / metrics["time/step_s"]
    return "  ".join([f"loss {metrics['loss']:.3f}", *parts, f"{speed:,.0f} tok/s"])
