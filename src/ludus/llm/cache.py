"""Answers on disk, keyed by the whole request, so that an evaluation can be repeated for free."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError

_encoder = msgspec.json.Encoder(order="deterministic")


class DiskCache:
    """A folder with a file for each answer. Processes may share a folder. An unreadable file counts
    as no answer, so the server is asked again.

    Raises:
        ConfigError: the folder cannot be made.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot use {str(folder)!r} as a cache: {error.strerror}") from None

    @staticmethod
    def key(request: Any) -> str:
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
        """Keep an answer. The file appears complete or not at all."""
        path = self._path(key)
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
        draft.write_bytes(answer)
        draft.replace(path)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"
