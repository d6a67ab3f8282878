"""Reads files back after a run, with the program's identity, after all processes have ended.

A path is opened component by component without following links and without blocking, and only a
regular file is read: a FIFO, a device, a socket, a link or a file that is too large is refused by
name instead.
"""

from __future__ import annotations

import errno
import json
import os
import stat

from .request import Request

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that the program left must not wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def run(request: Request) -> int:
    """Write a JSON line {path, size | refused} per path in `options["paths"]`, then the bytes."""
    paths: list[str] = request.options["paths"]  # type: ignore[assignment]
    room: int = request.options["limit_bytes"]  # type: ignore[assignment]
    with os.fdopen(1, "wb", closefd=False) as output:
        for path in paths:
            data = read(path, room)
            answer = (
                {"path": path, "refused": data}
                if isinstance(data, str)
                else {"path": path, "size": len(data)}
            )
            output.write(json.dumps(answer).encode() + b"\n")
            if isinstance(data, bytes):
                room -= len(data)
                output.write(data)
    return 0


def read(path: str, room: int) -> bytes | str:
    """Return the content of a regular file below the work directory, or a reason for refusal."""
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        return "there is no such file"
    except OSError as error:
        return f"cannot be opened ({error.strerror}); links are not followed"
    try:
        file_stat = os.fstat(descriptor)
        if not stat.S_ISREG(file_stat.st_mode):
            return "is not a regular file"
        if file_stat.st_size > room:
            return f"is too large: {file_stat.st_size} bytes, {room} left"
        size = file_stat.st_size
        parts: list[bytes] = []
        while size > 0 and (part := os.read(descriptor, min(size, 1 << 20))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    *folders, name = path.split("/")
    parent = os.open(".", _FOLDER)
    for folder in folders:
        if not stat.S_ISDIR(os.lstat(folder, dir_fd=parent).st_mode):  # gVisor would follow a link
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", folder)
        below = os.open(folder, _FOLDER, dir_fd=parent)
        os.close(parent)
        parent = below
    try:
        return os.open(name, _FILE, dir_fd=parent)
    finally:
        os.close(parent)
