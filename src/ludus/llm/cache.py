"""Answers on disk, keyed by the whole request, so that an evaluation can be repeated for free."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
from pathlib import Path

import msgspec

from ludus.errors import ConfigError

logger = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder(order="deterministic")


class DiskCache:
    """A folder with a file for each answer. Processes may share a folder. An unreadable file counts
    as no answer, so the server is asked again.

    Raises:
        ConfigError: the folder cannot be made.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._failed = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot use {str(folder)!r} as a cache: {error.strerror}") from None

    @staticmethod
    def key(request: object) -> str:
        """Return the key of a request: equal JSON has an equal key, whatever the order of
        fields."""
        return hashlib.blake2b(_encoder.encode(request), digest_size=16).hexdigest()

    def get(self, key: str) -> bytes | None:
        """Return the kept answer, or None."""
        try:
            return self._path(key).read_bytes()
        except OSError:
            return None

    def put(self, key: str, answer: bytes) -> None:
        """Keep an answer. The file appears complete or not at all; where it cannot be written (a
        full disk), the first failure is logged, since the answer itself is paid for and good.
        """
        path = self._path(key)
        draft = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(exist_ok=True)
            draft.write_bytes(answer)
            draft.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            if not self._failed:
                logger.warning("answers are not kept in %s: %s", self.folder, error.strerror)
            self._failed = True

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"
