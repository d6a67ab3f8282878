"""Copies a directory tree that a program has filled.

Regular files, folders and links are copied, whatever their names; no link is followed, and special
files are left out.
"""

from __future__ import annotations

import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO that takes a file's place must not keep the opening waiting.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE_BYTES = 1 << 24


def copy_tree(source: str, target: str) -> None:
    """Copy the content of `source` into the empty folder `target`, with the rights of this process.

    Raises:
        OSError: something cannot be read, or there is no room.
    """
    waiting = [(os.open(source, _FOLDER), os.open(target, _FOLDER))]
    try:
        while waiting:
            source_folder, target_folder = waiting.pop()
            try:
                waiting += _copy_folder(source_folder, target_folder)
            finally:
                os.close(source_folder)
                os.close(target_folder)
    finally:
        for pair in waiting:
            for descriptor in pair:
                os.close(descriptor)


def _copy_folder(source_folder: int, target_folder: int) -> list[tuple[int, int]]:
    """Copy the files of a folder; return the folders inside, opened on both sides."""
    below: list[tuple[int, int]] = []
    for name in os.listdir(source_folder):
        entry_stat = os.stat(name, dir_fd=source_folder, follow_symlinks=False)
        if stat.S_ISDIR(entry_stat.st_mode):
            os.mkdir(name, 0o700, dir_fd=target_folder)
            below.append(
                (
                    os.open(name, _FOLDER, dir_fd=source_folder),
                    os.open(name, _FOLDER, dir_fd=target_folder),
                )
            )
        elif stat.S_ISLNK(entry_stat.st_mode):
            os.symlink(os.readlink(name, dir_fd=source_folder), name, dir_fd=target_folder)
        elif stat.S_ISREG(entry_stat.st_mode):
            read = os.open(name, _READ, dir_fd=source_folder)
            write = -1
            try:
                write = os.open(
                    name, _WRITE, stat.S_IMODE(entry_stat.st_mode) & 0o777, dir_fd=target_folder
                )
                # Asked again: the name may have been given to another file since the first look.
                if stat.S_ISREG(os.fstat(read).st_mode):
                    while os.sendfile(write, read, None, _AT_ONCE_BYTES):
                        pass
                    os.utime(write, ns=(entry_stat.st_atime_ns, entry_stat.st_mtime_ns))
            finally:
                os.close(read)
                if write >= 0:
                    os.close(write)
    return below
