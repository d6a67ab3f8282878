"""Estimates of kernel memory held for the processes of a slot, where no control group counts
memory.

Sockets, pipes, watches, locks and mappings are memory of the kernel's that no limit of a process
covers. The driver reads from /proc how many of each exist, and charges each with the most that it
can hold (decision 0406). Kernel objects that /proc does not count are bounded or refused by
`guest.jail.policy`.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from ..guest.jail.policy import DESCRIPTORS_UNCOUNTED

PIPE_BYTES = 64 << 10
"""The charge for a pipe, which is its full buffer; system calls that enlarge pipes are not allowed.
"""
WATCH_BYTES = 256
"""The charge for a descriptor that is watched by an epoll instance."""
LOCK_BYTES = 256
"""The charge for a lock on a range of a file."""
MAPPING_BYTES = 256
"""The charge for a mapping in the address space of a process."""

_WATCHES_READ_BYTES = 64 << 10
_MAX_WATCHES = DESCRIPTORS_UNCOUNTED**2
"""The most watches an epoll instance is charged for.

The kernel keys a watch by descriptor number and open file. A watch outlives the closing of its
number while another descriptor keeps the file open, so each number may be watched once for each
open file.
"""
_LOCKS_READ_BYTES = 8 << 20
_FEW_MAPPINGS_BYTES = 32 << 20
"""Mappings are counted exactly only if the upper bound on their charge exceeds this many bytes."""


def held_by(pids: list[int]) -> int:
    """Return an upper bound on the kernel memory, in bytes, that the processes `pids` hold
    together.

    A socket or pipe that several processes share is charged once.
    """
    total = hidden = 0
    buffers: dict[str, int] = {}
    for pid in pids:
        try:
            total += _look_at_descriptors(pid, buffers)
        except PermissionError:
            # A process can make its own /proc folder unreadable (PR_SET_DUMPABLE). So that this
            # saves nothing, every descriptor that it may have is charged as a socket.
            hidden += DESCRIPTORS_UNCOUNTED
        except (FileNotFoundError, ProcessLookupError):
            continue
    total += sum(buffers.values()) + hidden * _socket_bytes()
    return total + _locks(pids) * LOCK_BYTES + _mappings(pids) * MAPPING_BYTES


def _look_at_descriptors(pid: int, buffers: dict[str, int]) -> int:
    """Add the sockets and pipes of a process to `buffers`, and return the bytes charged for
    watches.
    """
    watches = 0
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{number}")
            if target.startswith("socket:"):
                buffers[target] = _socket_bytes()
            elif target.startswith("pipe:"):
                buffers[target] = PIPE_BYTES
            elif target == "anon_inode:[eventpoll]":
                with open(f"/proc/{pid}/fdinfo/{number}", "rb") as stream:
                    listed = stream.read(_WATCHES_READ_BYTES)
                # The list has a line per watch, tens of thousands for a full epoll instance. Where
                # it is cut off the most is charged, which bounds the cost of reading.
                cut_off = len(listed) == _WATCHES_READ_BYTES
                watches += _MAX_WATCHES if cut_off else listed.count(b"tfd:")
        except FileNotFoundError:
            continue
    return watches * WATCH_BYTES


@cache
def _socket_bytes() -> int:
    """Return the charge for a socket, in bytes: the size of the send buffer.

    Data in flight between Unix sockets is charged to the sender's buffer, which a program may not
    enlarge (`guest.jail.policy`).
    """
    try:
        return int(Path("/proc/sys/net/core/wmem_default").read_text())
    except OSError:
        return 212_992  # the kernel's own default


def _locks(pids: list[int]) -> int:
    """Return how many locks of file ranges the processes hold or wait for."""
    try:
        with open("/proc/locks", "rb") as stream:
            lines = stream.read(_LOCKS_READ_BYTES).splitlines()
    except OSError:
        return 0
    pid_texts = {b"%d" % pid for pid in pids}
    # A line is like `1: POSIX  ADVISORY  WRITE 1234 00:1f:5 0 0`, and the owner's pid is its fifth
    # word. The line of a process that waits for a lock has an arrow: `1: -> POSIX ...`.
    rows = ([word for word in line.split() if word != b"->"] for line in lines)
    return sum(row[4] in pid_texts for row in rows if len(row) > 4)


def _mappings(pids: list[int]) -> int:
    """Return how many mappings the processes have, or 0 where the charge would be small.

    A mapping has at least a page, so the number of pages bounds the number of mappings. Reading all
    mappings is slow, and happens only where that bound is high.
    """
    pages_by_pid: dict[int, int] = {}
    for pid in pids:
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[0])
        except (FileNotFoundError, ProcessLookupError, IndexError):
            continue
        pages_by_pid[pid] = pages
    if sum(min(pages, _max_mappings()) for pages in pages_by_pid.values()) * MAPPING_BYTES <= (
        _FEW_MAPPINGS_BYTES
    ):
        return 0
    return sum(_counted_mappings(pid) for pid in pages_by_pid)


def _counted_mappings(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes().count(b"\n")
    except PermissionError:  # The process made itself unreadable: see `held_by`.
        return _max_mappings()
    except (FileNotFoundError, ProcessLookupError):
        return 0


@cache
def _max_mappings() -> int:
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except OSError:
        return 65_530  # the kernel's own default
