"""The system calls that Python does not wrap, each as a thin function.

A failure is an `OSError` that names the call. This is the only file that uses ctypes. It decides
nothing: `policy` and `namespaces` decide what is called with which arguments.
"""

from __future__ import annotations

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
_libc.mount.argtypes = [
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
]

CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8

_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, PTRACE_SYSCALL = 0x4206, 0x4207, 17, 24
PTRACE_CONT = 7
PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_GETEVENTMSG = 12, 13, 0x4201
PTRACE_O_TRACESYSGOOD, PTRACE_O_TRACEFORK, PTRACE_O_EXITKILL = 1, 2, 1 << 20
PTRACE_EVENT_FORK, PTRACE_EVENT_STOP = 1, 128

_NR_PIVOT_ROOT, _NR_MOUNT_SETATTR, _NR_LANDLOCK_CREATE = 155, 442, 444
_NR_PIDFD_GETFD, _NR_KCMP = 438, 312
_KCMP_VM, _KCMP_FILES, _KCMP_FS, _KCMP_SIGHAND = 1, 2, 3, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_CAPABILITY_VERSION_3 = 0x2008_0522


def supported() -> bool:
    """Return whether the numbers here and in `syscall_numbers` are valid on this machine."""
    return (os.uname().sysname, os.uname().machine) == ("Linux", "x86_64")


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Move to new namespaces of the kinds in `flags`; a pid namespace starts with the next
    child.
    """
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount `source` on `target`, with the given flags and options."""
    encode = os.fsencode  # the name of a file need not be text
    arguments = encode(source), encode(target), encode(kind), flags, encode(options)
    _check(_libc.mount(*arguments), f"mount({source} on {target}, {kind or 'bind'}, {flags:#x})")


def restrict_mount(target: str, attributes: int, *, recursive: bool) -> None:
    """Add mount attributes (read-only, nosuid, ...) to `target`, and below if `recursive`."""
    change = ctypes.create_string_buffer(struct.pack("QQQQ", attributes, 0, 0, 0))
    flags = _AT_RECURSIVE if recursive else 0
    result = _libc.syscall(_NR_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), flags, change, 32)
    _check(result, f"mount_setattr({target}, {attributes:#x})")


def unmount(target: str) -> None:
    """Take `target` out of the tree at once, even while files inside are open."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount2({target})")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root and move the old root to `old`."""
    _check(_libc.syscall(_NR_PIVOT_ROOT, os.fsencode(new), os.fsencode(old)), f"pivot_root({new})")


def prctl(option: int, first: int = 0, second: int = 0) -> int:
    """Set an attribute of this process."""
    result: int = _libc.prctl(option, first, second, 0, 0)
    return result if result >= 0 else _check(result, f"prctl({option}, {first})")


def current_core() -> int:
    """Return the number of the core on which this process runs."""
    return _check(_libc.sched_getcpu(), "sched_getcpu()")


def setns(namespace: int, kind: int) -> None:
    """Enter the namespace behind a descriptor."""
    _check(_libc.setns(namespace, kind), f"setns({kind:#x})")


def pidfd_getfd(process: int, descriptor: int) -> int:
    """Copy a descriptor of another process."""
    copied = _libc.syscall(_NR_PIDFD_GETFD, process, descriptor, 0)
    return _check(copied, f"pidfd_getfd({descriptor})")


def share_anything(first: int, second: int) -> bool:
    """Return whether two processes share memory, descriptors, directories or signal handlers."""
    kinds = (_KCMP_VM, _KCMP_FILES, _KCMP_FS, _KCMP_SIGHAND)
    compared = [_libc.syscall(_NR_KCMP, first, second, kind, 0, 0) for kind in kinds]
    return any(_check(result, "kcmp()") == 0 for result in compared)


def ptrace(request: int, pid: int, data: int = 0) -> None:
    """Control a process that this process traces, or begin to trace a process."""
    _check(_libc.ptrace(request, pid, None, data), f"ptrace({request:#x}, {pid})")


def ptrace_read(request: int, pid: int, size: int) -> bytes:
    """Make a request that writes an answer into memory, and return the answer."""
    answer = ctypes.create_string_buffer(size)
    ptrace(request, pid, ctypes.addressof(answer))
    return answer.raw


def ptrace_write(request: int, pid: int, data: bytes) -> None:
    """Make a request that reads an argument from memory."""
    buffer = ctypes.create_string_buffer(data, len(data))
    ptrace(request, pid, ctypes.addressof(buffer))


def drop_capabilities() -> None:
    """Empty the effective, permitted, inheritable and ambient sets of this process."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0))
    no_capabilities = ctypes.create_string_buffer(24)
    _check(_libc.capset(header, no_capabilities), "capset(0)")


def drop_bounding_set() -> None:
    """Keep all programs that are started from now on from gaining a capability by `execve`."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            return  # past the last capability this kernel knows


def install_seccomp(program: bytes) -> None:
    """Filter all later system calls of this process and all descendants by a BPF program."""
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    )
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filter_))


def landlock_version() -> int:
    """Return the Landlock ABI of this kernel; 0 where Landlock is off."""
    return max(0, int(_libc.syscall(_NR_LANDLOCK_CREATE, None, 0, 1)))


def landlock_ruleset(
    handled: int, allowed: list[tuple[str, int]], *, network: int = 0, scoped: int = 0
) -> int:
    """Make a Landlock ruleset and return the descriptor.

    A process that restricts itself by the ruleset loses every access right in `handled`, except the
    rights in `allowed`.

    Args:
        handled: the file access rights to take away.
        allowed: (path, rights) that are kept, for the path and everything below.
        network: the TCP rights to take away (bind 1, connect 2).
        scoped: 1 cuts off abstract sockets outside the domain, 2 signals to outside.
    """
    attributes = ctypes.create_string_buffer(struct.pack("QQQ", handled, network, scoped))
    ruleset = _check(
        _libc.syscall(_NR_LANDLOCK_CREATE, attributes, 24, 0), "landlock_create_ruleset"
    )
    try:
        for path, rights in allowed:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = ctypes.create_string_buffer(struct.pack("=Qi", rights & handled, place))
            added = _libc.syscall(_NR_LANDLOCK_CREATE + 1, ruleset, 1, rule, 0)
            os.close(place)
            _check(added, f"landlock_add_rule({path})")
    except OSError:
        os.close(ruleset)
        raise
    return ruleset


def landlock_restrict(
    handled: int, allowed: list[tuple[str, int]], *, network: int = 0, scoped: int = 0
) -> None:
    """Give up the rights that `landlock_ruleset` describes, for good."""
    ruleset = landlock_ruleset(handled, allowed, network=network, scoped=scoped)
    try:
        _check(_libc.syscall(_NR_LANDLOCK_CREATE + 2, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)
