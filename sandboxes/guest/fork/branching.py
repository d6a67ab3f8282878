"""The changes that the snapshot server makes to a session's processes, by system calls in stopped
processes.

A *frozen copy* of a session's process never runs again: it is stopped for good, as the state of a
snapshot. A *branch* is a copy of a frozen copy. Before it runs its first instruction, it has been
given descriptors, a directory and a Landlock domain of its own, in which no other branch can be
reached.
"""

from __future__ import annotations

import os
import socket
import stat
import struct

from ..jail import policy, syscalls as sc
from .tracee import Tracee

_READ, _ALL, _OF_A_FILE = 0b1101, 0xFFFF, 0b100_0000_0000_0111
_SCOPED = 0b11  # Landlock: abstract sockets and signals
# x86-64 system call numbers.
_OPEN, _CLOSE, _DUP2, _SOCKETPAIR, _PIPE2 = 257, 3, 33, 53, 293
_CHDIR, _SETSID, _SIGACTION = 80, 112, 13
_RECVMSG, _LANDLOCK_RESTRICT = 47, 446
_CONTROL_BYTES = 24
"""The size of the control message for a single descriptor."""
_AT_FDCWD, _SIGCHLD, _SIG_IGN = -100, 17, 1
_ANSWER = -1
"""A placeholder for the address into which a call writes its answer."""

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib64", "/etc", policy.PACKAGES)
"""Folders that no program can change, besides the readable places of the slot's plan."""

LINE = 3
"""The descriptor of a session's line to the driver; below are input, output and errors."""


class UncopyableProcess(Exception):
    """Copies of this process would share something with each other, or would miss something."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text


def examine(pid: int, session: int, readable: list[str]) -> None:
    """Check that a stopped process has nothing that copies would share.

    They must not share anything with each other, nor with the session they were copied from.

    Raises:
        UncopyableProcess: the process has threads, shared memory, open files or sockets.
    """
    if len(os.listdir(f"/proc/{pid}/task")) != 1:
        raise UncopyableProcess("threads", "other threads are running")
    if sc.share_anything(pid, session):
        raise UncopyableProcess("shared_memory", "the copy is not a process of its own")
    for number in os.listdir(f"/proc/{pid}/fd"):
        if int(number) <= LINE:
            continue
        place = os.readlink(f"/proc/{pid}/fd/{number}")
        mode = os.stat(f"/proc/{pid}/fd/{number}").st_mode
        is_device = place.startswith("/dev/") and stat.S_ISCHR(mode)
        if is_device or (stat.S_ISREG(mode) and _is_below(place, readable)):
            continue
        if stat.S_ISSOCK(mode):
            raise UncopyableProcess("sockets", f"descriptor {number} is a socket")
        raise UncopyableProcess("files", f"descriptor {number} is open ({place}); close it first")
    with open(f"/proc/{pid}/maps", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            place = fields[5].rstrip("\n") if len(fields) > 5 else ""
            if not place or place.startswith("[") or _is_below(place, readable):
                continue  # private memory, or a file that nobody can change
            if "s" in fields[1]:
                raise UncopyableProcess("shared_memory", f"memory is shared ({place})")
            raise UncopyableProcess("files", f"a file is mapped ({place})")


def _is_below(place: str, readable: list[str]) -> bool:
    folders = (*readable, *_SYSTEM)
    return any(place == folder or place.startswith(folder + "/") for folder in folders)


def settle_frozen(frozen: Tracee) -> None:
    """Take the session's line and outputs away from a frozen copy, and ignore the ends of children.

    Nobody will wait for those children, so the kernel has to reap them.
    """
    _occupy(frozen)
    _handle_child_signal(frozen, _SIG_IGN)


def _handle_child_signal(process: Tracee, handler: int) -> None:
    # struct kernel_sigaction: handler, flags, restorer, mask
    process.call(_SIGACTION, _SIGCHLD, process.put(struct.pack("<4Q", handler, 0, 0, 0)), 0, 8)
    process.forget()


def restrict(process: Tracee, root: str, readable: list[str], own_folder: str) -> None:
    """Confine a stopped process to the directory `own_folder` and the readable files, by Landlock.

    Its signals and abstract sockets can reach no processes but those that it starts.

    Args:
        process: the stopped process.
        root: the path under which this process sees the root of the stopped process.
        readable: files and folders that everyone may read.
        own_folder: the only directory that the process may write.
    """
    rules = [(place, _READ) for place in dict.fromkeys((*readable, *_SYSTEM))]
    # The Landlock domain decides which files of /proc the process may open.
    allowed = [
        (root + place, rights if os.path.isdir(root + place) else rights & _OF_A_FILE)
        for place, rights in [
            *rules,
            ("/dev", _READ | 0b10),
            ("/proc", _READ | 0b10),
            (own_folder, _ALL),
        ]
        if os.path.exists(root + place)
    ]
    # The ruleset is made here and handed over, since the program's filter refuses to add rules.
    ruleset = sc.landlock_ruleset(_ALL, allowed, scoped=_SCOPED)
    try:
        remote_ruleset = _give(process, ruleset)
    finally:
        os.close(ruleset)
    process.call(_LANDLOCK_RESTRICT, remote_ruleset, 0)
    process.call(_CLOSE, remote_ruleset)
    process.forget()


def _give(process: Tracee, descriptor: int) -> int:
    """Hand a descriptor of this process to a stopped process, and return the new number."""
    remote_end, far = _descriptor_pair(
        process, _SOCKETPAIR, socket.AF_UNIX, socket.SOCK_STREAM, 0, _ANSWER
    )
    process_descriptor = os.pidfd_open(process.pid)
    try:
        with socket.socket(fileno=sc.pidfd_getfd(process_descriptor, far)) as end:
            socket.send_fds(end, [b"r"], [descriptor])
    finally:
        os.close(process_descriptor)
    byte, control = process.put(bytes(8)), process.put(bytes(_CONTROL_BYTES))
    vector = process.put(struct.pack("<QQ", byte, 1))
    # struct msghdr: no name, one vector, room for the control message of one descriptor
    header = struct.pack("<QQQQQQQ", 0, 0, vector, 1, control, _CONTROL_BYTES, 0)
    process.call(_RECVMSG, remote_end, process.put(header), 0)
    (received,) = struct.unpack("<i", process.take(control + 16, 4))  # behind struct cmsghdr
    process.call(_CLOSE, remote_end)
    process.call(_CLOSE, far)
    process.forget()
    return int(received)


def settle_branch(branch: Tracee, own_folder: str) -> list[int]:
    """Give a new branch separate descriptors, directory, session and signals.

    Returns:
        The driver's ends: line, output, errors.
    """
    _occupy(branch)
    process = os.pidfd_open(branch.pid)
    try:
        line_end, remote_line_end = _descriptor_pair(
            branch, _SOCKETPAIR, socket.AF_UNIX, socket.SOCK_STREAM, 0, _ANSWER
        )
        descriptors = [_keep(branch, process, LINE, line_end, remote_line_end)]
        for number in (1, 2):
            reader, writer = _descriptor_pair(branch, _PIPE2, _ANSWER, 0)
            descriptors.append(_keep(branch, process, number, writer, reader))
            # A program may open its output by name (/dev/stdout), under another user id.
            os.fchmod(descriptors[-1], 0o622)
    finally:
        os.close(process)
    branch.call(_CHDIR, branch.put(os.fsencode(own_folder) + b"\0"))
    branch.call(_SETSID)
    _handle_child_signal(branch, 0)
    return descriptors


def _occupy(branch: Tracee) -> None:
    """Put /dev/null behind all standard descriptors, so that new descriptors get higher numbers."""
    null = branch.call(_OPEN, _AT_FDCWD, branch.put(b"/dev/null\0"), os.O_RDWR)
    for number in range(LINE + 1):
        branch.call(_DUP2, null, number)
    if null > LINE:
        branch.call(_CLOSE, null)
    branch.forget()


def _descriptor_pair(branch: Tracee, call: int, *arguments: int) -> tuple[int, int]:
    answer = branch.put(bytes(8))
    branch.call(call, *(answer if value == _ANSWER else value for value in arguments))
    first, second = struct.unpack("<2i", branch.take(answer, 8))
    branch.forget()
    return first, second


def _keep(branch: Tracee, process: int, number: int, our_end: int, remote_end: int) -> int:
    """Leave `our_end` to the branch as descriptor `number`; take `remote_end` out of the branch."""
    end = sc.pidfd_getfd(process, remote_end)
    branch.call(_DUP2, our_end, number)
    branch.call(_CLOSE, our_end)
    branch.call(_CLOSE, remote_end)
    return end
