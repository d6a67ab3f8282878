"""Files of recorded episodes: a line for each, an index of line offsets, and the images.

    episodes/step-000010.jsonl      {"type": "image", "url": "image:9f86d0...png"}
    episodes/index.jsonl            {"file": "step-000010.jsonl", "offset": 0, "bytes": 23041, ...}
    episodes/images/9f86d0...png

An image is shown to every rollout of a group and stands in several fields of each, so a line of
JSON that held the bytes would repeat these many times. The index is written with the episodes, so
that a reader of 20,000 episodes opens one by its offset and reads no other.
"""

from __future__ import annotations

import hashlib
import random
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from ludus.errors import ConfigError
from ludus.messages import ImagePart

from .trajectory import Episode, TurnKind

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
            # Another process may write the same image at the same time.
            partial = folder / f".{secrets.token_hex(8)}.partial"
            try:
                partial.write_bytes(image.data)
                partial.replace(path)
            except OSError:
                partial.unlink(missing_ok=True)
                raise
        return ImagePart(url=PREFIX + name)

    return msgspec.json.encode(_mapped(episode, store)) + b"\n"


def restored(episode: Episode, beside: Path, images: dict[str, ImagePart]) -> Episode:
    """Return an episode with images read from files; an image whose file is gone stays a name.

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
            raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
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
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    return episodes


def episode_files(source: Path) -> list[Path]:
    """Return the files of episodes of a run, or of a folder, in order; a file stands for itself."""
    if source.is_file():
        return [source]
    folder = source / "episodes" if (source / "episodes").is_dir() else source
    return sorted(path for path in folder.glob("*.jsonl") if path.name != INDEX)


def write_episodes(path: Path, episodes: Iterable[Episode]) -> list[int]:
    """Write a file of episodes, and each image into a file beside `path`; return the bytes of each
    line.
    """
    lines = [line_of(episode, path) for episode in episodes]
    path.write_bytes(b"".join(lines))
    return [len(line) for line in lines]


INDEX = "index.jsonl"
"""The index of a folder of episodes."""
EXCERPT = 160
"""Characters of the last answer that the index keeps."""


class EpisodeLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line of the index: an episode's place in a file, and what a table shows of the episode."""

    file: str
    """The file's name, in the folder of the index."""
    offset: int
    """Bytes before the episode's line."""
    bytes: int
    """Bytes of the line, its line feed included."""
    step: int = 0
    task: str = ""
    group: str = ""
    index: int = 0
    ordinal: int = -1
    split: str = "train"
    reward: float | None = None
    """The reward of the first role; None where nobody could say."""
    status: str = "ok"
    """The status of the verdict."""
    stop: str = ""
    turns: int = 0
    tokens: int = 0
    """Sampled tokens."""
    windows: int = 0
    summaries: int = 0
    calls: int = 0
    """Calls of tools."""
    seconds: float = 0.0
    parts: dict[str, float] = {}
    """The parts of the reward, without their weights."""
    kept: str = ""
    """Why a step kept this episode; empty where it kept all of them."""
    text: str = ""
    """The beginning of the last answer, on one line."""


def indexed(
    name: str, step: int, episodes: Sequence[Episode], sizes: Sequence[int], kept: Sequence[str]
) -> list[EpisodeLine]:
    """Return the lines of the index for a file.

    Args:
        name: the file's name.
        step: the step that the episodes are from.
        episodes: the episodes, in the order of the file.
        sizes: bytes of each line, as `write_episodes` returns them.
        kept: why each was kept; empty for a file that holds all of a step.
    """
    lines: list[EpisodeLine] = []
    offset = 0
    for number, (episode, size) in enumerate(zip(episodes, sizes, strict=True)):
        why = kept[number] if kept else ""
        lines.append(line_about(episode, (name, offset, size), step=step, kept=why))
        offset += size
    return lines


def line_about(
    episode: Episode, place: tuple[str, int, int], *, step: int, kept: str = ""
) -> EpisodeLine:
    """Return the line of the index for an episode at `place`: file, offset and bytes."""
    file, offset, size = place
    line = EpisodeLine(
        file=file,
        offset=offset,
        bytes=size,
        step=step,
        task=episode.task,
        group=episode.group,
        index=episode.index,
        ordinal=episode.ordinal,
        split=episode.split,
        seconds=round(episode.wall_s, 3),
        kept=kept,
    )
    if not episode.trajectories:
        return line
    first = episode.trajectories[0]
    turns = [turn for trajectory in episode.trajectories for turn in trajectory.turns]
    line.reward, line.status = first.verdict.reward, str(first.verdict.status)
    line.stop, line.turns = str(first.stop), len(turns)
    line.tokens = sum(trajectory.sampled_tokens for trajectory in episode.trajectories)
    line.windows = sum(len(trajectory.segments) for trajectory in episode.trajectories)
    line.summaries = sum(turn.kind is TurnKind.SUMMARY for turn in turns)
    said = [turn.message for turn in turns if turn.message is not None]
    line.calls = sum(len(message.tool_calls) for message in said)
    line.parts = {name: value for name, (value, _) in first.verdict.parts.items()}
    line.text = " ".join(said[-1].text[: 4 * EXCERPT].split())[:EXCERPT] if said else ""
    return line


def chosen(episodes: Sequence[Episode], *, most: int, seed: int) -> list[tuple[Episode, str]]:
    """Choose the episodes of a step that are worth keeping, with the reason of each: the best, the
    worst, one that failed, the longest, and then random ones.

    Args:
        episodes: the episodes of a step.
        most: the most that are kept.
        seed: decides the random ones.
    """
    played = [episode for episode in episodes if episode.trajectories]
    scored = [episode for episode in played if episode.trajectories[0].verdict.reward is not None]
    failed = [episode for episode in played if episode.trajectories[0].verdict.reward is None]

    def reward(episode: Episode) -> float:
        return episode.trajectories[0].verdict.reward or 0.0

    def tokens(episode: Episode) -> int:
        return sum(trajectory.sampled_tokens for trajectory in episode.trajectories)

    shuffled = random.Random(seed).sample(played, len(played))
    wanted = [("best", episode) for episode in [max(scored, key=reward, default=None)] if episode]
    wanted += [("worst", episode) for episode in [min(scored, key=reward, default=None)] if episode]
    wanted += [("failed", episode) for episode in failed[:1]]
    wanted += [
        ("longest", episode) for episode in [max(played, key=tokens, default=None)] if episode
    ]
    wanted += [("random", episode) for episode in shuffled]
    kept: dict[int, tuple[Episode, str]] = {}
    for why, episode in wanted:
        if len(kept) < most:
            kept.setdefault(id(episode), (episode, why))
    return list(kept.values())
