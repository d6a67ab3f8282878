"""Empties a directory that a program has filled, however deep, locked or oddly named the content.

Everything is done by descriptor, level by level: the folders of a folder are moved to the top
before it is removed, so no path grows long, nothing recurses, and no link is followed.
"""

from __future__ import annotations

import errno
import os
import stat
import traceback
from collections.abc import Iterator
from itertools import count

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def empty(folder: str) -> None:
    """Remove everything in `folder`, with the rights of this process.

    Raises:
        OSError: something cannot be removed.
    """
    top = os.open(folder, _FOLDER)
    numbers = count()
    try:
        while names := _remove_files(top):
            for name in names:
                # Remove the folder `name` of `top`, after moving the folders inside to `top`.
                os.chmod(name, 0o700, dir_fd=top)  # the program may have removed its own rights
                below = os.open(name, _FOLDER, dir_fd=top)
                try:
                    for inner in _remove_files(below):
                        # Moving a folder changes its entry "..", so the folder must be writable.
                        os.chmod(inner, 0o700, dir_fd=below)
                        _move_up(inner, below, top, numbers)
                finally:
                    os.close(below)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _remove_files(top: int) -> list[str]:
    """Unlink everything but folders; return the names of the folders."""
    # A new descriptor begins at the first entry, wherever `top` has been read to.
    reopened = os.open(".", _FOLDER, dir_fd=top)
    try:
        with os.scandir(reopened) as scan:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan]
    finally:
        os.close(reopened)
    folders: list[str] = []
    for name, is_folder in entries:
        if is_folder:
            folders.append(name)
        else:
            os.unlink(name, dir_fd=top)
    return folders


def _move_up(name: str, below: int, top: int, numbers: Iterator[int]) -> None:
    for number in numbers:
        try:
            os.rename(name, f"{number:x}", src_dir_fd=below, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            return


def holds_more(folder: str, entries: int, room_bytes: int) -> bool:
    """Return whether a directory holds more than so many entries or bytes at any depth.

    At most `entries` entries are looked at. Folders nested more than `_DEEPEST` levels count as
    more, since a descriptor is held for each level.
    """
    try:
        levels = [_entered(folder)]
    except OSError:
        return False
    try:
        while levels:
            level, names = levels[-1]
            if not names:
                os.close(levels.pop()[0])
                continue
            entries -= 1
            try:
                item = os.lstat(name := names.pop(), dir_fd=level)
                room_bytes -= item.st_blocks * 512
                if stat.S_ISDIR(item.st_mode):
                    levels.append(_entered(name, level))
            except OSError:  # gone meanwhile, or closed to this process by its owner
                continue
            if entries < 0 or room_bytes < 0 or len(levels) > _DEEPEST:
                return True
        return False
    finally:
        for level, _ in levels:
            os.close(level)


_DEEPEST = 400


def _entered(name: str, parent: int | None = None) -> tuple[int, list[str]]:
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:  # a program may make folders that it does not let anybody list
        _unlock(name, parent)
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    try:
        return descriptor, os.listdir(descriptor)
    except OSError:  # such as no descriptor left to list with
        os.close(descriptor)
        raise


def _unlock(name: str, parent: int | None) -> None:
    """Give the owner of a folder all rights to it.

    A program that still runs may put a link in the place of the folder at any time. The folder is
    therefore held before its mode is changed, since a change by name would follow the link.
    """
    held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{held}", 0o700)  # `fchmod` takes no descriptor of this kind
    finally:
        os.close(held)


def empty_as(uid: int, gid: int, folders: tuple[str, ...]) -> None:
    """Empty `folders` in a child process with the identity that owns the content.

    Root without capabilities may not enter a folder that a program has locked; the owner may unlock
    the folder.

    Raises:
        OSError: the child failed; what is left is unknown.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            for folder in folders:
                empty(folder)
            code = 0
        except OSError:
            traceback.print_exc()
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError(f"{' and '.join(folders)} cannot be emptied after a run")
