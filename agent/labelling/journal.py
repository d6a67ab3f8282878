"""The rows that people have given, a line each, on the disk before anybody is told so.

A server that is killed loses no row: a row is appended and flushed to the disk before its request
is answered, and a line that a crash cut is left out when the file is read again. An undone row
leaves the file, which is then written anew and put in the place of the old one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError, SaveFailed
from ludus.metrics import LineFile, replace_file

from .sheet import LabelItem, LabelQuestion


class LabelRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a person said of an item.

    The row is what the item is besides, so that it can be learned from as it stands: `train reward`
    and `train dpo` read pairs, rankings and ratings, `check-judge --labels` reads criteria.
    """

    item: str
    annotator: str
    seconds: float
    """How long the item was looked at."""
    label: list[float]
    """The rank of each answer, the rating, or 1 and 0 for met and not met; the answers are in the
    order of the source.
    """
    shown: list[int] = []
    """The order in which the answers were shown."""
    test: bool = False
    """Whether it is a test item."""
    prompt: list[dict[str, Any]] | None = None
    chosen: list[dict[str, Any]] | None = None
    rejected: list[dict[str, Any]] | None = None
    preference: str = ""
    """`tie` where neither answer is better."""
    answers: list[list[dict[str, Any]]] | None = None
    ranks: list[float] | None = None
    answer: list[dict[str, Any]] | None = None
    rating: float | None = None
    question: str | None = None
    response: str | None = None
    criterion: str | None = None
    met: bool | None = None


def row_of(item: LabelItem, annotator: str, label: list[float], seconds: float) -> LabelRow:
    """Return the row of a label.

    Raises:
        ConfigError: the label does not fit the question.
    """
    count = len(item.answers)
    fits = {
        LabelQuestion.PAIR: len(label) == 2 and sorted(label) in ([1, 1], [1, 2]),
        LabelQuestion.RANKING: sorted(label) == list(range(1, count + 1)),
        LabelQuestion.RATING: len(label) == 1 and label[0] in (1, 2, 3, 4, 5),
        LabelQuestion.CRITERION: len(label) == 1 and label[0] in (0, 1),
    }
    if not fits[item.question]:
        raise ConfigError(f"{label} is no label of a {item.question} of {count} answers")
    row = LabelRow(
        item=item.id,
        annotator=annotator,
        seconds=round(seconds, 2),
        label=label,
        shown=item.order(annotator),
        test=item.expected is not None,
    )
    answers = [msgspec.to_builtins(answer) for answer in item.answers]
    if item.question is LabelQuestion.CRITERION:
        row.question = "\n\n".join(message.text for message in item.prompt)
        row.response = "\n\n".join(message.text for message in item.answers[0])
        row.criterion, row.met = item.criterion, bool(label[0])
        return row
    row.prompt = msgspec.to_builtins(item.prompt)
    if item.question is LabelQuestion.RATING:
        row.answer, row.rating = answers[0], label[0]
    elif item.question is LabelQuestion.RANKING:
        row.answers, row.ranks = answers, label
    else:
        better = int(label[1] < label[0])
        row.chosen, row.rejected = answers[better], answers[1 - better]
        row.preference = "tie" if label[0] == label[1] else ""
    return row


class LabelJournal:
    """The file of rows.

    Args:
        path: the file, which is created with its folder; rows of an earlier session are kept.

    Raises:
        ConfigError: the file cannot be read or written, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[tuple[str, str], LabelRow] = {}
        """The rows by annotator and item, in the order in which they were given."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        except OSError as error:
            raise ConfigError(f"cannot use {str(path)!r}: {error.strerror}") from error
        for number, line in enumerate(lines, 1):
            try:
                row = msgspec.json.decode(line, type=LabelRow)
            except msgspec.DecodeError as error:
                if not line.endswith(b"\n"):  # its writer was killed
                    break
                raise ConfigError(f"{path}, line {number}, is no label: {error}") from None
            self.rows[row.annotator, row.item] = row
        if lines and not lines[-1].endswith(b"\n"):
            self._write_all()

    def add(self, row: LabelRow) -> None:
        """Append a row, and return when it is on the disk. The same label again changes nothing; a
        label that differs takes the place of the earlier one.

        Raises:
            SaveFailed: the row cannot be written.
        """
        key = (row.annotator, row.item)
        before = self.rows.get(key)
        if before is not None and before.label == row.label:
            return
        if before is not None:
            self._replace({**{at: self.rows[at] for at in self.rows if at != key}, key: row})
            return
        file = LineFile(self.path, synced=True)
        file.append(msgspec.json.encode(row))
        if file.fault is not None:
            raise SaveFailed(f"the label cannot be written: {file.fault.strerror}")
        self.rows[key] = row

    def undo(self, annotator: str) -> str:
        """Remove the last row of a person, and return its item; empty where there is none.

        Raises:
            SaveFailed: the file cannot be written; the row stays.
        """
        mine = [key for key in self.rows if key[0] == annotator]
        if not mine:
            return ""
        row = self.rows[mine[-1]]
        self._replace({at: self.rows[at] for at in self.rows if at != mine[-1]})
        return row.item

    def _replace(self, rows: dict[tuple[str, str], LabelRow]) -> None:
        before, self.rows = self.rows, rows
        try:
            self._write_all()
        except SaveFailed:
            self.rows = before  # as on the disk, so that the next try writes
            raise

    def of(self, annotator: str) -> list[LabelRow]:
        """Return the rows of a person."""
        return [row for row in self.rows.values() if row.annotator == annotator]

    def _write_all(self) -> None:
        lines = [msgspec.json.encode(row) + b"\n" for row in self.rows.values()]
        try:
            replace_file(self.path, b"".join(lines))
        except OSError as error:
            raise SaveFailed(f"the labels cannot be written: {error.strerror}") from None
