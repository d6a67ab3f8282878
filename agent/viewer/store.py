"""An index of a run's episodes and rollouts, in a disposable SQLite file outside of the run folder.

The lines of `episodes/index.jsonl` are taken over as they are. A file of episodes that the index
does not cover, of an older version or of a run that was killed between two writes, is scanned.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ludus.messages import Message
from ludus.verdict import Status

from ..episodes import EXCERPT, INDEX, EpisodeLine
from .tail import AT_ONCE, Tail

COLUMNS = [
    "file",
    "offset",
    "bytes",
    "step",
    "task",
    "grp",
    "idx",
    "ordinal",
    "split",
    "reward",
    "status",
    "stop",
    "turns",
    "tokens",
    "windows",
    "summaries",
    "calls",
    "seconds",
    "kept",
    "text",
    "parts",
]
SHOWN = tuple(name for name in COLUMNS if name not in ("file", "offset", "bytes"))
"""The columns of a row of the table."""
SORTABLE = frozenset(SHOWN) - {"parts"}
VERSION = 1
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS episodes (id INTEGER PRIMARY KEY, {", ".join(COLUMNS)},
  UNIQUE (file, offset));
CREATE INDEX IF NOT EXISTS by_step ON episodes (step, reward);
CREATE INDEX IF NOT EXISTS by_task ON episodes (task, step);
CREATE INDEX IF NOT EXISTS by_ordinal ON episodes (ordinal);
CREATE TABLE IF NOT EXISTS rollouts (ordinal INTEGER PRIMARY KEY, grp, task, fate, step, reason,
  issued, oldest, newest, tokens, seconds, reward, started, spans);
CREATE INDEX IF NOT EXISTS rollouts_by_step ON rollouts (step, grp);
CREATE TABLE IF NOT EXISTS learned (ordinal INTEGER PRIMARY KEY, offset, bytes);
CREATE TABLE IF NOT EXISTS files (name PRIMARY KEY, inode, offset, bad);
"""


class _ScannedTurn(msgspec.Struct):
    kind: str = "act"
    out_ids: list[int] = []
    message: Message | None = None


class _ScannedSegment(msgspec.Struct):
    turns: list[_ScannedTurn] = []


class _ScannedVerdict(msgspec.Struct):
    status: Status = Status.OK
    reward: float | None = None
    parts: dict[str, tuple[float, float]] = {}


class _ScannedTrajectory(msgspec.Struct):
    verdict: _ScannedVerdict
    stop: str = "terminated"
    segments: list[_ScannedSegment] = []


class _ScannedEpisode(msgspec.Struct):
    """What a table shows of an episode; the rest of the line is not made into objects."""

    task: str
    group: str = ""
    trajectories: list[_ScannedTrajectory] = []
    index: int = 0
    ordinal: int = -1
    split: str = "train"
    wall_s: float = 0.0


class _RolloutLine(msgspec.Struct):
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


_EPISODE = msgspec.json.Decoder(_ScannedEpisode)
_INDEX = msgspec.json.Decoder(EpisodeLine)
_ROLLOUT = msgspec.json.Decoder(_RolloutLine)
_LEARNED = msgspec.json.Decoder(_LearnedLine)


def cache_folder() -> Path:
    """Return the folder of the indexes; a temporary one where the user's cannot be written."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(root) / "ludus" / "watch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
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
        self._choices: tuple[int, dict[str, list[str]]] = (-1, {})
        """What `choices` returned, and the changes of the index by then."""
        self._sizes: dict[str, int] = {}
        """The bytes of the files that are known whole."""
        self._open()

    def _open(self) -> None:
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
            self._read_index()
            for path in sorted(self._folder.glob("*.jsonl")):
                if path.name != INDEX and not self._covered(path):
                    self._scan(path)
                    self._sizes.pop(path.name, None)
            self._forget_gone()
        else:
            self._scan(self.source)
        changed = self.base.total_changes != before
        if changed:
            self.base.commit()
            self._searched.clear()
        return changed

    def refresh_rollouts(self) -> None:
        """Take over the new lines of `rollouts.jsonl` and of the annotations."""
        self._take("rollouts.jsonl", "rollouts", _rollout_row)
        self._take("annotations/learner.jsonl", "learned", _learned_row)
        self.base.commit()

    @property
    def _folder(self) -> Path:
        return self.source / "episodes" if self.source.is_dir() else self.source.parent

    def _tail(self, name: str, path: Path) -> tuple[Tail, bool]:
        """Return the tail of a file from where it was read up to, and whether it is new."""
        row = self.base.execute("SELECT * FROM files WHERE name=?", (name,)).fetchone()
        tail = Tail(path, inode=row["inode"], offset=row["offset"]) if row else Tail(path)
        return tail, tail.restarted()

    def _keep(self, name: str, tail: Tail, bad: int = 0) -> None:
        self.base.execute(
            "INSERT INTO files VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
            "inode=excluded.inode, offset=excluded.offset, bad=bad+excluded.bad",
            (name, tail.inode, tail.offset, bad),
        )
        self.bad += bad

    def _take(self, name: str, table: str, row_of: Any) -> None:
        tail, again = self._tail(name, self.source / name)
        if again:
            self.base.execute(f"DELETE FROM {table}")
        start, bad = tail.offset, 0

        def rows() -> Iterator[Sequence[Any]]:
            nonlocal bad
            for offset, line in tail.lines():
                try:
                    yield row_of(offset, line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    bad += bool(line.strip())

        count = {"rollouts": 14, "learned": 3}[table]
        marks = ", ".join("?" * count)
        self.base.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows())
        if again or tail.offset != start:
            self._keep(name, tail, bad)

    def _read_index(self) -> None:
        tail, again = self._tail(INDEX, self._folder / INDEX)
        if again:
            self.base.execute("DELETE FROM episodes")
            self.base.execute("DELETE FROM files WHERE name != 'rollouts.jsonl'")
            self._sizes.clear()
        start, bad = tail.offset, 0

        def rows() -> Iterator[Sequence[Any]]:
            nonlocal bad
            for _, line in tail.lines():
                try:
                    yield _row(_INDEX.decode(line))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    bad += bool(line.strip())

        self._insert(rows())
        if again or tail.offset != start:
            self._keep(INDEX, tail, bad)

    def _insert(self, rows: Iterator[Sequence[Any]]) -> None:
        marks = ", ".join("?" * len(COLUMNS))
        self.base.executemany(
            f"INSERT OR REPLACE INTO episodes ({', '.join(COLUMNS)}) VALUES ({marks})", rows
        )

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
        tail, again = self._tail(path.name, path)
        start, bad = tail.offset, 0
        if again or start == 0:  # or the index had other places for it
            self.base.execute("DELETE FROM episodes WHERE file=?", (path.name,))
        number = re.search(r"-(\d+)$", path.stem)
        step = int(number[1]) if number else 0

        def rows() -> Iterator[Sequence[Any]]:
            nonlocal bad
            for offset, line in tail.lines():
                try:
                    yield _row(_scanned(line, (path.name, offset, len(line)), step))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    bad += bool(line.strip())

        self._insert(rows())
        if again or tail.offset != start:
            self._keep(path.name, tail, bad)

    def _forget_gone(self) -> None:
        for name in list(self._sizes):
            if not (self._folder / name).exists():
                del self._sizes[name]
                self.base.execute("DELETE FROM episodes WHERE file=?", (name,))
                self.base.execute("DELETE FROM files WHERE name=?", (name,))

    # --- questions --------------------------------------------------------------------------------

    def line(self, row: sqlite3.Row) -> bytes:
        """Return the line of an episode; empty where the file has changed."""
        try:
            with (self._folder / row["file"]).open("rb") as file:
                file.seek(row["offset"])
                data: bytes = file.read(row["bytes"])
                return data
        except OSError:
            return b""

    def learned(self, ordinal: int) -> dict[str, Any] | None:
        """Return the annotation of an episode."""
        row = self.base.execute("SELECT * FROM learned WHERE ordinal=?", (ordinal,)).fetchone()
        if row is None:
            return None
        with (
            suppress(OSError, msgspec.DecodeError),
            (self.source / "annotations" / "learner.jsonl").open("rb") as file,
        ):
            file.seek(row["offset"])
            told: dict[str, Any] = msgspec.json.decode(file.read(row["bytes"]))
            return told
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
            f"{column} {'DESC' if sort.startswith('-') else 'ASC'}" if column in SORTABLE else ""
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

        `split`, `stop`, `status`, `kept`, `task`, `grp` are equal to one of the values between
        commas; `step`, `reward`, `turns`, `tokens`, `windows`, `summaries`, `calls`, `ordinal` and
        `part:NAME` lie between two bounds, `LOW..HIGH`, or are equal to a number; `text` stands in
        the episode.
        """
        parts, values = list[str](), list[Any]()
        for name, given in filters.items():
            if not given:
                continue
            if name in ("split", "stop", "status", "kept", "task", "grp"):
                choices = given.split(",") if name != "task" else [given]
                parts.append(f"{name} IN ({', '.join('?' * len(choices))})")
                values += choices
            elif name == "text":
                ids = self._containing(given)
                parts.append("id IN (SELECT value FROM json_each(?))")
                values.append(msgspec.json.encode(ids).decode())
            elif name.startswith("part:") or name in _NUMBERS:
                column = name if name in _NUMBERS else "json_extract(parts, ?)"
                low, dots, high = given.partition("..")
                for sign, bound in ((">=", low), ("<=", high if dots else low)):
                    number = _number(bound)
                    if number is not None:
                        parts.append(f"{column} {sign} ?")
                        quoted = msgspec.json.encode(name[5:]).decode()
                        values += [*([] if name in _NUMBERS else [f"$.{quoted}"]), number]
        return ("WHERE " + " AND ".join(parts) if parts else ""), values

    def _containing(self, text: str) -> list[int]:
        """Return the episodes whose line holds a text, by a search of the files' bytes."""
        if text in self._searched:
            return self._searched[text]
        wanted = msgspec.json.encode(text)[1:-1]  # as a line of JSON has it
        ids: list[int] = []
        for (name,) in self.base.execute("SELECT DISTINCT file FROM episodes").fetchall():
            places = self.base.execute(
                "SELECT id, offset, bytes FROM episodes WHERE file=? ORDER BY offset", (name,)
            ).fetchall()
            hits = _hits(self._folder / name, wanted)
            ids += _owners(hits, places)
        self._searched = {**dict(list(self._searched.items())[-20:]), text: ids}
        return ids

    def choices(self) -> dict[str, list[str]]:
        """Return the values that occur of the columns with few values."""
        if self._choices[0] == self.base.total_changes:
            return self._choices[1]
        found: dict[str, list[str]] = {}
        for name in ("split", "stop", "status", "kept"):
            rows = self.base.execute(f"SELECT DISTINCT {name} FROM episodes LIMIT 50").fetchall()
            found[name] = sorted(str(row[0]) for row in rows if row[0])
        rows = self.base.execute(
            "SELECT DISTINCT j.key FROM (SELECT parts FROM episodes LIMIT 500) e, "
            "json_each(e.parts) j LIMIT 50"
        ).fetchall()
        found["parts"] = sorted(row[0] for row in rows)
        self._choices = self.base.total_changes, found
        return found


_NUMBERS = frozenset(
    ["step", "reward", "turns", "tokens", "windows", "summaries", "calls", "ordinal", "seconds"]
)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _row(line: EpisodeLine) -> Sequence[Any]:
    return (
        line.file, line.offset, line.bytes, line.step, line.task, line.group, line.index,
        line.ordinal, line.split, line.reward, line.status, line.stop, line.turns, line.tokens,
        line.windows, line.summaries, line.calls, line.seconds, line.kept, line.text,
        msgspec.json.encode(line.parts).decode(),
    )  # fmt: skip


def _scanned(line: bytes, place: tuple[str, int, int], step: int) -> EpisodeLine:
    """Return the line of the index for the line of an episode; see `episodes.line_about`."""
    episode = _EPISODE.decode(line)
    first = episode.trajectories[0] if episode.trajectories else None
    segments = [one for trajectory in episode.trajectories for one in trajectory.segments]
    turns = [turn for segment in segments for turn in segment.turns]
    said = [turn.message for turn in turns if turn.message is not None]
    return EpisodeLine(
        file=place[0],
        offset=place[1],
        bytes=place[2],
        step=step,
        task=episode.task,
        group=episode.group,
        index=episode.index,
        ordinal=episode.ordinal,
        split=episode.split,
        reward=first.verdict.reward if first else None,
        status=str(first.verdict.status) if first else "ok",
        stop=first.stop if first else "",
        turns=len(turns),
        tokens=sum(len(turn.out_ids) for turn in turns),
        windows=len(segments),
        summaries=sum(turn.kind == "summary" for turn in turns),
        calls=sum(len(message.tool_calls) for message in said),
        seconds=round(episode.wall_s, 3),
        parts={name: value for name, (value, _) in first.verdict.parts.items()} if first else {},
        text=" ".join(said[-1].text[: 4 * EXCERPT].split())[:EXCERPT] if said else "",
    )


def _rollout_row(_: int, line: bytes) -> Sequence[Any]:
    *fields, spans = msgspec.structs.astuple(_ROLLOUT.decode(line))
    return [*fields, msgspec.json.encode(spans).decode() if spans else ""]


def _learned_row(offset: int, line: bytes) -> Sequence[Any]:
    return _LEARNED.decode(line).ordinal, offset, len(line)


def _hits(path: Path, wanted: bytes) -> Iterator[int]:
    """Yield the places of a text in a file, block by block."""
    with suppress(OSError), path.open("rb") as file:
        before, start = b"", 0
        while block := file.read(AT_ONCE):
            data, place = before + block, -1
            while (place := data.find(wanted, place + 1)) >= 0:
                yield start - len(before) + place
            keep = min(len(data), max(0, len(wanted) - 1))
            before, start = data[len(data) - keep :], start + len(block)


def _owners(hits: Iterator[int], places: Sequence[sqlite3.Row]) -> list[int]:
    """Return the episodes that hold any of the places, both in the order of the file."""
    owners: list[int] = []
    number = 0
    for hit in hits:
        while number < len(places) and hit >= places[number]["offset"] + places[number]["bytes"]:
            number += 1
        if number < len(places) and hit >= places[number]["offset"]:
            owners.append(places[number]["id"])
            number += 1
    return owners
