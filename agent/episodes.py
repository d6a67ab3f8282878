"""Episodes on disk: one JSON object a line, as `ludus eval --out` and the runs of the trainer write
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ludus.errors import ConfigError

from .trajectory import Episode


def read_episodes(path: Path, *, most: int | None = None) -> list[Episode]:
    """The first `most` episodes of a file, or all.

    A last line that was never finished (whoever wrote it was killed) is left out.

    Raises:
        ConfigError: the file cannot be read, or a line of it is no episode; the message names it.
    """
    return list(itertools.islice(_episodes(path), most))


def _episodes(path: Path) -> Iterator[Episode]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _episode(line, f"{path}, line {number}")
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except _Unfinished:
        return


class _Unfinished(Exception):
    """A line without its end."""


def _episode(line: bytes, where: str) -> Episode:
    try:
        return msgspec.json.decode(line, type=Episode)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if not line.endswith(b"\n"):
            raise _Unfinished from None
        raise ConfigError(f"{where} is not an episode: {error}") from None
