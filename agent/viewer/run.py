"""Reading a run folder, which may be running, finished, crashed, copied, half written, or old.

Nothing is written to the folder and no lock is taken. A line that cannot be read is counted and
left out.
"""

from __future__ import annotations

import json
import math
import os
import time
import tomllib
from array import array
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from ludus.findings import FILE as FINDINGS, RunFinding
from ludus.messages import ImagePart
from ludus.metrics import planned_steps

from ..episodes import INDEX, restored
from ..trajectory import Episode
from .store import Store
from .tail import Tail
from .tokens import Detokenizer, load_detokenizer

DEPTH = 4
"""How many folders deep runs are looked for."""
STALLED_S = 300.0
"""Least seconds without a line after which a run that is locked counts as stalled."""
STALLED_STEPS = 6.0
"""The same in median times of a step, if this is longer (Miles)."""


class Series:
    """A column: the steps with a known value, and the values."""

    __slots__ = ("steps", "values")

    def __init__(self) -> None:
        self.steps, self.values = array("q"), array("d")


class RunReader:
    """Reads a run folder, or a file of episodes, again and again.

    Args:
        path: the folder or the file.
        name: the name on pages, unique among the runs of a page.
        cache: the folder for the index of episodes; None keeps it in memory.
        tokenizer: a model folder or `tokenizer.json`; None looks for the run's own.
    """

    def __init__(
        self, path: Path, name: str, cache: Path | None, *, tokenizer: Path | None = None
    ) -> None:
        self.path, self.name = path, name
        self.store = Store(path, cache)
        self.columns: dict[str, Series] = {}
        self.lines = 0
        """Lines of metrics read so far."""
        self.times: list[tuple[int, float]] = []
        """Step and wall-clock time of each line."""
        self.findings: list[RunFinding] = []
        """Every change of a finding, in order."""
        self.version = 0
        """Grows with every change that `refresh` has seen."""
        self.bad = 0
        self._tokenizer = tokenizer
        self._decode: Detokenizer | None = None
        self._metrics = Tail(path / "metrics.jsonl")
        self._findings = Tail(path / FINDINGS)
        self._settings: tuple[int, dict[str, Any]] = (0, {})

    def refresh(self) -> bool:
        """Read new metrics, findings and episodes; return whether there were any."""
        changed = [self._read_metrics(), self._read_findings(), self.store.refresh()]
        self.version += any(changed)
        return any(changed)

    def _read_metrics(self) -> bool:
        if again := self._metrics.restarted():
            self.columns, self.lines, self.times = {}, 0, []
        before = self.lines
        for _, line in self._metrics.lines():
            row = _object(line)
            if row is None or not isinstance(row.get("step"), int):
                self.bad += bool(line.strip())
                continue
            self.lines += 1
            step, at = row.pop("step"), row.pop("time", None)
            if isinstance(at, (int, float)):
                self.times.append((step, float(at)))
            for name, value in row.items():
                if isinstance(value, (int, float)) and math.isfinite(value):
                    series = self.columns.setdefault(name, Series())
                    series.steps.append(step)
                    series.values.append(float(value))
        return again or self.lines != before

    def _read_findings(self) -> bool:
        if again := self._findings.restarted():
            self.findings = []
        before = len(self.findings)
        for _, line in self._findings.lines():
            try:
                self.findings.append(msgspec.json.decode(line, type=RunFinding))
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.bad += bool(line.strip())
        return again or len(self.findings) != before

    # --- what is known of the run -----------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `config.toml` as a tree; empty where the file cannot be read."""
        path = self.path / "config.toml"
        with suppress(OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            changed = path.stat().st_mtime_ns
            if changed != self._settings[0]:
                self._settings = changed, tomllib.loads(path.read_text("utf-8"))
        return self._settings[1]

    def flat_settings(self) -> dict[str, str]:
        """Return the settings by dotted name, each as JSON."""
        flat: dict[str, str] = {}

        def walk(table: dict[str, Any], before: str) -> None:
            for name, value in table.items():
                if isinstance(value, dict):
                    walk(value, f"{before}{name}.")
                else:
                    flat[before + name] = msgspec.json.encode(value, enc_hook=str).decode()

        walk(self.settings, "")
        return flat

    def recipe_settings(self) -> dict[str, str]:
        """Return the settings that all seeds of a recipe share: those without seed, address and
        folders.
        """
        return {
            name: value
            for name, value in self.flat_settings().items()
            if name not in ("seed", "env_url") and not name.startswith("run.")
        }

    def file(self, name: str) -> str:
        """Return a file of the run as text; empty where there is none."""
        with suppress(OSError):
            return (self.path / name).read_text("utf-8", errors="replace")
        return ""

    @property
    def step(self) -> int:
        """The last step that has a reward, or else any line."""
        known = self.columns.get("reward/mean") or self.columns.get("loss")
        if known and known.steps:
            return known.steps[-1]
        return self.times[-1][0] if self.times else 0

    @property
    def steps(self) -> int:
        """The planned steps; 0 where not known."""
        planned = planned_steps(self.path) or self.settings.get("steps", 0)
        return planned if isinstance(planned, int) else 0

    def data(self, name: str) -> Any:
        """Return the content of a JSON file of the run; None if the file cannot be read."""
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(self.file(name) or "null")
        return None

    def cluster(self) -> Any:
        """Return the processes of a run on a cluster, with their nodes, restarts and stages, as its
        driver has written them beside the run's folder; None for a run without one.
        """
        return self.data(f"../{self.path.name}.cluster/processes.json")

    def state(self, now: float | None = None) -> str:
        """Return the state of the run: running, stalled, finished, ended early, episodes only, or
        without a step.
        """
        if not self.path.is_dir() or not (self.lines or self.settings):
            return "episodes only"
        last = self.times[-1][1] if self.times else 0.0
        quiet_s = (now or time.time()) - last
        held = _held(self.path / ".lock")
        if held or (held is None and quiet_s < STALLED_S):
            gaps = [b[1] - a[1] for a, b in zip(self.times, self.times[1:], strict=False)]
            patience_s = max(STALLED_S, STALLED_STEPS * median(gaps[-50:])) if gaps else STALLED_S
            return "stalled" if last and quiet_s > patience_s else "running"
        if self.steps and self.step >= self.steps:
            return "finished"
        return "ended early" if self.lines else "without a step"

    # --- episodes ---------------------------------------------------------------------------------

    def episode(self, number: int) -> tuple[Any, Episode] | None:
        """Return the row of the index with an id, and its episode; None if either is gone."""
        rows = self.store.rows("SELECT * FROM episodes WHERE id=?", number)
        if not rows:
            return None
        (row,) = rows
        try:
            episode = msgspec.json.decode(self.store.line(row), type=Episode)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        folder = self.path / "episodes" if self.path.is_dir() else self.path.parent
        images: dict[str, ImagePart] = {}
        with suppress(Exception):  # an image that cannot be read stays a name
            episode = restored(episode, folder / INDEX, images)
        return row, episode

    def decoder(self) -> Detokenizer | None:
        """Return the function from token ids to text, by the given tokenizer or that of the run's
        model; None without a tokenizer.
        """
        if self._decode is None:
            candidates = [self._tokenizer] if self._tokenizer else self._own_tokenizers()
            for path in candidates:
                with suppress(Exception):  # a page without texts of tokens shows their ids
                    self._decode = load_detokenizer(path)
                    break
        return self._decode

    def _own_tokenizers(self) -> list[Path]:
        paths = sorted(self.path.glob("checkpoints/*/tokenizer.json"))[-1:]
        model = self.settings.get("model", {})
        named = model.get("path", "") if isinstance(model, dict) else ""
        if named and (Path(named) / "tokenizer.json").is_file():
            paths.append(Path(named))
        return paths


def find_runs(places: list[Path]) -> list[Path]:
    """Return the run folders and files of episodes at `places`, and the runs inside of folders, up
    to four folders down; the newest last.
    """
    runs: dict[Path, float] = {}

    def look(folder: Path, depth: int) -> None:
        if _is_run(folder):
            with suppress(OSError):
                runs[folder] = folder.stat().st_mtime
        elif depth:
            with suppress(OSError):
                for inner in sorted(folder.iterdir()):
                    if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith("."):
                        look(inner, depth - 1)

    for place in places:
        if place.is_file():
            runs[place] = place.stat().st_mtime
        else:
            look(place, DEPTH)
    return sorted(runs, key=lambda path: (runs[path], str(path)))


def _is_run(folder: Path) -> bool:
    names = ("metrics.jsonl", "config.toml", "rollouts.jsonl")
    return any((folder / name).is_file() for name in names) or any(folder.glob("episodes/*.jsonl"))


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _lenient(line)
    return row if isinstance(row, dict) else None


def _lenient(line: bytes) -> dict[str, Any] | None:
    """Read a line with NaN or Infinity, which other writers leave in JSON."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _held(lock: Path) -> bool | None:
    """Whether a process holds the lock of a run; None where the system does not say.

    The file is not opened: the process that holds a POSIX lock would lose it by closing any other
    descriptor of the file, and this may be that process.
    """
    try:
        inode = lock.stat().st_ino
    except OSError:
        return False
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return None
    fields = [line.split() for line in locks.splitlines()]
    device = lock.stat().st_dev
    place = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    return any(place in words for words in fields)
