"""Checks the paths and contents of files on the way into and out of a sandbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ludus.errors import ConfigError

MAX_FILES = 256
_MAX_PART = 255
_MAX_PATH = 1024


def check_path(path: str) -> str:
    """Check that a path names a file below the work directory, and return the path.

    Raises:
        ConfigError: the path is empty, absolute, leaves the directory, or cannot be a file name.

    >>> check_path("data/input.txt")
    'data/input.txt'
    """
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") for part in parts):
        raise ConfigError(f"file path {path!r} must be relative, without empty parts, '.' or '..'")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        raise ConfigError(f"file path {path!r} contains a control character")
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError as error:
        raise ConfigError(f"file path {path!r} is not valid UTF-8") from error
    if max(sizes) > _MAX_PART or len(path) > _MAX_PATH:
        raise ConfigError(f"file path {path[:60]!r}... is too long")
    return path


def check_files(files: Mapping[str, bytes | str], *, room_bytes: int) -> dict[str, bytes]:
    """Return the files to upload, with contents encoded as bytes.

    Raises:
        ConfigError: a path is not allowed, a file would also have to be a folder, there are more
            than `MAX_FILES` files, or all together exceed `room_bytes`.
    """
    checked = encode_files({check_path(path): data for path, data in files.items()})
    _check_count(checked)
    for path in checked:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in checked:
                raise ConfigError(
                    f"file {'/'.join(parts[:depth])!r} would also have to be a folder for {path!r}"
                )
    size = sum(map(len, checked.values()))
    if size > room_bytes:
        raise ConfigError(f"files of {size} bytes do not fit the sandbox's {room_bytes}")
    return checked


def check_fetch(paths: Iterable[str]) -> list[str]:
    """Return the paths to read back, without repetitions.

    Raises:
        ConfigError: a path is not allowed, or there are more than `MAX_FILES` paths.
    """
    checked = list(dict.fromkeys(check_path(path) for path in paths))
    _check_count(checked)
    return checked


def _check_count(files: Mapping[str, bytes] | list[str]) -> None:
    if len(files) > MAX_FILES:
        raise ConfigError(f"{len(files)} files in one request; at most {MAX_FILES}")


def as_bytes(data: bytes | str, name: str) -> bytes:
    """Encode a text that goes into a sandbox.

    Raises:
        ConfigError: the text is not valid Unicode; the message names it by `name`.
    """
    try:
        return data.encode() if isinstance(data, str) else bytes(data)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name} is not valid Unicode: {error}") from error


def encode_files(files: Mapping[str, bytes | str]) -> dict[str, bytes]:
    """Encode the contents of files.

    Raises:
        ConfigError: a text is not valid Unicode.
    """
    return {path: as_bytes(data, f"file {path!r}") for path, data in files.items()}
