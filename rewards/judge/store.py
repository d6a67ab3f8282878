"""A store of every request to a judge with the answer, on disk, so that a reward costs nothing the
second time and can be reproduced byte for byte later.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.user_paths import user_folder

logger = logging.getLogger(__name__)
BUSY_MS = 500
"""Milliseconds that a write waits for another process that writes to the same file. Writes are
short, and the event loop stands still meanwhile.
"""
FORMAT = 1
"""Version of the tables; a file of another version is refused."""

_encoder = msgspec.json.Encoder(order="sorted")


def open_database(path: str | Path) -> sqlite3.Connection:
    """Open an SQLite file that several processes may share, and make its folder if missing.

    Args:
        path: the file, where `~` is the home folder; ":memory:" keeps the data for one process.

    Raises:
        sqlite3.Error: the file cannot be opened, or is not an SQLite file.
        OSError: the folder cannot be made.
        ConfigError: the file is in the home of nobody.
    """
    if str(path) != ":memory:":
        path = user_folder(path)
        path.parent.mkdir(parents=True, exist_ok=True)
    # Without an isolation level, every statement is committed at once, and the lock of the file is
    # never held between two statements.
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        _write_ahead(database)
        database.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error:
        database.close()
        raise
    return database


def _write_ahead(database: sqlite3.Connection) -> None:
    """Keep a log of writes, so that nobody who reads waits for one who writes.

    SQLite does not wait for other processes here, and several may open a new file at once.
    """
    deadline = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


class JudgementStore:
    """Answers of judges by the digest of the request. Several processes may share a file.

    Once open, a store never costs a reward: where the file fails later (a full disk, another
    process that does not let go), the judge is asked again or its answer is used unkept, and the
    first failure is logged.

    Args:
        path: an SQLite file, made if it is not there; ":memory:" keeps answers for one process.

    Raises:
        ConfigError: the file cannot be used, or was written by another version.
    """

    def __init__(self, path: str | Path = ":memory:") -> None:
        self.path = str(path)
        self._failed = False
        try:
            self._db = open_database(path)
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version not in (0, FORMAT):
                self._db.close()
                raise ConfigError(
                    f"{self.path!r} holds judgements of format {version}; this version reads "
                    f"{FORMAT}. Use another file"
                )
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS judgements "
                "(key TEXT PRIMARY KEY, request BLOB NOT NULL, answer BLOB NOT NULL) WITHOUT ROWID"
            )
            if not version:  # nothing is written to a store that is there: others may write to it
                self._db.execute(f"PRAGMA user_version = {FORMAT}")
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"cannot keep judgements in {self.path!r}: {error}") from None

    @staticmethod
    def canonical(request: Mapping[str, Any]) -> bytes:
        """Return the request as JSON with sorted keys, so that equal requests have equal bytes."""
        return _encoder.encode(request)

    @staticmethod
    def key(canonical: bytes) -> str:
        """Return the SHA-256 of a canonical request, in hexadecimal."""
        return hashlib.sha256(canonical).hexdigest()

    def get(self, key: str) -> bytes | None:
        """Return the answer kept under `key`, or None."""
        try:
            row = self._db.execute("SELECT answer FROM judgements WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            self._tell(error)
            return None
        return None if row is None else bytes(row[0])

    def put(self, key: str, request: bytes, answer: bytes) -> bytes:
        """Keep an answer unless the key has an answer already; return the answer that is kept, or
        `answer` where none can be kept.
        """
        try:
            self._db.execute(
                "INSERT INTO judgements VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (key, request, answer),
            )
        except sqlite3.Error as error:
            self._tell(error)
        # Another process may have kept another answer first: then that one counts for both.
        stored = self.get(key)
        return answer if stored is None else stored

    def _tell(self, error: sqlite3.Error) -> None:
        """Log the first failure of the file; later failures are of the same kind."""
        if not self._failed:
            logger.warning(
                "judgements are not kept in %r (%s): such rewards cannot be reproduced from it",
                self.path, error,
            )  # fmt: skip
        self._failed = True

    def __len__(self) -> int:
        (count,) = self._db.execute("SELECT COUNT(*) FROM judgements").fetchone()
        return int(count)

    def close(self) -> None:
        """Close the SQLite file; the store cannot be used afterwards."""
        self._db.close()
