"""The history of a run, as rules of findings read it: rows of metrics, settings, recipe, failures.

A **row** is a line of `metrics.jsonl` without values that are no finite numbers. A **step** here
plays episodes; an update on data (`ludus sft`) plays none. The **level** of several steps is their
mean reward with its standard error.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ludus.config import as_table, read_toml
from ludus.errors import ConfigError
from ludus.metrics import planned_steps, read_lines, read_metrics

from ..config import TrainConfig

FAILURES = "failures.jsonl"
"""File of a run with the reasons for which episodes have no reward."""
IMPORTS = "imports.json"
"""File of a run with the user's files and modules that `ludus --import` named."""
SHORT, LONG = 5, 20
"""Numbers of steps over which rules compute a level and a trend."""


class LostEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """A reason for which episodes of a step have no reward: a line of `failures.jsonl`."""

    step: int
    reason: str
    count: int
    """The number of episodes without a reward for this reason."""
    tasks: list[str]
    """The ids of at most three tasks of these episodes."""


class RunHistory:
    """All that a run has written so far: rows, settings, recipe and failures.

    Args:
        settings: the settings as a table (`config.toml`).
        recipe: the recipe as a table (`recipe.json`).
        folder: the path of the run folder, for commands in remedies.
        imports: the files and modules that `ludus --import` named, for commands in remedies.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        recipe: Mapping[str, Any] | None = None,
        *,
        folder: str = "RUN",
        imports: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.imports = imports
        self._settings = dict(settings or {})
        self._usual = as_table(TrainConfig())
        self.recipe = dict(recipe or {})
        self.rows: list[Mapping[str, float]] = []
        """The rows of steps, in order."""
        self.updates: list[Mapping[str, float]] = []
        """The rows of updates on data, in order."""
        self.held_out: list[Mapping[str, float]] = []
        """The rows of evaluations, in order."""
        self.failures: list[LostEpisodes] = []

    @classmethod
    def read(cls, folder: Path) -> RunHistory:
        """Return the history of a run folder without rows (`rows_of`) and failures; a file with
        settings, recipe or imports that is missing counts as empty.
        """
        settings: dict[str, Any] = {}
        with suppress(ConfigError):  # missing, or cut short
            settings = read_toml(folder / "config.toml")
        recipe, imports = dict[str, Any](), list[str]()
        with suppress(FileNotFoundError, msgspec.DecodeError):
            recipe = msgspec.json.decode((folder / "recipe.json").read_bytes(), type=dict[str, Any])
        with suppress(FileNotFoundError, msgspec.DecodeError):
            imports = msgspec.json.decode((folder / IMPORTS).read_bytes(), type=list[str])
        return cls(settings, recipe, folder=str(folder), imports=imports)

    def add(self, row: Mapping[str, float]) -> bool:
        """Add a row of `metrics.jsonl`; return whether the row is of a step with episodes."""
        known = {
            name: value
            for name, value in row.items()
            if isinstance(value, (int, float)) and math.isfinite(value)
        }
        if "eval/episodes" in known:
            self.held_out.append(known)
        if "loss" in known:
            self.updates.append(known)
        if "episode/count" not in known:
            return False
        self.rows.append(known)
        return True

    @property
    def step(self) -> int:
        """The newest step; 0 before the first."""
        rows = self.rows or self.updates
        return int(rows[-1]["step"]) if rows else 0

    @property
    def steps(self) -> int:
        """The number of steps that the run shall have."""
        return planned_steps(Path(self.folder)) or int(self.setting("steps"))

    # --- settings ---------------------------------------------------------------------------------

    def setting(self, name: str) -> Any:
        """Return a setting by dotted name; its default if the run has not written the setting."""
        return _at(self._settings, name, _at(self._usual, name, None))

    def chosen(self, name: str) -> bool:
        """Whether a setting differs from its default."""
        return bool(self.setting(name) != _at(self._usual, name, None))

    @property
    def own_recipe(self) -> bool:
        """Whether the recipe is a file of the user's."""
        return str(self.setting("recipe")).endswith(".toml")

    def of_recipe(self, name: str, default: Any = None) -> Any:
        """Return a setting of the recipe by dotted name."""
        return _at(self.recipe, name, default)

    def command(self, *words: str) -> str:
        """Return a `ludus` command to type, with the imports of the run."""
        imports = [part for name in self.imports for part in ("--import", name)]
        return shlex.join(["ludus", *imports, *words])

    # --- columns ----------------------------------------------------------------------------------

    def values(
        self, name: str, last: int = 0, *, before: int = 0, absent: float | None = None
    ) -> list[float]:
        """Return the values of a column in `last` steps, or in all for 0; the newest `before` steps
        are left out. A step without the column counts as `absent`, or not at all for None.
        """
        end = len(self.rows) - before
        rows = self.rows[max(0, end - last) if last else 0 : max(0, end)]
        values = (row.get(name, absent) for row in rows)
        return [value for value in values if value is not None]

    def mean(
        self, name: str, last: int = SHORT, *, before: int = 0, absent: float | None = None
    ) -> float | None:
        """Return the mean of a column; None where no step of the window has a value."""
        values = self.values(name, last, before=before, absent=absent)
        return statistics.fmean(values) if values else None

    def names(self, prefix: str) -> list[str]:
        """Return the rest of the names of columns that begin with `prefix`, in the newest step."""
        newest = self.rows[-1] if self.rows else {}
        return [name.removeprefix(prefix) for name in newest if name.startswith(prefix)]

    # --- rewards ----------------------------------------------------------------------------------

    def level(self, last: int = SHORT, *, before: int = 0) -> Level | None:
        """Return the mean reward of a window with its error; None without a reward."""
        return level_of(self.rows[max(0, len(self.rows) - before - last) : len(self.rows) - before])

    def first_level(self, steps: int = SHORT) -> Level | None:
        """Return the mean reward of the first steps."""
        return level_of(self.rows[:steps])

    def best_level(self, steps: int = 3) -> Level | None:
        """Return the highest mean reward of so many steps in a row."""
        windows = range(max(1, len(self.rows) - steps + 1))
        levels = [level_of(self.rows[start : start + steps]) for start in windows]
        known = [level for level in levels if level is not None]
        return max(known, key=lambda level: level.mean, default=None)

    def reason_of_failures(self, last: int = SHORT) -> str:
        """Return why episodes of the last steps have no reward: the most frequent reason with its
        tasks, or if the run has kept no reasons, how most of these episodes ended.
        """
        recent = [failure for failure in self.failures if failure.step > self.step - last]
        if recent:
            counts: dict[str, int] = {}
            for failure in recent:
                counts[failure.reason] = counts.get(failure.reason, 0) + failure.count
            reason = max(counts, key=lambda each: counts[each])
            tasks = next(failure.tasks for failure in recent if failure.reason == reason)
            return f"{reason} (tasks {', '.join(tasks)})"
        ends = {name: self.mean(f"stop/{name}", last, absent=0.0) or 0.0 for name in LOST}
        worst = max(ends, key=lambda name: ends[name])
        return f"they ended {worst}" if ends[worst] else "a verifier gave no verdict"


LOST = ("env_error", "timeout", "reward_unavailable", "policy_error")
"""Ends of episodes without a reward."""


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """The mean reward of several steps, with its error.

    >>> str(Level(0.5, 0.03, 9)), round(Level(0.5, 0.03, 9).above(Level(0.4, 0.04, 4)), 6)
    ('0.500 ± 0.030', 2.0)
    """

    mean: float
    error: float
    """Standard error of the mean over groups: the rollouts of a task are not independent of each
    other.
    """
    step: int
    """The last step of the window."""

    def above(self, other: Level) -> float:
        """Return by how many standard errors of the difference this level is higher."""
        error = math.hypot(self.error, other.error)
        return (
            (self.mean - other.mean) / error
            if error
            else math.copysign(math.inf if self.mean != other.mean else 0.0, self.mean - other.mean)
        )

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.error:.3f}"


def level_of(rows: Sequence[Mapping[str, float]]) -> Level | None:
    """Return the mean reward of steps with its error; None where no step has a reward."""
    known = [row for row in rows if "reward/mean" in row]
    if not known:
        return None
    variances = [_variance(row) for row in known]
    mean = statistics.fmean(row["reward/mean"] for row in known)
    error = math.sqrt(sum(variances)) / len(known)
    return Level(mean, error, int(known[-1]["step"]))


def _variance(row: Mapping[str, float]) -> float:
    """Return the variance of a step's mean reward: the variance between groups over the number of
    groups, plus the variance within groups over the number of rollouts.
    """
    groups, rollouts = max(1.0, row.get("group/count", 1.0)), max(1.0, row["episode/count"])
    every, within = row.get("reward/std", 0.0) ** 2, row.get("group/spread", 0.0) ** 2
    return max(0.0, every - within) / groups + min(every, within) / rollouts


def _at(table: Mapping[str, Any], name: str, default: Any) -> Any:
    value: Any = table
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def read_failures(folder: Path) -> list[LostEpisodes]:
    """Read `failures.jsonl`; a line that a crash cut short is left out."""
    path = folder / FAILURES
    return read_lines(path, LostEpisodes) if path.exists() else []


def rows_of(folder: Path) -> Iterable[dict[str, float]]:
    """Return the rows of a run's `metrics.jsonl`; none where there is no such file."""
    path = folder / "metrics.jsonl"
    return read_metrics(path) if path.exists() else []
