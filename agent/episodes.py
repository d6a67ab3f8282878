"""Episodes on disk: JSON lines, as written by `ludus eval --out` and by training runs, with images
in files beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ludus.errors import ConfigError
from ludus.messages import ImagePart

from .episode_images import line_of, restored
from .trajectory import Episode


def read_episodes(path: Path, *, max_episodes: int | None = None) -> list[Episode]:
    """Read the first `max_episodes` episodes of a file, or all if None. Empty lines are skipped.

    An incomplete last line is skipped too, because a writer that was killed leaves one, and the
    episodes before it are whole.

    Raises:
        ConfigError: the file cannot be read, or a line is not an episode; the message names the
            line.
    """
    episodes: list[Episode] = []
    images: dict[str, ImagePart] = {}
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if len(episodes) == max_episodes:
                    break
                if not line.strip():
                    continue
                try:
                    episode = msgspec.json.decode(line, type=Episode)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    if not line.endswith(b"\n"):  # the last line, which its writer did not finish
                        break
                    place = f"{path}, line {number}"
                    raise ConfigError(f"{place} is not an episode: {error}") from None
                episodes.append(restored(episode, path, images))
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from None
    return episodes


def write_episodes(path: Path, episodes: Iterable[Episode]) -> None:
    """Write a file of episodes, and the images that they show into files beside it."""
    path.write_bytes(b"".join(line_of(episode, path) for episode in episodes))
