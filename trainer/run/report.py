"""The report of a run, a self-contained HTML page: the curve, episodes before and after, settings.

Everything shown is escaped; what a model wrote never becomes markup.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ludus.agent import Episode, Trajectory
from ludus.agent.episodes import read_episodes
from ludus.agent.templates.choice import TABLE_FILE
from ludus.agent.viewer.page import asset, render
from ludus.errors import ConfigError
from ludus.findings import newest, read_findings
from ludus.messages import ToolCall
from ludus.metrics import read_metrics
from ludus.rewards.measured import KnownJudge

from ..rollout.scoring import WeightedVerifier

PACKAGE = "ludus.trainer.run"


def write_report(
    folder: Path, *, title: str = "", lead: str = "", facts: Mapping[str, str] | None = None
) -> Path:
    """Write `report.html` into a run folder and return the file's path.

    Args:
        folder: a run folder, finished or not.
        title: heading; by default the folder's name.
        lead: one paragraph under it.
        facts: numbers to show on top, besides the held-out rewards.
    """
    rows = read_metrics(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
    settings, template = folder / "config.toml", folder / TABLE_FILE
    page = render(
        PACKAGE,
        "report.html.j2",
        folder=folder.name,
        title=title or folder.name,
        lead=lead,
        facts={**_held_out(rows), **(facts or {})},
        curve=_curve(rows),
        finished=any(row["step"] > 0 for row in rows),
        judges=read_judges(folder),
        measure_it=MEASURE_IT,
        notices=_findings(folder),
        pairs=_before_and_after(folder),
        chat_template=template.read_text(encoding="utf-8") if template.exists() else "",
        settings=settings.read_text(encoding="utf-8") if settings.exists() else "",
        style=asset(PACKAGE, "report.css"),
        said=said,
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _held_out(rows: Sequence[Mapping[str, float]]) -> dict[str, str]:
    evaluated = [row for row in rows if "eval/failed" in row or "eval/mean" in row]
    ends = [("before", evaluated[0])] if evaluated else []
    if len(evaluated) > 1:
        ends.append(("after", evaluated[-1]))
    return {
        f"held-out reward {name}": _reward_told(row) for name, row in ends if "eval/mean" in row
    }


def _reward_told(row: Mapping[str, float]) -> str:
    """Write a mean with the standard error, where known."""
    mean, error = row["eval/mean"], row.get("eval/standard_error")
    if error is None:
        return f"{mean:.3f} (error unknown)" if row.get("eval/episodes") == 1 else f"{mean:.3f}"
    return f"{mean:.3f} ± {error:.3f}"


def _findings(folder: Path) -> list[tuple[str, str]]:
    """Return what each finding of the run said, and since when."""
    return [
        (finding.sentence, f"Since step {finding.since}.")
        for finding in newest(read_findings(folder)).values()
        if finding.severity != "info"
    ]


def _series(rows: Sequence[Mapping[str, float]], name: str) -> list[tuple[float, float]]:
    """Return (step, value) where a value is known: a mean of nothing is NaN, read back as None."""
    points = [(row["step"], row.get(name)) for row in rows]
    return [(step, value) for step, value in points if value is not None and math.isfinite(value)]


@dataclass(frozen=True, slots=True)
class RewardCurve:
    """The mean reward by step, in the coordinates of a drawing."""

    line: list[tuple[float, float]]
    """The rollouts of each step."""
    dots: list[tuple[float, float, float]]
    """The held-out evaluations, with the mean of each."""
    ticks: list[tuple[float, float]]
    """The height and the value of each line across."""
    last_step: float
    width: int = 800
    height: int = 260
    left: int = 46
    top: int = 12
    bottom: int = 28


def _curve(rows: Sequence[Mapping[str, float]]) -> RewardCurve | None:
    """Return the mean reward by step as a line, held-out means as dots; None without a reward."""
    rewards, held_out = _series(rows, "reward/mean"), _series(rows, "eval/mean")
    if not rewards:
        return None
    values = [value for _, value in rewards + held_out]
    low, high = min(0.0, *values), max(1.0, *values)
    last = max(step for step, _ in rewards + held_out)
    frame = RewardCurve([], [], [], last)

    def place(step: float, value: float) -> tuple[float, float]:
        x = frame.left + (frame.width - frame.left - 10) * step / max(1.0, last)
        height = frame.height - frame.top - frame.bottom
        y = frame.top + height * (1 - (value - low) / (high - low))
        return round(x, 1), round(y, 1)

    return replace(
        frame,
        line=list(itertools.starmap(place, rewards)),
        dots=[(*place(step, value), value) for step, value in held_out],
        ticks=[(place(0, level)[1], level) for level in (low, (low + high) / 2, high)],
    )


def _before_and_after(folder: Path) -> list[tuple[Trajectory, Trajectory, str]] | None:
    """Return the most instructive held-out tasks of the first and the last evaluation, each with
    the task's id; None without an evaluation.
    """
    files = sorted((folder / "episodes").glob("eval-*.jsonl"))
    if not files:
        return None
    before = {episode.task: episode for episode in read_episodes(files[0])}
    after = {episode.task: episode for episode in read_episodes(files[-1])}
    return [
        (before[task].trajectories[0], after[task].trajectories[0], task)
        for task in _instructive(before, after)[:3]
    ]


def _instructive(before: Mapping[str, Episode], after: Mapping[str, Episode]) -> list[str]:
    """Order the tasks with a reward both times by how much the reward rose.

    A lost episode has no reward, which is not a reward of zero: it shows no rise.
    """
    rises: dict[str, float] = {}
    for task in before.keys() & after.keys():
        first, last = _reward(before[task]), _reward(after[task])
        if first is not None and last is not None:
            rises[task] = last - first
    return sorted(rises, key=lambda task: (-rises[task], task))


def _reward(episode: Episode) -> float | None:
    return episode.trajectories[0].verdict.reward if episode.trajectories else None


def said(call: ToolCall) -> str:
    """Return a call in Python's notation, or the reason why nothing was executed."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return call.error or f"{call.name}({arguments})"


FILE = "judges.json"
"""The file with the judges, in the folder of a run whose rewards ask language models."""
MEASURE_IT = (
    "measure it with 'ludus check-judge URL --model MODEL --out card.json' and add card=card.json "
    "to the judge's options"
)


class RewardJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A language model that gives a reward of the run."""

    reward: str
    judge: KnownJudge


def keep_judges(folder: Path, verifiers: Sequence[WeightedVerifier]) -> None:
    """Write the judges of `verifiers` to the run's folder; no file if no verifier has a judge."""
    judges = _judges(verifiers)
    if judges:
        (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(judges)) + b"\n")


def unmeasured(verifiers: Sequence[WeightedVerifier]) -> list[str]:
    """Return a warning for each judge whose error nobody has measured."""
    return [
        f"reward {judge.reward!r} comes from the judge {judge.judge.model!r}, whose error was "
        f"never measured; {MEASURE_IT}"
        for judge in _judges(verifiers)
        if judge.judge.measures is None
    ]


def read_judges(folder: Path) -> list[RewardJudge]:
    """Read the judges of a run; an empty list for a run without judges.

    Raises:
        ConfigError: the file of the run cannot be read.
    """
    path = folder / FILE
    if not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[RewardJudge])
    except msgspec.DecodeError as error:
        raise ConfigError(f"{str(path)!r} is no list of judges: {error}") from None


def _judges(verifiers: Sequence[WeightedVerifier]) -> list[RewardJudge]:
    return [
        RewardJudge(reward=weighted.name.partition("?")[0], judge=judge)
        for weighted in verifiers
        for judge in weighted.judges
    ]
