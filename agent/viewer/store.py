"""An index of a run's episodes and rollouts, in a disposable SQLite file outside of the run folder.

The lines of `episodes/index.jsonl` are taken over as they are. A file of episodes that the index
does not cover, of an older version or of a run that was killed between two writes, is scanned.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from ludus.errors import ConfigError
from ludus.user_paths import user_folder

from ..episodes import INDEX, EpisodeLine, line_about
from ..trajectory import Episode
from .tail import Tail


class RolloutLine(msgspec.Struct):
    """A line of `rollouts.jsonl`, of any version."""

    ordinal: int
    group: int
    task: str
    fate: str
    step: int
    reason: str = ""
    issued: int = 0
    oldest: int | None = None
    newest: int | None = None
    tokens: int | None = None
    seconds: float = 0.0
    reward: float | None = None
    started: float = 0.0
    spans: list[tuple[str, float]] = []


class _LearnedLine(msgspec.Struct):
    ordinal: int


def _columns(line: type[msgspec.Struct]) -> list[str]:
    """Return the columns of a table of lines; two of their names are words of SQL."""
    return [{"group": "grp", "index": "idx"}.get(name, name) for name in line.__struct_fields__]


COLUMNS = {"episodes": _columns(EpisodeLine), "rollouts": _columns(RolloutLine)}
SHOWN = tuple(name for name in COLUMNS["episodes"] if name not in ("file", "offset", "bytes"))
"""The columns of a row of the table."""
COUNTED = ("split", "stop", "status", "kept")
"""Columns with few values."""
EQUAL = (*COUNTED, "task", "grp")
BETWEEN = (
    "step", "reward", "turns", "tokens", "windows", "summaries", "calls", "ordinal", "seconds"
)  # fmt: skip
FILTERS = (*EQUAL, *BETWEEN, "text")
"""The filters of episodes, besides `part:NAME`."""
VERSION = 3
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS episodes (id INTEGER PRIMARY KEY, {", ".join(COLUMNS["episodes"])},
  UNIQUE (file, offset));
CREATE INDEX IF NOT EXISTS by_step ON episodes (step, reward);
CREATE INDEX IF NOT EXISTS by_task ON episodes (task, step);
CREATE INDEX IF NOT EXISTS by_ordinal ON episodes (ordinal);
CREATE TABLE IF NOT EXISTS rollouts ({", ".join(COLUMNS["rollouts"])}, UNIQUE (ordinal));
CREATE INDEX IF NOT EXISTS rollouts_by_step ON rollouts (step, grp);
CREATE TABLE IF NOT EXISTS learned (ordinal, offset, bytes, UNIQUE (ordinal));
CREATE TABLE IF NOT EXISTS files (name PRIMARY KEY, inode, offset, tail);
"""
_INDEX = msgspec.json.Decoder(EpisodeLine)
_EPISODE = msgspec.json.Decoder(Episode)
_ROLLOUT = msgspec.json.Decoder(RolloutLine)
_LEARNED = msgspec.json.Decoder(_LearnedLine)


def cache_folder() -> Path:
    """Return the folder of the indexes; a temporary one where the user's cannot be written."""
    try:
        folder = user_folder(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "ludus" / "watch"
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except (OSError, ConfigError):
        return Path(tempfile.mkdtemp(prefix="ludus-watch-"))
    return folder


class Store:
    """The index of a run.

    Args:
        source: a run folder, or a file of episodes.
        cache: the folder for the index; None keeps it in memory.
    """

    def __init__(self, source: Path, cache: Path | None) -> None:
        self.source = source
        self.bad = 0
        """Lines that could not be read."""
        status = source.stat()
        name = f"{source.resolve()}\0{status.st_ino}\0{VERSION}"
        self.path = (
            cache / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.sqlite" if cache else None
        )
        self._searched: dict[str, list[int]] = {}
        self._counts: tuple[int, dict[str, dict[str, int]]] = (-1, {})
        """The number of changes of the index at the last call of `counts`, and the result."""
        self._sizes: dict[str, int] = {}
        """The bytes of the files that are known whole."""
        try:
            self.base = self._connected()
        except sqlite3.DatabaseError:  # of another version, or broken: it is disposable
            if self.path is not None:
                self.path.unlink(missing_ok=True)
            self.base = self._connected()

    def _connected(self) -> sqlite3.Connection:
        base = sqlite3.connect(self.path or ":memory:", check_same_thread=False, timeout=5)
        base.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; {_SCHEMA}")
        base.row_factory = sqlite3.Row
        return base

    # --- reading ----------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Take over what is new about episodes; return whether anything was."""
        before = self.base.total_changes
        if self.source.is_dir():
            if not self._sizes:  # what is known from an earlier visit may be gone by now
                known = self.base.execute("SELECT DISTINCT file FROM episodes").fetchall()
                self._sizes = {name: -1 for (name,) in known}
            forget = ["DELETE FROM episodes", "DELETE FROM files WHERE name != 'rollouts.jsonl'"]
            if self._take(
                self._folder / INDEX,
                "episodes",
                lambda _, line: _cells(_listed(line)),
                forget=forget,
            ):
                self._sizes.clear()
            for path in sorted(self._folder.glob("*.jsonl")):
                if path.name != INDEX and not self._covered(path):
                    self._scan(path)
                    self._sizes.pop(path.name, None)
            for name in list(self._sizes):
                if not (self._folder / name).exists():
                    del self._sizes[name]
                    self.base.execute("DELETE FROM episodes WHERE file=?", (name,))
                    self.base.execute("DELETE FROM files WHERE name=?", (name,))
        else:
            self._scan(self.source)
        changed = self.base.total_changes != before
        if changed:
            self.base.commit()
            self._searched.clear()
        return changed

    def refresh_rollouts(self) -> None:
        """Take over the new lines of `rollouts.jsonl` and of the annotations."""
        self._take(
            self.source / "rollouts.jsonl",
            "rollouts",
            lambda _, line: _cells(_ROLLOUT.decode(line)),
            forget=["DELETE FROM rollouts"],
        )
        self._take(
            self.annotations,
            "learned",
            lambda offset, line: (*_cells(_LEARNED.decode(line)), offset, len(line)),
            forget=["DELETE FROM learned"],
        )
        self.base.commit()

    @property
    def annotations(self) -> Path:
        """The file of the learner's annotations."""
        return self.source / "annotations" / "learner.jsonl"

    @property
    def _folder(self) -> Path:
        return self.source / "episodes" if self.source.is_dir() else self.source.parent

    def _take(
        self,
        path: Path,
        table: str,
        row_of: Callable[[int, bytes], Sequence[Any]],
        *,
        forget: Sequence[str],
        unread: bool = False,
    ) -> bool:
        """Put the new lines of a file into a table; return whether the file had begun anew.

        Args:
            path: the file, which need not exist.
            table: the table.
            row_of: makes a row of a line and its offset.
            forget: what to do first with what was known of a file that has begun anew, or also of
                one that was not read before (`unread`); `:name` is the file's name.
            unread: see `forget`.
        """
        known = self.base.execute("SELECT * FROM files WHERE name=?", (path.name,)).fetchone()
        tail = (
            Tail(path, inode=int(known["inode"]), offset=known["offset"], end=known["tail"])
            if known
            else Tail(path)
        )
        again = tail.restarted()
        if again or (unread and tail.offset == 0):
            for statement in forget:
                self.base.execute(statement, {"name": path.name})
        start = tail.offset

        def rows() -> Iterator[Sequence[Any]]:
            for offset, line in tail.lines():
                try:
                    yield row_of(offset, line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    self.bad += bool(line.strip())

        names = COLUMNS.get(table, ["ordinal", "offset", "bytes"])
        marks = ", ".join("?" * len(names))
        self.base.executemany(
            f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({marks})", rows()
        )
        if again or tail.offset != start:
            # An inode may take all of 64 bits.
            place = path.name, str(tail.inode), tail.offset, tail.end
            self.base.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", place)
        return again

    def _covered(self, path: Path) -> bool:
        """Whether every byte of a file belongs to an episode that is known."""
        size = 0
        with suppress(OSError):
            size = path.stat().st_size
        if self._sizes.get(path.name) == size:
            return True
        known = self.base.execute(
            "SELECT COALESCE(SUM(bytes), 0) FROM episodes WHERE file=?", (path.name,)
        ).fetchone()[0]
        if known == size:
            self._sizes[path.name] = size
        return bool(known == size)

    def _scan(self, path: Path) -> None:
        number = re.search(r"-(\d{1,18})$", path.stem)
        step = int(number[1]) if number else 0

        def row_of(offset: int, line: bytes) -> Sequence[Any]:
            place = path.name, offset, len(line)
            return _cells(line_about(_EPISODE.decode(line), place, step=step))

        forget = ["DELETE FROM episodes WHERE file=:name"]
        self._take(path, "episodes", row_of, forget=forget, unread=True)

    # --- questions --------------------------------------------------------------------------------

    def line(self, row: Mapping[str, Any]) -> bytes:
        """Return the line of an episode; empty where the file has changed."""
        try:
            with (self._folder / row["file"]).open("rb") as file:
                return _line_at(file, row)
        except OSError:
            return b""

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Return the rows that a query in SQL selects."""
        return [dict(row) for row in self.base.execute(query, values).fetchall()]

    def learned(self, ordinal: int) -> dict[str, Any] | None:
        """Return the annotation of an episode."""
        row = self.base.execute("SELECT * FROM learned WHERE ordinal=?", (ordinal,)).fetchone()
        if row is None:
            return None
        with suppress(OSError, msgspec.DecodeError), self.annotations.open("rb") as file:
            file.seek(row["offset"])
            annotation: dict[str, Any] = msgspec.json.decode(file.read(row["bytes"]))
            return annotation
        return None

    def query(
        self, filters: Mapping[str, str], *, sort: str = "", offset: int = 0, limit: int = 200
    ) -> tuple[int, list[sqlite3.Row]]:
        """Return how many episodes pass the filters, and those of a window.

        Args:
            filters: see `conditions`.
            sort: a column, with a minus in front for the largest first.
            offset: rank of the first.
            limit: the most that are returned.
        """
        where, values = self.conditions(filters)
        column = sort.lstrip("-")
        order = (
            f"{column} {'DESC' if sort.startswith('-') else 'ASC'}"
            if column in SHOWN and column != "parts"
            else ""
        )
        total = self.base.execute(f"SELECT COUNT(*) FROM episodes {where}", values).fetchone()[0]
        rows = self.base.execute(
            f"SELECT * FROM episodes {where} ORDER BY {order + ', ' if order else ''}id "
            "LIMIT ? OFFSET ?",
            [*values, limit, offset],
        ).fetchall()
        return total, rows

    def conditions(self, filters: Mapping[str, str]) -> tuple[str, list[Any]]:
        """Return the SQL for filters, and its values.

        `split`, `stop`, `status`, `kept` are equal to one of the values between commas; `task` and
        `grp` are equal to the value; `step`, `reward`, `turns`, `tokens`, `windows`, `summaries`,
        `calls`, `ordinal` and `part:NAME` lie between two bounds, `LOW..HIGH`, or are equal to a
        number; `text` stands in the episode.
        """
        parts, values = list[str](), list[Any]()
        for name, given in filters.items():
            if not given:
                continue
            if name in EQUAL:
                # A task is any text, and the name of a group holds its task.
                choices = given.split(",") if name in COUNTED else [given]
                parts.append(f"{name} IN ({', '.join('?' * len(choices))})")
                values += choices
            elif name == "text":
                ids = self._containing(given)
                parts.append("id IN (SELECT value FROM json_each(?))")
                values.append(msgspec.json.encode(ids).decode())
            elif name.startswith("part:") or name in BETWEEN:
                column = name if name in BETWEEN else "json_extract(parts, ?)"
                low, dots, high = given.partition("..")
                for sign, bound in ((">=", low), ("<=", high if dots else low)):
                    number = as_number(bound)
                    if number is not None:
                        parts.append(f"{column} {sign} ?")
                        quoted = msgspec.json.encode(name[5:]).decode()
                        values += [*([] if name in BETWEEN else [f"$.{quoted}"]), number]
        return ("WHERE " + " AND ".join(parts) if parts else ""), values

    def _containing(self, text: str) -> list[int]:
        """Return the episodes whose line holds a text."""
        if text in self._searched:
            return self._searched[text]
        wanted = msgspec.json.encode(text)[1:-1]  # as a line of JSON has it
        ids: list[int] = []
        for (name,) in self.base.execute("SELECT DISTINCT file FROM episodes").fetchall():
            places = self.base.execute(
                "SELECT id, offset, bytes FROM episodes WHERE file=? ORDER BY offset", (name,)
            ).fetchall()
            with suppress(OSError), (self._folder / name).open("rb", buffering=0) as file:
                ids += [row["id"] for row in places if wanted in _line_at(file, row)]
        self._searched = {**dict(list(self._searched.items())[-20:]), text: ids}
        return ids

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many episodes have each value of the columns with few values, and of how many
        of the first 500 each part of the reward is one.
        """
        if self._counts[0] == self.base.total_changes:
            return self._counts[1]
        queries = {
            name: f"SELECT {name}, COUNT(*) FROM episodes GROUP BY {name} LIMIT 50"
            for name in COUNTED
        }
        queries["parts"] = (
            "SELECT j.key, COUNT(*) FROM (SELECT parts FROM episodes LIMIT 500) e, "
            "json_each(e.parts) j GROUP BY j.key LIMIT 50"
        )
        counts = {
            name: {str(value): number for value, number in self.base.execute(query)}
            for name, query in queries.items()
        }
        self._counts = self.base.total_changes, counts
        return counts


def _listed(line: bytes) -> EpisodeLine:
    """Return a line of the index.

    Raises:
        msgspec.DecodeError: it is none, or names a file outside of the folder of episodes, which a
            run folder from elsewhere must not show.
    """
    listed = _INDEX.decode(line)
    if Path(listed.file).name != listed.file or "\0" in listed.file:
        raise msgspec.DecodeError(f"{listed.file!r} is no file of the folder of episodes")
    return listed


def _line_at(file: IO[bytes], row: Mapping[str, Any]) -> bytes:
    """Return the line of a row; an index that claims more bytes than there are reserves none."""
    size = os.fstat(file.fileno()).st_size
    offset = min(max(row["offset"], 0), size)
    file.seek(offset)
    return file.read(min(max(row["bytes"], 0), size - offset))


def as_number(text: str) -> float | None:
    """Return the number that a text is, or None; NaN, which bounds nothing, is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _cells(line: msgspec.Struct) -> list[Any]:
    """Return the cells of a line; a table inside of it is a cell of JSON.

    Raises:
        msgspec.DecodeError: a whole number is beyond the 64 bits of a cell.
    """
    cells = [
        msgspec.json.encode(cell).decode() if isinstance(cell, (dict, list)) else cell
        for cell in msgspec.structs.astuple(line)
    ]
    if any(isinstance(cell, int) and abs(cell) >= 1 << 63 for cell in cells):
        raise msgspec.DecodeError("a number is beyond 64 bits")
    return cells
