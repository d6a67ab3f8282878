"""A template: loads an environment or verifier, then forks workers.

Read-only data that is loaded here (corpora, problems, databases) is shared by all workers. Where
loading leaves threads or open descriptors behind, which a fork cannot share, the owner starts the
template again with `share` off, and every worker loads by itself.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
from dataclasses import dataclass, field
from typing import Any, NoReturn

import cloudpickle

from ludus.errors import LudusError
from ludus.wire.faults import fault_of

from . import channel, system, worker
from .part import WorkerPart

GRACE_S = 5.0
"""The seconds for which the processes that a dead worker had started may go on; a sandbox ends
itself in that time.
"""
LOOK_EVERY_S = 1.0


def run(control: socket.socket, parent: int) -> NoReturn:
    """Serve the owner until the owner closes `control`; runs in a fork of the fork server."""
    system.end_with_parent(parent)
    system.adopt_orphans()
    os.dup2(2, 1)  # what loading prints is seen, and does not mix with our answers
    try:
        template = _Template(control, channel.receive(control))
        try:
            template.serve()
        except OSError:  # the owner is gone
            template.end()
    finally:
        os._exit(0)


@dataclass
class _Template:
    control: socket.socket
    setup: dict[str, Any]
    workers: set[int] = field(default_factory=set[int])

    def serve(self) -> None:
        os.environ.clear()
        os.environ.update(self.setup["environment"])
        os.chdir(self.setup["folder"])
        sys.path[:] = self.setup["path"]
        part = self._load() if self.setup["share"] else None
        gc.collect()
        gc.freeze()
        orphans = system.Orphans(GRACE_S, own_pids=set(system.children()))
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        while True:
            if poll.poll(LOOK_EVERY_S * 1000):
                command, descriptors, _, _ = socket.recv_fds(self.control, 1, 2)
                match command:
                    case b"f":
                        parent = os.getpid()
                        pid = os.fork()
                        if not pid:
                            self.control.close()
                            worker.run(descriptors[0], descriptors[1], parent, self.setup, part)
                        for descriptor in descriptors:
                            os.close(descriptor)
                        self.workers.add(pid)
                        channel.send(self.control, {"pid": pid})
                    case b"r":
                        order = channel.receive(self.control)
                        channel.send(self.control, self._reap(int(order["pid"])))
                    case _:
                        raise channel.ChannelClosed("the owner is gone")
            orphans.look(self.workers)

    def end(self) -> None:
        """End every worker and everything that the workers have started."""
        for pid in self.workers:
            system.kill(pid)
        system.end_children(GRACE_S)

    def _load(self) -> WorkerPart:
        before = system.open_descriptors()
        try:
            part: WorkerPart = cloudpickle.loads(self.setup["make"])()
            description = part.about()
        except BaseException as error:  # also sys.exit(): whatever it is, the owner is told
            # Describe an exception while loading, for the owner.
            if not isinstance(error, LudusError):
                import traceback

                traceback.print_exception(error)
            fault = fault_of(error)
            channel.send(
                self.control,
                {
                    "code": fault.code,
                    "message": fault.message,
                    "ours": isinstance(error, LudusError),
                },
            )
            os._exit(1)
        problems = []
        if system.thread_count() > 1:
            problems.append(f"{system.thread_count() - 1} threads")
        if descriptors := system.open_descriptors() - before:
            problems.append(f"{len(descriptors)} open descriptors")
        reply = {
            "about": description,
            "is_async": part.is_async,
            "unshareable": " and ".join(problems),
        }
        channel.send(self.control, reply)
        if problems:
            os._exit(0)
        return part

    def _reap(self, pid: int) -> dict[str, Any]:
        """Return how the worker `pid`, dead or dying, has ended."""
        if pid not in self.workers:
            return {}
        system.kill(pid)
        _, status, usage = os.wait4(pid, 0)
        self.workers.discard(pid)
        return {
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
            "cpu_s": usage.ru_utime + usage.ru_stime,
        }
