"""The fork server: a fresh interpreter with a single thread, from which templates are forked; and
the templates, which load an environment or verifier and fork its workers.

The fork server is started by exec (`python -m ludus.isolation.fork_server`), so that it shares no
thread, lock or CUDA context with its owner. User code never runs here. It therefore always notices
the end of its owner, and then ends everything below: templates, workers, and whatever those have
started.

    owner (ludus serve, ludus train)
      fork server      one a process, imports ludus alone
        template       one for each environment or verifier served, loads it
          worker       runs the calls

Read-only data that a template loads (corpora, problems, databases) is shared by all workers. Where
loading leaves threads or open descriptors behind, which a fork cannot share, the owner starts the
template again with `share` off, and every worker loads by itself.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, field
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import cloudpickle
import msgspec

from ludus.contract import where
from ludus.errors import LudusError
from ludus.wire.faults import fault_of

from . import system, worker
from .frames import Frame, Line, LineClosed
from .part import WorkerPart
from .spawning import FORK, MAX_CONTROL_BYTES

GRACE_S = 5.0
"""The seconds for which the processes that a dead worker had started may go on; a sandbox ends
itself in that time.
"""
LOOK_EVERY_S = 1.0


def main(descriptor: int) -> None:
    """Read the set-up message, then fork templates until the owner is gone."""
    os.set_inheritable(descriptor, False)
    control = Line(socket.socket(fileno=descriptor), MAX_CONTROL_BYTES, max_descriptors=1)
    asked = control.receive()
    setup = msgspec.msgpack.decode(asked.body, type=dict[str, Any])
    owner = os.pidfd_open(int(setup["owner"])) if hasattr(os, "pidfd_open") else -1
    sys.path[:] = setup["path"]
    for name in setup["imports"]:
        import_module(name)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stay)  # the owner decides when we end
    system.adopt_orphans()
    gc.collect()
    gc.freeze()
    _answer(control, asked, {"ready": os.getpid()})
    templates: set[int] = set()
    orphans = system.Orphans(GRACE_S, own_pids=set())
    try:
        while True:
            if _is_asked(control, owner):
                templates.add(_fork_template(control, owner))
            _reap(templates)
            orphans.look(templates)
    except OSError:  # the owner is gone
        pass
    for pid in templates:
        system.kill(pid)
    system.end_children(GRACE_S)
    os._exit(0)


def stay(number: int, frame: FrameType | None) -> None:
    """Do nothing; unlike an ignored signal, a program that is executed later does not inherit
    this.
    """


def _answer(control: Line, asked: Frame, answer: dict[str, Any]) -> None:
    control.send(asked.tag, msgspec.msgpack.encode(answer), call=asked.call)


def _is_asked(control: Line, owner: int = -1) -> bool:
    """Wait for a message, for at most `LOOK_EVERY_S`; return whether a message has come.

    Raises:
        LineClosed: the owner is gone.
    """
    poll = select.poll()
    poll.register(control.sock, select.POLLIN)
    if owner >= 0:
        poll.register(owner, select.POLLIN)
    if control.has_frame:
        return True
    ready = {descriptor for descriptor, _ in poll.poll(LOOK_EVERY_S * 1000)}
    if owner in ready:
        raise LineClosed("the owner is gone")
    return bool(ready)


def _fork_template(control: Line, owner: int) -> int:
    asked = control.receive()
    descriptor = control.descriptors.pop()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        control.sock.close()
        if owner >= 0:
            os.close(owner)
        run_template(socket.socket(fileno=descriptor), parent)
    os.close(descriptor)
    _answer(control, asked, {"pid": pid})
    return pid


def _reap(templates: set[int]) -> None:
    for pid in list(templates):
        try:
            ended_pid, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended_pid = pid
        if ended_pid:
            templates.discard(pid)


def run_template(sock: socket.socket, parent: int) -> NoReturn:
    """Serve the owner until the owner closes `sock`; runs in a fork of the fork server."""
    system.end_with_parent(parent)
    system.adopt_orphans()
    os.dup2(2, 1)  # what loading prints is seen, and does not mix with our answers
    control = Line(sock, MAX_CONTROL_BYTES, max_descriptors=2)
    try:
        asked = control.receive()
        template = _Template(control, msgspec.msgpack.decode(asked.body, type=dict[str, Any]))
        try:
            template.serve(asked)
        except OSError:  # the owner is gone
            template.end()
    finally:
        os._exit(0)


@dataclass
class _Template:
    control: Line
    setup: dict[str, Any]
    workers: dict[int, int] = field(default_factory=dict[int, int])
    """The pid of each worker that was not reaped, by the number of the call that forked it."""

    def serve(self, asked: Frame) -> None:
        os.environ.clear()
        os.environ.update(self.setup["environment"])
        os.chdir(self.setup["folder"])
        sys.path[:] = self.setup["path"]
        part = None
        if self.setup["share"]:
            part = self._load(asked)
        else:
            _answer(self.control, asked, {})
        gc.collect()
        gc.freeze()
        orphans = system.Orphans(GRACE_S, own_pids=set(system.children()))
        while True:
            if _is_asked(self.control):
                asked = self.control.receive()
                if asked.tag == FORK:
                    reply = self._fork(asked.call, part)
                else:
                    fork = msgspec.msgpack.decode(asked.body, type=dict[str, int])["fork"]
                    reply = self._reap(fork)
                _answer(self.control, asked, reply)
            orphans.look(set(self.workers.values()))

    def end(self) -> None:
        """End every worker and everything that the workers have started."""
        for pid in self.workers.values():
            system.kill(pid)
        system.end_children(GRACE_S)

    def _load(self, asked: Frame) -> WorkerPart:
        before = system.open_descriptors()
        try:
            part: WorkerPart = cloudpickle.loads(self.setup["make"])()
            description = part.about()
        except BaseException as error:  # also sys.exit(): whatever it is, the owner is told
            if os.environ.get("LUDUS_DEBUG") == "1":
                traceback.print_exception(error)
            fault = fault_of(error)
            is_ours = isinstance(error, LudusError)
            place = "" if is_ours else f" ({where(error)}; LUDUS_DEBUG=1 shows the traceback)"
            reply = {"code": fault.code, "message": f"{fault.message}{place}", "ours": is_ours}
            _answer(self.control, asked, reply)
            os._exit(1)
        problems = []
        if system.thread_count() > 1:
            problems.append(f"{system.thread_count() - 1} threads")
        if descriptors := system.open_descriptors() - before:
            problems.append(f"{len(descriptors)} open descriptors")
        unshareable = " and ".join(problems)
        reply = {"about": description, "is_async": part.is_async, "unshareable": unshareable}
        _answer(self.control, asked, reply)
        if problems:
            os._exit(0)
        return part

    def _fork(self, number: int, part: WorkerPart | None) -> dict[str, Any]:
        parent = os.getpid()
        descriptors, self.control.descriptors = self.control.descriptors, []
        try:
            pid = os.fork()
        except OSError as error:
            return {"refused": str(error)}
        else:
            if not pid:
                self.control.sock.close()
                worker.run_forked(descriptors, parent, self.setup, part)
            self.workers[number] = pid
            return {"pid": pid}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _reap(self, number: int) -> dict[str, Any]:
        """Return how the worker of a fork, dead or dying, has ended."""
        pid = self.workers.pop(number, 0)
        if not pid:
            return {}
        system.kill(pid)
        _, status, usage = os.wait4(pid, 0)
        return {
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
            "cpu_s": usage.ru_utime + usage.ru_stime,
        }


if __name__ == "__main__":
    main(int(sys.argv[1]))
