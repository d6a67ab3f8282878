"""A store of every version of every buffer, so that a reward can be reproduced."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError, RewardUnavailable
from ludus.verdict import Verdict

from ..prompt import VERSION
from ..store import open_database
from .buffer import RubricBuffer

FORMAT = 1


class _Snapshot(msgspec.Struct, frozen=True):
    format: int
    prompt_version: int
    buffer: RubricBuffer


class SnapshotStore:
    """Buffers by question and version, in an SQLite file that is only added to.

    Args:
        path: an SQLite file; ":memory:" keeps the buffers for one process.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(self, path: str | Path = ":memory:") -> None:
        self.path = str(path)
        try:
            self._db = open_database(path)
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS buffers (question TEXT NOT NULL, version INTEGER NOT "
                "NULL, data BLOB NOT NULL, PRIMARY KEY (question, version)) WITHOUT ROWID"
            )
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"cannot keep rubrics in {self.path!r}: {error}") from None

    @staticmethod
    def key(question: str) -> str:
        """Return the SHA-256 of a question, in hexadecimal, as the question's name in the file."""
        return hashlib.sha256(question.encode("utf-8", "backslashreplace")).hexdigest()

    def keep(self, buffer: RubricBuffer) -> None:
        """Keep a version of a buffer; a version that is kept already stays unchanged.

        Raises:
            RewardUnavailable: the file cannot be written, so a reward could not be reproduced.
        """
        data = msgspec.json.encode(_Snapshot(FORMAT, VERSION, buffer))
        try:
            self._db.execute(
                "INSERT INTO buffers VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (buffer.question, buffer.version, data),
            )
        except sqlite3.Error as error:
            reason = f"the rubric cannot be kept in {self.path!r}: {error}"
            raise RewardUnavailable(Verdict.unavailable(reason)) from error

    @property
    def questions(self) -> list[str]:
        """The keys of all questions that have a buffer."""
        return [key for (key,) in self._rows("SELECT DISTINCT question FROM buffers")]

    def latest(self, question: str) -> RubricBuffer | None:
        """Return the newest version of a question's buffer; None for an unknown question.

        Raises:
            ConfigError: the buffer cannot be read, or was written by another version of ludus.
        """
        rows = self._rows(
            "SELECT data FROM buffers WHERE question = ? ORDER BY version DESC LIMIT 1", question
        )
        return self._read(rows[0][0]) if rows else None

    def newer(self, versions: Mapping[str, int]) -> list[RubricBuffer]:
        """Return the latest buffer of each question that has a newer version than `versions` names.

        Args:
            versions: the known version by question, as `key` names the question.

        Raises:
            ConfigError: a buffer cannot be read, or was written by another version of ludus.
        """
        # In a query with MAX, SQLite takes the other columns from the row with the maximum.
        rows = self._rows(
            "SELECT question, MAX(version), data FROM buffers GROUP BY question ORDER BY question"
        )
        return [
            self._read(data) for name, version, data in rows if version > versions.get(name, -1)
        ]

    def at(self, question: str, version: int) -> RubricBuffer:
        """Return a given version of a question's buffer.

        Raises:
            ConfigError: that version is not kept or cannot be read, or was written by another
                version of ludus.
        """
        rows = self._rows(
            "SELECT data FROM buffers WHERE question = ? AND version = ?", question, version
        )
        if not rows:
            raise ConfigError(
                f"no version {version} of the rubric of question {question[:12]} is kept in "
                f"{self.path!r}"
            )
        return self._read(rows[0][0])

    def close(self) -> None:
        """Close the SQLite file; the store cannot be used afterwards."""
        self._db.close()

    def _rows(self, query: str, *values: str | int) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise ConfigError(f"cannot read rubrics in {self.path!r}: {error}") from None

    def _read(self, data: bytes) -> RubricBuffer:
        try:
            snapshot = msgspec.json.decode(data, type=_Snapshot)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self.path!r} holds no rubrics of this format: {error}") from None
        if (snapshot.format, snapshot.prompt_version) != (FORMAT, VERSION):
            raise ConfigError(
                f"{self.path!r} was written with format {snapshot.format} and prompts of version "
                f"{snapshot.prompt_version}; this is format {FORMAT} and prompts of version "
                f"{VERSION}: rewards of then cannot be reproduced with it"
            )
        return snapshot.buffer
