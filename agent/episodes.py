"""Images of recorded episodes: files beside the episodes, named by the digest of their bytes.

    episodes/step-000010.jsonl      {"type": "image", "url": "image:9f86d0...png"}
    episodes/images/9f86d0...png

An image is shown to every rollout of a group and stands in several fields of each, so a line of
JSON that held the bytes would repeat these many times.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from ludus.errors import ConfigError
from ludus.messages import ImagePart

from .trajectory import Episode

FOLDER = "images"
PREFIX = "image:"
_NAME = re.compile(r"[0-9a-f]{64}\.(png|jpg|webp|gif|bmp|bin)")
_IMAGE = b'"type":"image"'
_ENDINGS = (
    (b"\x89PNG", "png"), (b"\xff\xd8\xff", "jpg"), (b"GIF8", "gif"), (b"BM", "bmp")
)  # fmt: skip

S = TypeVar("S")


def line_of(episode: Episode, beside: Path) -> bytes:
    """Return an episode as a line of JSON, and write the images into files.

    Args:
        episode: a finished episode.
        beside: the file that the line is for; images go to the folder `images` beside that file.
            An image that is there already is not written again.
    """
    line = msgspec.json.encode(episode)
    # An episode without images is done here. No text can be taken for an image, because JSON
    # escapes its quotation marks.
    if _IMAGE not in line:
        return line + b"\n"
    folder = beside.parent / FOLDER

    def store(image: ImagePart) -> ImagePart:
        if not image.data:
            return image
        kind = next((kind for start, kind in _ENDINGS if image.data.startswith(start)), "bin")
        # WebP begins with "RIFF" and a length, and names itself at byte 8.
        kind = "webp" if image.data[8:12] == b"WEBP" else kind
        name = f"{hashlib.sha256(image.data).hexdigest()}.{kind}"
        path = folder / name
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            # A reader never sees half an image: the file appears under its name when complete.
            partial = path.with_suffix(".partial")
            partial.write_bytes(image.data)
            partial.replace(path)
        return ImagePart(url=PREFIX + name)

    return msgspec.json.encode(_mapped(episode, store)) + b"\n"


def restored(episode: Episode, beside: Path, images: dict[str, ImagePart]) -> Episode:
    """Return an episode with the images of its file; an image whose file is gone stays a name.

    Args:
        episode: an episode as read from a line.
        beside: the file that the line was read from, which has the folder `images` beside it.
        images: images that were read before, which share their bytes; more are added.

    Raises:
        ConfigError: a file does not hold the image that its name promises.
    """

    def read(image: ImagePart) -> ImagePart:
        name = image.url.removeprefix(PREFIX)
        # Only a name that `line_of` could have given is read, so that no line of a file can name a
        # path outside the folder.
        if not image.url.startswith(PREFIX) or not _NAME.fullmatch(name):
            return image
        if name in images:
            return images[name]
        path = beside.parent / FOLDER / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return images.setdefault(name, image)
        except OSError as error:
            raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != path.stem:
            raise ConfigError(
                f"{str(path)!r} is not the image that was shown: its digest has changed"
            )
        return images.setdefault(name, ImagePart(data=data))

    return _mapped(episode, read)


def _mapped(value: S, change: Callable[[ImagePart], ImagePart]) -> S:
    """Return a struct, list or anything else with every image inside changed.

    What holds no changed image is returned itself and not as a copy.
    """
    any_value: Any = value
    if isinstance(value, ImagePart):
        any_value = change(value)
    elif isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        new = {name: _mapped(field_value, change) for name, field_value in fields.items()}
        if any(new[name] is not field_value for name, field_value in fields.items()):
            any_value = msgspec.structs.replace(value, **new)
    elif isinstance(value, list):
        items: list[Any] = value
        mapped = [_mapped(item, change) for item in items]
        if any(new_item is not old for new_item, old in zip(mapped, items, strict=True)):
            any_value = mapped
    return cast(S, any_value)


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
