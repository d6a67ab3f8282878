"""Confines the process of an environment by Landlock and a system-call filter, for good.

The process can then read the interpreter and the installed packages and nothing else of the
machine; it can write no file, open no socket, start no program and signal no other process. The
system calls and the filter are those of the sandbox (`ludus.sandboxes`), whose folder `guest` needs
the standard library alone.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from .boot import load_package

_RIGHTS = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}
"""The file rights that Landlock knows by its version; 0xFFFF from version 5 on."""
_READ = 0b1100  # read file, read directory
_FILE = 0b100
_ALL_BUT_EXECUTE = 0xFFFE
_SYSTEM = ("/usr", "/lib", "/lib64")
_FILES = ("/etc/ld.so.cache", "/etc/localtime")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


def missing(sandboxes: str) -> str:
    """Return what the walls lack on this machine; empty if nothing is missing."""
    syscalls = _jail(sandboxes, "syscalls")
    if not syscalls.supported():
        return "they need Linux on x86-64"
    if not syscalls.landlock_version():
        return "this kernel has no Landlock"
    return ""


def confine(sandboxes: str, readable: list[str], writable: list[str]) -> None:
    """Confine the calling thread and all threads and processes that it starts.

    Args:
        sandboxes: the folder that holds the sandbox's package `guest`.
        readable: files and folders that may be read besides the interpreter and its packages.
        writable: folders that may be written.

    Raises:
        OSError: a step was refused; nothing may be played then.
    """
    syscalls, policy = _jail(sandboxes, "syscalls"), _jail(sandboxes, "policy")
    version = syscalls.landlock_version()
    own = [sys.prefix, sys.base_prefix, *sys.path, os.path.dirname(os.path.realpath(os.__file__))]
    folders = {os.path.realpath(place) for place in [*own, *_SYSTEM, *readable] if place}
    allowed = [(place, _READ) for place in sorted(folders) if os.path.isdir(place)]
    files = [place for place in [*_FILES, *readable] if os.path.isfile(place)]
    allowed += [(place, _FILE) for place in files]
    allowed += [(place, 0b110) for place in _DEVICES]
    allowed += [(place, _ALL_BUT_EXECUTE) for place in writable]
    os.chdir("/")
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.drop_capabilities()
    syscalls.landlock_restrict(
        _RIGHTS.get(version, 0xFFFF),
        allowed,
        network=3 if version >= 4 else 0,
        scoped=3 if version >= 6 else 0,
    )
    syscalls.install_seccomp(
        policy.seccomp_program(mounts=False, named_sockets=False, shared_identity=True)
    )
    syscalls.install_seccomp(policy.attributes_kept())


def _jail(sandboxes: str, name: str) -> Any:
    if "guest" not in sys.modules:
        load_package("guest", os.path.join(sandboxes, "guest"))
    return importlib.import_module(f"guest.jail.{name}")
