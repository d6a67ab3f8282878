"""Starts the supervisor of a slot, and defines what the driver needs of a supervisor."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Protocol

from ..guest.jail import policy

PYTHON = os.path.realpath(sys.executable)
"""The interpreter for slots: this interpreter, with links of a virtual environment resolved."""

GUEST_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder from which a slot imports the package `guest`."""

# The folder of `guest` is in `sys.path` only during the import, and not for programs.
_BOOT = """
import sys
sys.path.insert(0, sys.argv[1])
from importlib import import_module
main = import_module("guest." + sys.argv[2]).main
sys.path.pop(0)
main(*map(int, sys.argv[3:]))
"""


class Supervisor(Protocol):
    """A process that guards a slot: when the supervisor ends, the whole slot has ended."""

    @property
    def pid(self) -> int:
        """The pid of the supervisor, in the pid namespace of the driver."""
        ...

    def end(self) -> None:
        """Have all processes of the slot ended, without waiting. A second call does nothing."""
        ...

    def poll(self) -> int | None:
        """Return None while the supervisor runs, and anything else afterwards, without waiting."""
        ...


class Process(subprocess.Popen[bytes]):
    """A process of this interpreter outside every slot, such as the supervisor of a slot."""

    def end(self) -> None:
        """Ask the process to end, after the slot has ended. A second call does nothing."""
        self.terminate()


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connected Unix socket that preserves message boundaries."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def spawn(control: socket.socket, requests: socket.socket, python: str = PYTHON) -> Process:
    """Start the supervisor of a slot, which inherits these two sockets and no other descriptor."""
    return start("run.launch", control, requests, python=python)


def start(module: str, *lines: socket.socket, python: str = PYTHON) -> Process:
    """Start a process that runs `main` of the module `guest.<module>` with the given sockets.

    The process inherits no other descriptors but these, gets a fixed environment, and leads a
    session of its own.
    """
    numbers = [line.fileno() for line in lines]
    return Process(
        [python, "-I", "-S", "-E", "-c", _BOOT, GUEST_PARENT, module, *map(str, numbers)],
        env={**policy.ENVIRONMENT, "LD_BIND_NOW": "1"},
        pass_fds=numbers,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
