"""What a step leaves behind: lines of metrics and notices in files, and the terminal's display."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ludus.agent import Episode
from ludus.errors import UpdateRefused
from ludus.metrics import read_metrics

from ..config import TrainConfig
from ..learning.update import Updater
from ..rollout.collect import Group
from ..rollout.evaluate import HeldOutScores
from .evaluations import ScoreHistory
from .folder import RunFolder
from .metrics import reasons_without_reward
from .notices import FILE, PREFIX, NoticeBoard, StepFacts, ToldNotice, counts_of, notices_of


class Journal:
    """The journal of a run.

    Args:
        folder: the run folder.
        config: the settings.
        updater: knows the updates that were refused.
        watcher: receives notices if it has `on_notice`.
    """

    def __init__(
        self, folder: RunFolder, config: TrainConfig, updater: Updater, watcher: object
    ) -> None:
        self._folder = folder
        self._config = config
        self._updater = updater
        metrics = folder.path / "metrics.jsonl"
        rows = read_metrics(metrics) if metrics.exists() else []
        self._board = NoticeBoard(folder.lines(FILE), watcher, counts_of(rows))
        self.scores = ScoreHistory(rows)
        """The held-out scores so far."""

    def tell(self, step: int, name: str, text: str) -> None:
        """Show a notice."""
        self._board.post(step, {name: text})

    def record(
        self, step: int, groups: Sequence[Group], numbers: Mapping[str, float]
    ) -> dict[str, float]:
        """Log a step, show the notices, and return the metrics with the notices that hold.

        Raises:
            UpdateRefused: `trainer.max_refused` updates in a row were refused.
        """
        refusals, episodes_file = self._updater.refusals, ""
        if refusals:  # refused updates are kept for inspection
            episodes_file = str(self._folder.keep_refused(step, refusals))
        notices = notices_of(
            StepFacts(
                numbers=numbers,
                config=self._config,
                recipe=self._updater.algorithm.recipe,
                reasons=reasons_without_reward(groups),
                refusals=tuple(refusal.told(episodes_file) for refusal in refusals),
            )
        )
        logged = {**numbers, **{f"{PREFIX}{name}": 1.0 for name in notices}}
        self._folder.log(step, logged)
        self._board.post(step, notices)
        return logged

    def refuse_more(self, step: int) -> None:
        """Stop the run after too many refused updates in a row.

        Raises:
            UpdateRefused: `trainer.max_refused` updates in a row were refused.
        """
        updater = self._updater
        if updater.refused_in_a_row < self._config.trainer.max_refused:
            return
        raise UpdateRefused(
            f"{updater.refused_in_a_row} updates in a row were refused, the last at step {step}: "
            f"{updater.refusals[-1].reason}. The weights are those of the last update that was "
            f"made; look at {self._folder.refused}, and lower trainer.lr, or mend what is not "
            "finite"
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

    def on_notice(self, notice: ToldNotice) -> None:
        """Print the notice above the bar."""
        at = f" at step {notice.step}" if notice.step else ""
        self.console.print(f"[bold yellow]notice[/bold yellow]{at}: {escape(notice.text)}")


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
    steps: int, console: Console | None = None
) -> Generator[Callable[[int, dict[str, float]], None]]:
    """Show a progress bar for `run_sft`; yields the function to call after each update."""
    out = console or Console()
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task("warm start", total=steps, numbers="")

        def progress(step: int, metrics: dict[str, float]) -> None:
            line = (
                f"loss {metrics['loss']:.3f}  "
                f"{metrics['tokens'] / metrics['time/step_s']:,.0f} tok/s"
            )
            bar.update(task, completed=step, numbers=line)
            if not out.is_terminal and step % max(1, steps // 5) == 0:
                out.print(f"warm start {step}/{steps}  {line}")

        yield progress
