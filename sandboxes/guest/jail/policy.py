"""The rights of a sandboxed program: system calls, files, limits. Nothing here calls the kernel."""

from __future__ import annotations

import errno
import socket

from . import seccomp
from .syscall_numbers import ALLOWED

PACKAGES = "/packages"
"""The folder at which the allowed site-packages appear in a slot with its own root file system."""

WORK = "/sandbox"
"""The only directory that a program may write; `/tmp` and `/dev/shm` are links to it."""

BRANCHES = "/branches"
"""The folder at which the files of a session's snapshots and branches are mounted; closed to all
other programs.
"""

FILES = "files"
"""The directory of a branch or snapshot, below its mount."""

CONTAINER_FOLDERS = (WORK, "/tmp")
"""The folders that a program may write in a container, where `/tmp` cannot be made a link."""

SHARED = "/dev/shm"
"""The folder of shared memory; also a link to the work directory."""

HOSTNAME = "sandbox"

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": WORK,
    "LANG": "C.UTF-8",
    "TMPDIR": WORK,
    "PYTHONDONTWRITEBYTECODE": "1",
    # A run is meant for a single core; thread pools sized to the host only add page tables.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""The whole environment of a slot, given at `execve`: a variable that is deleted later would stay
readable on the first stack page.
"""

DEVICES = ("null", "zero", "full", "random", "urandom")

ETC_FILES = {
    "passwd": "root:x:0:0::/:/bin/false\nsandbox:x:{uid}:{gid}::/sandbox:/bin/sh\n",
    "group": "root:x:0:\nsandbox:x:{gid}:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""File name -> content of files that are written into the slot's own /etc."""

ETC_FROM_HOST = ("ld.so.cache", "alternatives")
"""The files of /etc that a slot shares read-only with the host: the loader's cache and the links of
Debian's `cc` and `awk`.
"""

DESCRIPTORS = 1024
"""RLIMIT_NOFILE of a slot, and of a program whose memory a control group counts."""

DESCRIPTORS_UNCOUNTED = 256
"""RLIMIT_NOFILE of a program whose memory nothing counts, since the memory of sockets is then
bounded by their number.

The limit also bounds the descriptors in transit in messages, which the kernel counts for all
processes of a user together: a slot above its own bound could send none.
"""

_CLONE, _CLONE3, _SOCKET, _SOCKETPAIR = 56, 435, 41, 53
_MOUNT, _UMOUNT = 165, 166
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_NEWEST_KNOWN = 460
_NEW_NAMESPACES = 0x7E02_0000
_WHOLE = 0xFFFF_FFFF
_CONNECTED = 0b1011
"""The bits of a socket's type in which SOCK_STREAM (1) and SOCK_SEQPACKET (5) are alike, and differ
from SOCK_DGRAM (2) and SOCK_RAW (3).
"""
_CLONE_PARENT = 0x8000
_OF_A_PID = (
    "prlimit64", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr",
)  # fmt: skip
_OF_ANY_GROUP = ("setpriority", "ioprio_set")
"""Calls that may name all processes of a user at once, and so cannot be held to the caller."""
FIRST_TO_DIE = b"1000"
"""The oom_score_adj of programs: when memory runs out, the kernel kills them first."""

_INOTIFY = ("inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch")
_SETSOCKOPT, _SEND_BUFFER = 54, (7, 32)  # SO_SNDBUF, SO_SNDBUFFORCE
_SOCKET_OPTIONS = 64
_FCNTL = 72
_FCNTL_UNCOUNTED = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 36, 1025, 1030, 1032, 1033, 1034,
)  # fmt: skip
"""The `fcntl` requests that are allowed where nothing counts memory: no leases, no locks of open
files (which are charged to no process), no larger pipes.
"""
_FCNTL_COUNTED = (*_FCNTL_UNCOUNTED, 37, 38, 1024, 1031, *range(1035, 1041))
"""Those that are allowed where memory is counted: all but notices of changes in a folder."""

SIGNALS_UNCOUNTED = 1024
"""RLIMIT_SIGPENDING of a program whose memory nothing counts: timers and queued signals."""
_MARKS = (
    "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
)  # fmt: skip
_ATTRIBUTES = (
    "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat",
    "utime", "utimes", "utimensat", "futimesat",
    *_MARKS,
)  # fmt: skip
# The first bytes of the `ioctl` requests for terminals and for sockets. Requests for files are left
# out, since they could set flags of files.
_OF_TERMINALS_AND_SOCKETS = (0x5400, 0x8900)
_SYSV_AND_QUEUES = (29, 30, 31, 64, 65, 66, 67, 68, 69, 70, 71, 220, *range(240, 246))


def seccomp_program(
    *,
    mounts: bool,
    named_sockets: bool,
    network: bool = False,
    shared_identity: bool = False,
    memory_counted: bool = True,
) -> bytes:
    """Return the system-call filter of a slot, which all descendants inherit.

    The filter is installed once per slot, so it must let through what the slot itself still does:
    mounting a fresh work directory and changing identity. A program cannot use those calls, since
    they need capabilities that it no longer has.

    Args:
        mounts: the slot renews its work directory by mounting, in its own mount namespace.
        named_sockets: AF_UNIX sockets may be bound and connected by name; only safe where no socket
            file of the host is visible. Otherwise only connected `socketpair`s are allowed, since a
            datagram pair may send to a name.
        network: IPv4 sockets are allowed; only safe in the slot's own network namespace.
        shared_identity: programs run with the user id of the slot, or of others that they must not
            affect, so the calls that set limits, priority or cores of a process may name only the
            caller itself.
        memory_counted: a control group counts memory. Otherwise everything is refused that takes
            much memory and is covered by no limit of a process: memory files, large socket buffers
            and pipes, locks that belong to no process.
    """
    filter_ = _Filter()
    if mounts:
        filter_.allowed |= {_MOUNT, _UMOUNT}
    if shared_identity:
        filter_.names_only_itself()
    if named_sockets:
        filter_.opens_sockets((socket.AF_UNIX, socket.AF_INET) if network else (socket.AF_UNIX,))
    else:
        filter_.reaches_no_name()
    filter_.restrict(_FCNTL, 1, _WHOLE, _FCNTL_COUNTED if memory_counted else _FCNTL_UNCOUNTED)
    if not memory_counted:
        filter_.takes_no_uncounted_memory()
    return filter_.assembled()


class _Filter:
    """Collects the decisions about the filter; begins with what every program may do."""

    def __init__(self) -> None:
        # A child restricts itself by these two calls. The third, which adds rules, is refused:
        # rules take kernel memory without a bound, and only the slot needs any.
        landlock = {_LANDLOCK_CREATE, _LANDLOCK_RESTRICT}
        self.allowed = {*ALLOWED.values(), *landlock} - {_SOCKET, _SOCKETPAIR}
        self.rules: list[seccomp.ArgumentRule] = []
        # clone3 has its flags in memory, where a filter cannot look; ENOSYS makes the C library use
        # clone.
        # A watch on a system folder would tell what the host does there, although it is read-only.
        watches = {ALLOWED[name] for name in _INOTIFY}
        self.absent = {_CLONE3, *_SYSV_AND_QUEUES, *watches}
        # A new namespace would give capabilities inside it; CLONE_PARENT would make a child of the
        # slot.
        self.restrict(_CLONE, 0, _NEW_NAMESPACES | _CLONE_PARENT, (0,))

    def restrict(
        self,
        number: int,
        argument: int,
        mask: int,
        expected: tuple[int, ...],
        error: int = errno.EPERM,
    ) -> None:
        """Let a call pass only with these values of an argument."""
        self.rules.append(seccomp.ArgumentRule(number, argument, mask, expected, error))

    def names_only_itself(self) -> None:
        """Refuse to set limits, priority or cores of any process but the caller (pid 0)."""
        self.allowed -= {ALLOWED[name] for name in _OF_ANY_GROUP}
        for name in _OF_A_PID:
            self.restrict(ALLOWED[name], 0, _WHOLE, (0,))

    def opens_sockets(self, families: tuple[int, ...]) -> None:
        self.allowed.add(_SOCKETPAIR)
        self.restrict(_SOCKET, 0, _WHOLE, families, errno.EACCES)

    def reaches_no_name(self) -> None:
        """Refuse sockets with names, and marking files: Landlock does not cover these."""
        self.restrict(_SOCKETPAIR, 1, _CONNECTED, (socket.SOCK_STREAM,), errno.EACCES)
        self.allowed -= {ALLOWED[name] for name in ("connect", "bind", "listen", *_MARKS)}

    def takes_no_uncounted_memory(self) -> None:
        """Refuse what takes kernel memory that no limit of a process covers (decision 0406)."""
        other_options = tuple(set(range(_SOCKET_OPTIONS)).difference(_SEND_BUFFER))
        self.restrict(_SETSOCKOPT, 2, _WHOLE, other_options)
        self.absent.add(ALLOWED["memfd_create"])

    def assembled(self) -> bytes:
        return seccomp.assemble(self.allowed, self.rules, _NEWEST_KNOWN, sorted(self.absent))


def attributes_kept() -> bytes:
    """Return a further filter that keeps modes, owners, times and attributes of files unchanged.

    It is for programs that share the identity of the host's own files and are restricted by
    Landlock alone, which allows those calls for any path.
    """
    allowed = set(range(_NEWEST_KNOWN + 1)).difference(ALLOWED[name] for name in _ATTRIBUTES)
    requests = seccomp.ArgumentRule(
        ALLOWED["ioctl"], 1, 0xFFFF_FF00, _OF_TERMINALS_AND_SOCKETS, errno.ENOTTY
    )
    return seccomp.assemble(allowed, (requests,), _NEWEST_KNOWN, absent=())
