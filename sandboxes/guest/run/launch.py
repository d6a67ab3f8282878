"""The process that the driver starts for a slot: enters the namespaces, forks the slot, supervises.

The supervisor stays outside the slot's pid namespace. When the driver dies, however it dies, or
asks for it by SIGTERM, the supervisor ends the slot; when the supervisor dies, the kernel signals
the slot (which asked for that). Where the slot has no pid namespace, the supervisor adopts what the
slot leaves behind, ends that too, and empties the work directory.
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import gc
import importlib
import io
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from ..jail import namespaces, syscalls as sc
from . import children, deferred_modules, emptying, program, rehearsal
from .plan import LANDLOCK, UNSAFE, JailPlan
from .slot import GuestSlot


def main(control_descriptor: int, requests_descriptor: int) -> None:
    """Supervise a slot with the given control socket and request socket; never returns normally."""
    driver = os.pidfd_open(os.getppid())
    control = socket.socket(fileno=control_descriptor)
    requests = socket.socket(fileno=requests_descriptor)
    plan = JailPlan.decode(control.recv(1 << 18))
    try:
        namespaces.enter_namespaces(plan)
    except OSError as error:
        _refuse(control, error)
    supervisor = os.pidfd_open(os.getpid())
    sc.prctl(sc.PR_SET_CHILD_SUBREAPER, 1)
    slot = os.fork()
    if slot == 0:
        os.close(driver)
        be_slot(plan, control, requests, supervisor)
    os.close(supervisor)
    control.close()
    requests.close()
    slot_end = os.pidfd_open(slot)
    watch = select.poll()
    watch.register(driver, select.POLLIN)
    watch.register(slot_end, select.POLLIN)
    driver_has_ended = False
    with suppress(_Asked):
        signal.signal(signal.SIGTERM, _ask)
        driver_has_ended = any(descriptor == driver for descriptor, _ in watch.poll())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if plan.tier == LANDLOCK:
        # Only inside its domain can the slot end all processes of a run at once.
        os.kill(slot, signal.SIGTERM)
        watch.unregister(driver)
        watch.poll(int(_SWEEP_S * 1000))
    # The pid still belongs to the slot: the kernel reuses no pid before the parent has waited.
    os.kill(slot, signal.SIGKILL)
    os.waitpid(slot, 0)
    if plan.work:
        with suppress(ChildProcessError):
            while True:
                children.kill_children()
                os.waitpid(-1, 0)
        with suppress(OSError):
            emptying.empty(plan.work)
            if driver_has_ended:
                os.rmdir(plan.work)
                os.rmdir(os.path.dirname(plan.work))
    os._exit(0)


_SWEEP_S = 2.0
"""Seconds that a slot may take to end the processes of its run, before it is killed."""


class _Asked(Exception):
    """The driver has asked for the end of the slot."""


def _ask(number: int, frame: FrameType | None) -> NoReturn:
    raise _Asked


def be_slot(
    plan: JailPlan, control: socket.socket, requests: socket.socket, supervisor: int = -1
) -> None:
    """Isolate this process and serve as a slot; never returns.

    Args:
        plan: what the driver says about the slot.
        control: the socket to the driver.
        requests: the socket on which children receive requests.
        supervisor: a pidfd of the parent, to be closed here; -1 where the end of the parent
            does not matter.
    """
    code = 1
    try:
        program.redirect_nothing()
        weight = (
            os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            if plan.tier != UNSAFE
            else -1
        )
        deferred_modules.keep()
        namespaces.build(plan)
        if supervisor >= 0:
            # Exit if the supervisor ended before the kernel was asked to signal that end.
            watch = select.poll()
            watch.register(supervisor, select.POLLIN)
            if watch.poll(0):
                os._exit(1)
            os.close(supervisor)
        _warm_up(plan)
        GuestSlot(plan, control, requests, weight).serve()
    except BaseException as error:
        _refuse(control, error)
    finally:
        os._exit(code)


def _refuse(control: socket.socket, error: BaseException) -> None:
    """Tell the driver why this slot cannot serve, and exit."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    location = f"{place.tb_frame.f_code.co_name}:{place.tb_lineno}" if place else "?"
    reason = f"{type(error).__name__} in {location}: {error}"  # with any names of files
    control.send(b"failed:" + reason.encode(errors="backslashreplace")[:2000])
    os._exit(1)


def _warm_up(plan: JailPlan) -> None:
    """Load what programs usually import and touch the pages of a run, for sharing."""
    if plan.work:
        os.environ.update(HOME=plan.work, TMPDIR=plan.work)
    sys.path += namespaces.package_folders(plan)
    # A module that is loaded here costs a child nothing: fork shares the pages.
    for name in plan.preload:
        importlib.import_module(name)
    # Without this all children would draw the same numbers; the module `random` seeds itself.
    if numbers := sys.modules.get("numpy.random"):
        os.register_at_fork(after_in_child=numbers.seed)
    _as_python_begins()
    # Frozen objects are never visited again: a collection in a child would write to every page
    # that it shares with the slot, and so copy it.
    gc.collect()
    gc.freeze()
    rehearsal.run()
    gc.collect()
    gc.freeze()
    gc.disable()  # The child enables the collection again when it runs a program.
    sys.path.insert(0, "")  # Last, so that no import cache remembers the present work directory.


def _as_python_begins() -> None:
    """Make the standard streams and the built-in names that programs expect of `python main.py`."""
    # A raw stream remembers whether it can seek. The outputs of a run are pipes, and cannot.
    ends = os.pipe()
    os.dup2(ends[1], 1)
    os.dup2(ends[1], 2)
    sys.stdin = sys.__stdin__ = _standard(0, "r", "<stdin>")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _standard(1, "w", "<stdout>")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _standard(2, "w", "<stderr>")  # type: ignore[misc]
    sys.stderr.reconfigure(line_buffering=True, errors="backslashreplace")
    program.redirect_nothing()
    for end in ends:
        os.close(end)
    # The module `site`, which a slot does without, defines these for all programs.
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))


def _standard(number: int, mode: str, name: str) -> io.TextIOWrapper:
    raw = io.FileIO(number, mode, closefd=False)
    raw.name = name
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    stream = io.TextIOWrapper(buffer, encoding="utf-8", errors="surrogateescape")
    stream.mode = mode  # type: ignore[misc]
    return stream
