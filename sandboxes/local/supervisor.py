"""Starts the process that guards one slot, and says what a slot's driver needs of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Protocol

from ..guest.jail import policy

PYTHON = os.path.realpath(sys.executable)
"""The interpreter of the slots: this one, past any virtual environment."""

GUEST_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder the package `guest` is imported from."""

_BOOT = """
import sys
sys.path.insert(0, sys.argv[1])
from importlib import import_module
main = import_module("guest." + sys.argv[2]).main
sys.path.pop(0)
main(*map(int, sys.argv[3:]))
"""


class Supervisor(Protocol):
    """Whatever holds a slot: when it ends, the slot and everything in it has ended."""

    @property
    def pid(self) -> int:
        """Its process, as the driver sees it."""
        ...

    def kill(self) -> None:
        """End it and all it holds. Does not wait; idempotent."""
        ...

    def poll(self) -> int | None:
        """Anything but None once it has ended. Does not wait."""
        ...


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a line that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def spawn(
    control: socket.socket, requests: socket.socket, python: str = PYTHON
) -> subprocess.Popen[bytes]:
    """Start a supervisor that inherits these two ends and nothing else."""
    return start("run.launch", control, requests, python=python)


def start(module: str, *lines: socket.socket, python: str = PYTHON) -> subprocess.Popen[bytes]:
    """Start a process that runs `main` of a module of `guest` with these ends of lines, and
    inherits nothing else.
    """
    numbers = [line.fileno() for line in lines]
    return subprocess.Popen(
        [python, "-I", "-S", "-E", "-c", _BOOT, GUEST_PARENT, module, *map(str, numbers)],
        env={**policy.ENVIRONMENT, "LD_BIND_NOW": "1"},
        pass_fds=numbers,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
