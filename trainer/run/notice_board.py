"""Decides when a notice is shown: at once, and then ever more seldom while the notice holds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from ludus.metrics import LineFile

logger = logging.getLogger(__name__)

FILE = "notices.jsonl"
PREFIX = "notice/"
"""Prefix of a notice's name in the metrics of each step in which the notice holds."""


class ToldNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that is shown to a person."""

    step: int
    name: str
    count: int
    """Number of steps of the run in which the notice has held."""
    text: str


@runtime_checkable
class Listener(Protocol):
    """A watcher that shows notices."""

    def on_notice(self, told: ToldNotice) -> None:
        """Called with a notice that a person should see."""
        ...


class NoticeBoard:
    """Shows a notice the first, third, tenth, thirtieth ... time that the notice holds, and writes
    every shown notice to a file.

    Args:
        lines: the file, with a JSON object in each line.
        watcher: receives the notices if it has `on_notice`; otherwise they are logged as warnings.
        counts: number of steps in which each notice held before, for a run that continues.
    """

    def __init__(self, lines: LineFile, watcher: object, counts: Mapping[str, int]) -> None:
        self._lines = lines
        self._watcher = watcher
        self._counts = dict(counts)

    def post(self, step: int, notices: Mapping[str, str]) -> None:
        """Count the notices of a step, and show every notice that is due."""
        for name, text in notices.items():
            count = self._counts[name] = self._counts.get(name, 0) + 1
            if is_told(count):
                again = f"in {count} steps so far: " if count > 1 else ""
                notice = ToldNotice(step=step, name=name, count=count, text=again + text)
                self._lines.append(msgspec.json.encode(notice))
                if isinstance(self._watcher, Listener):
                    self._watcher.on_notice(notice)
                else:
                    logger.warning("step %d: %s", notice.step, notice.text)


def is_told(count: int) -> bool:
    """Whether a notice that has held `count` times is shown.

    >>> [count for count in range(1, 200) if is_told(count)]
    [1, 3, 10, 30, 100]
    """
    # A count is 1 or 3 times a power of ten if only that digit is left without the zeros.
    while count % 10 == 0:
        count //= 10
    return count in (1, 3)


def counts_of(rows: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """Count, from the lines of `metrics.jsonl`, the steps in which each notice held."""
    counts: dict[str, int] = {}
    for row in rows:
        for name in row:
            if name.startswith(PREFIX):
                counts[name.removeprefix(PREFIX)] = counts.get(name.removeprefix(PREFIX), 0) + 1
    return counts


def read_notices(folder: Path) -> list[ToldNotice]:
    """Read the notices of a run in order; a line that a crash cut short is left out."""
    path, notices = folder / FILE, list[ToldNotice]()
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            notices.append(msgspec.json.decode(line, type=ToldNotice))
        except msgspec.DecodeError:
            continue
    return notices
