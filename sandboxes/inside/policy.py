"""What a sandboxed program may do: system calls, files, limits. Nothing here calls the kernel."""

from __future__ import annotations

import errno
import socket

from . import seccomp
from .syscall_numbers import ALLOWED

PACKAGES = "/packages"
"""Where the allowed site-packages appear in a slot that has a root of its own."""

WORK = "/sandbox"
"""The one directory a program may write; `/tmp` and `/dev/shm` are links to it."""

BRANCHES = "/branches"
"""Where the files of a session's snapshots and branches are mounted; out of bounds for others."""

FILES = "files"
"""The directory of one branch or snapshot, below its mount."""

CONTAINER_FOLDERS = (WORK, "/tmp")
"""What a program may write in a container, where `/tmp` cannot be made a link."""

SHARED = "/dev/shm"
"""A link to the work directory, too."""

HOSTNAME = "sandbox"

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": WORK,
    "LANG": "C.UTF-8",
    "TMPDIR": WORK,
    "PYTHONDONTWRITEBYTECODE": "1",
    # one run is one core's worth of work; thread pools sized to the host only add page tables
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""The whole environment of a slot, given at `execve`: later deletions would stay readable on the
first stack page.
"""

DEVICES = ("null", "zero", "full", "random", "urandom")

ETC_FILES = {
    "passwd": "root:x:0:0::/:/bin/false\nsandbox:x:{uid}:{gid}::/sandbox:/bin/sh\n",
    "group": "root:x:0:\nsandbox:x:{gid}:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""Files written into the slot's own /etc."""

ETC_FROM_HOST = ("ld.so.cache", "alternatives")
"""What the slot's /etc borrows read-only: the loader's cache and the links of Debian's `cc` and
`awk`.
"""

DESCRIPTORS = 1024
"""RLIMIT_NOFILE of a slot, and of a program whose memory a control group counts."""

DESCRIPTORS_UNCOUNTED = 256
"""RLIMIT_NOFILE of a program elsewhere. What its sockets hold is charged by their number. It also
bounds the descriptors on their way in messages, which the kernel counts for all processes of a user
together: above its own bound a slot could send none.
"""

_CLONE, _CLONE3, _SOCKET, _SOCKETPAIR = 56, 435, 41, 53
_MOUNT, _UMOUNT = 165, 166
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_NEWEST_KNOWN = 460
_NEW_NAMESPACES = 0x7E02_0000
_CLONE_PARENT = 0x8000
_OF_A_PID = (
    "prlimit64", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr",
)  # fmt: skip
_OF_ANY_GROUP = ("setpriority", "ioprio_set")  # may name all processes of a user at once
FIRST_TO_DIE = b"1000"
"""The oom_score_adj of programs."""

_INOTIFY = ("inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch")
_SETSOCKOPT, _SEND_BUFFER = 54, (7, 32)  # SO_SNDBUF, SO_SNDBUFFORCE
_SOCKET_OPTIONS = 64
_MARKS = (
    "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
)  # fmt: skip
_ATTRIBUTES = (
    "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat",
    "utime", "utimes", "utimensat", "futimesat",
    *_MARKS,
)  # fmt: skip
_OF_TERMINALS_AND_SOCKETS = (0x5400, 0x8900)  # requests of `ioctl`; those of files set flags
_SYSV_AND_QUEUES = (29, 30, 31, 64, 65, 66, 67, 68, 69, 70, 71, 220, *range(240, 246))


def seccomp_program(
    *,
    mounts: bool,
    named_sockets: bool,
    network: bool = False,
    shared_identity: bool = False,
    memory_counted: bool = True,
) -> bytes:
    """The filter of a slot and of everything it starts.

    It is installed once per slot, so it must let through what the slot itself still does: mounting
    a fresh work directory and changing identity. A program cannot use those: they need
    capabilities it no longer has.

    Args:
        mounts: the slot renews its work directory by mounting (it has a mount namespace of its
            own).
        named_sockets: AF_UNIX sockets may be bound and connected by name; only safe where no
            socket file of the host
            is visible. Without it only connected `socketpair`s are left, since a datagram pair may
            send to a name.
        network: IPv4 sockets are let through; only safe in a network namespace of the slot's own.
        shared_identity: programs run as the slot's own user, or as that of others who are no
            concern of theirs, so the calls that set limits, priority or cores of a process may name
            only the caller itself.
        memory_counted: a control group counts memory. Without one there is nothing that takes much
            of it and that no limit of a process covers: memory files, watches, large socket
            buffers.
    """
    allowed = set(ALLOWED.values())
    allowed |= {
        _LANDLOCK_CREATE,
        _LANDLOCK_ADD,
        _LANDLOCK_RESTRICT,
    }  # a process can only take from itself by these
    rules = [seccomp.ArgumentRule(_CLONE, 0, _NEW_NAMESPACES | _CLONE_PARENT, (0,), errno.EPERM)]
    if mounts:
        allowed |= {_MOUNT, _UMOUNT}
    if shared_identity:
        allowed -= {ALLOWED[name] for name in _OF_ANY_GROUP}
        rules += [
            seccomp.ArgumentRule(ALLOWED[name], 0, 0xFFFF_FFFF, (0,), errno.EPERM)
            for name in _OF_A_PID
        ]
    if named_sockets:
        families = (socket.AF_UNIX, socket.AF_INET) if network else (socket.AF_UNIX,)
        rules.append(seccomp.ArgumentRule(_SOCKET, 0, 0xFFFF_FFFF, families, errno.EACCES))
    else:
        connected = (
            0b1011  # the bits of a socket's type that SOCK_STREAM (1) and SOCK_SEQPACKET (5) share
        )
        rules.append(
            seccomp.ArgumentRule(_SOCKETPAIR, 1, connected, (socket.SOCK_STREAM,), errno.EACCES)
        )
        allowed -= {_SOCKETPAIR, ALLOWED["connect"], ALLOWED["bind"], ALLOWED["listen"]}
    allowed.discard(_SOCKETPAIR if not named_sockets else _SOCKET)
    missing: set[str] = set()
    if not memory_counted:
        missing.update(_INOTIFY, ["memfd_create"])
        others = tuple(set(range(_SOCKET_OPTIONS)).difference(_SEND_BUFFER))
        rules.append(seccomp.ArgumentRule(_SETSOCKOPT, 2, 0xFFFF_FFFF, others, errno.EPERM))
    if not named_sockets:  # Landlock does not keep from watching and marking what is out of bounds
        missing.update(_INOTIFY)
        allowed -= {ALLOWED[name] for name in _MARKS}
    absent = [_CLONE3, *_SYSV_AND_QUEUES, *(ALLOWED[name] for name in missing)]
    return seccomp.assemble(allowed, rules, _NEWEST_KNOWN, absent=absent)


def attributes_kept() -> bytes:
    """A further filter: modes, owners, times and attributes of files stay as they are.

    For programs that share the identity of the host's own files and are held by Landlock alone,
    which leaves those calls open whatever the path.
    """
    allowed = set(range(_NEWEST_KNOWN + 1)).difference(ALLOWED[name] for name in _ATTRIBUTES)
    requests = seccomp.ArgumentRule(
        ALLOWED["ioctl"], 1, 0xFFFF_FF00, _OF_TERMINALS_AND_SOCKETS, errno.ENOTTY
    )
    return seccomp.assemble(allowed, (requests,), _NEWEST_KNOWN, absent=())
