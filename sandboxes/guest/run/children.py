"""The child process of a run: locks down, waits for the request, carries that out, and exits."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable

from ..jail import egress, policy, syscalls as sc
from ..testing import run_pytest, run_repository, run_tests, solution_server
from . import command, fetch, program, repl, uploads
from .plan import LANDLOCK, UNSAFE, USERNS, JailPlan
from .request import (
    COMMAND,
    FETCH,
    PROVE,
    PROVE_MANY,
    PROVE_PYTEST,
    PROVE_REPOSITORY,
    PYTHON,
    REPL,
    SERVE,
    Request,
    receive,
)

_exit = os._exit  # kept here, since a program may replace the function in `os`

Mode = Callable[[Request], int]

MODES: dict[str, Mode] = {
    PYTHON: program.run,
    COMMAND: command.run,
    FETCH: fetch.run,
    SERVE: solution_server.run,
    PROVE: run_tests.run,
    PROVE_MANY: run_tests.run_many,
    PROVE_PYTEST: run_pytest.run,
    PROVE_REPOSITORY: run_repository.run,
    REPL: repl.run,
}
"""For each mode, the function that carries out a request and returns the exit code."""

HIGHEST_DESCRIPTOR = 1 << 20

KEPT = ("peer", "report")
"""Streams that stay open while the request runs, as descriptors 3 and 4."""


def main(plan: JailPlan, requests: socket.socket, number: int) -> None:
    """Be the child of run `number`; never returns."""
    code = 70
    try:
        lock_down(plan)
        program.touch()
        request, streams = receive(requests, number)
        if egress.NAME in streams:
            egress.hand_over(streams.pop(egress.NAME))
        # Nothing of the slot may stay open: its sockets lead to the driver and to other runs.
        os.closerange(place(streams), HIGHEST_DESCRIPTOR)
        uploads.write_files(request.files)
        code = MODES[request.mode](request)
    except BaseException as error:
        traceback.print_exception(error)
        sys.stderr.flush()
    finally:
        _exit(code)


def lock_down(plan: JailPlan) -> None:
    """Take on the program's identity and limits, for good."""
    # A session of its own keeps terminals away, and signals to a process group within the run.
    os.setsid()
    # The slot itself handles no signal, but Python programs expect KeyboardInterrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if plan.tier == USERNS:
        sc.drop_capabilities()
        sc.prctl(sc.PR_SET_DUMPABLE, 1)
    if plan.address_space_bytes:
        max_descriptors = policy.DESCRIPTORS_UNCOUNTED
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_descriptors, max_descriptors))
        signals = policy.SIGNALS_UNCOUNTED
        resource.setrlimit(resource.RLIMIT_SIGPENDING, (signals, signals))
    if plan.scoped_signals:
        sc.landlock_restrict(0, [], scoped=2)
        if plan.tier == LANDLOCK:
            sc.install_seccomp(policy.attributes_kept())
    if plan.tier not in (USERNS, UNSAFE) and os.getuid() == 0:
        os.setresuid(plan.uid, plan.uid, plan.uid)
    if plan.tier != USERNS:
        # A change of identity makes /proc/self unreadable even to the process itself. It may be
        # readable again: this memory holds nothing of the driver's or of another run.
        sc.prctl(sc.PR_SET_DUMPABLE, 1)


def place(streams: dict[str, int]) -> int:
    """Move descriptors to the numbers a program expects; return the first unused number."""
    for number, name in enumerate(("in", "out", "err")):
        if name in streams:
            os.dup2(streams[name], number)
    high = [os.dup(streams[name]) for name in KEPT if name in streams]
    for number, descriptor in enumerate(high, start=3):
        os.dup2(descriptor, number)
    return 3 + len(high)


def kill_children() -> None:
    """Kill this process's children in a single sweep, on a tier without isolation.

    Their own children are then adopted by this process, which is a subreaper, and come in the next
    sweep.
    """
    me = os.getpid()
    with open(f"/proc/{me}/task/{me}/children") as stream:
        children = [int(number) for number in stream.read().split()]
    for child in children:
        os.kill(child, signal.SIGKILL)
