"""Metrics of a run, a JSON line for each step.

Names are paths: `reward/mean`, `stop/max_turns`, `time/generate_s`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec


class LineFile:
    """Appends whole lines to a file.

    Lines that cannot be written, because the disk is full, wait for the next `append`; the file
    never ends in the middle of a line.

    Args:
        path: the file, whose folder is created.
        synced: whether a line is written when it is on the disk; a crash of the machine loses no
            such line.
    """

    def __init__(self, path: Path, *, synced: bool = False) -> None:
        self.path, self.synced = path, synced
        self.waiting: list[bytes] = []
        """The lines that are not in the file yet."""
        self.fault: OSError | None = None
        """Why lines are waiting; None if none are."""
        path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, line: bytes) -> None:
        """Append a line, after those that wait."""
        self.waiting.append(line + b"\n")
        self.flush()

    def flush(self) -> None:
        """Write the lines that wait, if that is possible now."""
        if not self.waiting:
            return
        try:
            # Without a buffer a write fails here, and not when the file is closed. It may then
            # write a part of the text only, hence the loop.
            with self.path.open("ab", buffering=0) as file:
                end, text = file.seek(0, os.SEEK_END), b"".join(self.waiting)
                try:
                    while text:
                        text = text[file.write(text) :]
                    if self.synced:
                        os.fsync(file.fileno())
                except OSError:  # the disk is full: leave no half of a line
                    file.truncate(end)
                    raise
        except OSError as error:
            self.fault = error
        else:
            self.waiting, self.fault = [], None

    def sync(self) -> None:
        """Wait until the written lines are on the disk."""
        if self.path.exists():
            with self.path.open("ab") as file:
                os.fsync(file.fileno())


class MetricsLog:
    """Appends to `metrics.jsonl`. Every line is in the file when `write` returns; if the disk is
    full, the line waits in `lines` and is written with the next one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = LineFile(path)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Append the metrics of a step; numbers that are not finite are left out, since JSON has
        none.
        """
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        # The time is for people; nothing reads it back, so that a clock that jumps changes nothing.
        self.lines.append(
            msgspec.json.encode({"step": step, "time": round(time.time(), 3), **finite})
        )


def cut_back(path: Path, step: int) -> None:
    """Remove the lines of steps after `step`, and a line that a crash cut short, from a
    `metrics.jsonl`.

    Readers see the old file or the new file, never a mixture.
    """
    if not path.exists():
        return
    kept_lines: list[bytes] = []
    for line in path.read_bytes().splitlines():
        try:
            if msgspec.json.decode(line, type=_Line).step <= step:
                kept_lines.append(line)
        except msgspec.DecodeError:  # cut short
            continue
    replace_file(path, b"".join(line + b"\n" for line in kept_lines))


def replace_file(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write a file under another name and rename it: readers see the old file or the new one.

    Args:
        path: the file.
        content: what it shall hold.
        mode: who may read and write it, as in `os.open`.

    Raises:
        OSError: the file cannot be written; the old one stays.
    """
    partial = path.with_name(f".partial-{path.name}")
    try:
        opened = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(opened, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


class _Line(msgspec.Struct):
    step: int


T = TypeVar("T")


def read_lines(path: Path, kind: type[T]) -> list[T]:
    """Read the lines of a file as values of a type; a line that a crash cut short, or that is none,
    is left out.

    Raises:
        FileNotFoundError: there is no such file.
    """
    values: list[T] = []
    for line in path.read_bytes().splitlines():
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # also what is none of the type
            values.append(msgspec.json.decode(line, type=kind))
    return values


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Read the lines of a `metrics.jsonl`; a line that a crash cut short is left out."""
    return read_lines(path, dict[str, Any])


PLAN = "plan.json"
"""File of a run whose `config.toml` does not tell its last step."""


def write_plan(folder: Path, steps: int) -> None:
    """Write how many steps a run has: those of passes over data, or those until it had learned."""
    replace_file(folder / PLAN, msgspec.json.encode({"steps": steps}))


def planned_steps(folder: Path) -> int | None:
    """Return how many steps a run has by its `plan.json`; None where that cannot be read."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((folder / PLAN).read_bytes(), type=dict[str, int]).get("steps")
    return None


class Stopwatch:
    """Wall time by name.

    >>> watch = Stopwatch()
    >>> with watch("generate"):
    ...     pass
    >>> list(watch.seconds)
    ['generate']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Generator[None]:
        """Add the time spent inside the block to `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
