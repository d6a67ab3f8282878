"""A slot: a warm, isolated interpreter that forks a child for each run.

The slot is PID 1 of its namespace where the tier has one. It never reads a program, its input or
its output: those go by descriptor between the driver and the child. What passes through the slot is
a run number and an exit status.

Each run takes a single fork, done beforehand: the child is parked, already locked down, waiting for
its request. When it ends, every other process that still lives is killed and reaped, the status is
sent, the work directory is renewed if anything in it changed, and the next child is parked.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import struct
from contextlib import suppress
from types import FrameType

from ..jail import namespaces, policy
from . import children, emptying
from .child_end import ChildEnd
from .plan import DOCKER, LANDLOCK, UNSAFE, USERNS, JailPlan

REPORT = struct.Struct("<cIiQQQI")
"""A report to the driver: kind (b"R"), run number, wait status, user and system microseconds, peak
resident bytes, leftover processes killed.
"""

ORDER = struct.Struct("<cI")
"""An order of the driver: kind and run number.

The kinds are: b"K" kills the run, b"I" interrupts its first process, b"P" preserves its files, b"H"
holds the run: it is over when it is killed, not when its first process ends.
"""

READY, READY_FOR = b"ready", b"ready for run"


class GuestSlot:
    """Runs children in sequence until the control socket closes."""

    def __init__(
        self, plan: JailPlan, control: socket.socket, requests: socket.socket, weight: int = -1
    ) -> None:
        self.plan = plan
        self.weight = weight
        """A descriptor of this process's oom_score_adj; -1 where that is left alone."""
        self.own_weight = os.pread(weight, 16, 0) if weight >= 0 else b""
        self.control = control
        self.requests = requests
        self.number = 0
        self.child = 0
        self.preserved: set[int] = set()
        self.held = 0
        """The number of the run that is over only when it is killed; 0 if there is none."""
        self.alone = plan.tier != UNSAFE
        """Whether `kill(-1)` reaches exactly the processes of this slot, because a pid namespace or
        Landlock domain bounds it.
        """
        self.folders: tuple[str, ...] = (policy.WORK,)
        """The folders to clean after a run."""
        if plan.tier == DOCKER:
            # Some runtimes (gVisor) have a real /dev/shm in any case.
            shared = () if os.path.islink(policy.SHARED) else (policy.SHARED,)
            self.folders = (*policy.CONTAINER_FOLDERS, *shared)
        self.clean_mark = self._mark()
        self.watch = select.epoll()
        self.watch.register(control, select.EPOLLIN)
        self.child_end = ChildEnd(self.watch)

    def serve(self) -> None:
        """Park a child, wait for the end, and clean up, for ever."""
        if self.plan.tier in (LANDLOCK, UNSAFE):
            # The supervisor of an earlier slot may have been killed before it could clean up.
            emptying.empty(self.plan.work)
        if self.plan.tier == LANDLOCK:
            # Not where the slot is PID 1: a program could then send it the signal.
            signal.signal(signal.SIGTERM, self._end)
        self.control.send(READY)
        while True:
            self.number += 1
            # A fork inherits the weight, and a child cannot set its own: its /proc is read-only.
            self._weigh(policy.FIRST_TO_DIE)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.child = os.fork()
            if self.child == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                self.child_end.forget()
                children.main(self.plan, self.requests, self.number)
            self._weigh(self.own_weight)
            # Write now to the pages that `_finish` writes to: since the fork they are shared with
            # the child, and copying them later would keep the driver waiting. No process is its own
            # child, so `_reap` fails at once, on the path that it takes at the end of every run.
            _reap(os.getpid(), 0)
            REPORT.pack(b"R", self.number, 0, int(0.1 * 1e6), 0, 0, 0)
            self._mark()
            self._finish(self.child, used)

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Kill everything in this slot's domain, and exit."""
        self._kill_all()
        os._exit(0)

    def _weigh(self, weight: bytes) -> None:
        """Set the weight with which the next child is forked.

        When memory runs out, the kernel must kill the program, even if what it holds (in sockets)
        does not show as the program's own memory.
        """
        if self.weight >= 0:
            os.pwrite(self.weight, weight, 0)

    def _finish(self, child: int, used: resource.struct_rusage) -> None:
        """Wait for the end of the run, report it, and clean up.

        `used`: what all processes have used that were reaped before the run.
        """
        process_end = self.child_end.expect(child)
        has_ended = False
        while not has_ended:
            ready = [descriptor for descriptor, _ in self.watch.poll()]
            if ready != [process_end]:
                self._obey(self.control.recv(64))
            has_ended = process_end in ready and self.child_end.has_come(process_end, child)
        # A held run (a session) outlives its first process; wait for the order that kills it.
        while self.held == self.number:
            self._obey(self.control.recv(64))
        _, status, usage = os.wait4(child, 0)
        # Orphans become this process's children (it is PID 1 or a subreaper), so once it has no
        # children, nothing is left of the run.
        killed = 0
        while (reaped := _reap(-1, os.WNOHANG)) is not None:
            self._kill_all()
            killed += reaped or _reap(-1, 0) or 0
        # What orphans have used is charged as well, so the times are of all reaped processes.
        now_used = resource.getrusage(resource.RUSAGE_CHILDREN)
        user_s, system_s = now_used.ru_utime - used.ru_utime, now_used.ru_stime - used.ru_stime
        times = int(user_s * 1e6), int(system_s * 1e6), usage.ru_maxrss << 10
        self.control.send(REPORT.pack(b"R", self.number, status, *times, killed))
        if self.number in self.preserved:
            self.preserved.discard(self.number)
            self.clean_mark = None
        elif self.plan.tier in (LANDLOCK, UNSAFE):
            os.chdir(self.plan.work)
            emptying.empty(self.plan.work)
        elif self._mark() != self.clean_mark:
            if self.plan.tier == DOCKER:
                emptying.empty_as(self.plan.uid, self.plan.gid, self.folders)
            else:
                namespaces.renew_work(self.plan)
            self.clean_mark = self._mark()

    def _obey(self, order: bytes) -> None:
        if not order:  # The driver is gone.
            if self.plan.tier == LANDLOCK:
                self._kill_all()
            os._exit(0)  # When PID 1 ends, the kernel ends all others.
        kind, number = ORDER.unpack(order)
        if number != self.number:
            return  # The order was for a run that has ended meanwhile.
        if kind == b"K":
            self.held = 0
            self._kill_all()
        elif kind == b"I":
            os.kill(self.child, signal.SIGINT)
        elif kind == b"H":
            self.held = number
        else:
            self.preserved.add(number)

    def _kill_all(self) -> None:
        """Send SIGKILL to everything but this process, in a sweep that no fork can escape."""
        if not self.alone:
            children.kill_children()
            return
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    def _mark(self) -> tuple[object, ...] | None:
        """Return a value that changes when anything in the work directory changes."""
        if self.plan.tier in (LANDLOCK, UNSAFE):
            return None
        marks: list[object] = []
        for path in self.folders:
            space, folder = os.statvfs(path), os.stat(path)
            # The time alone could miss a change within the clock's granularity, so the free inodes
            # and the attributes count too.
            attributes = tuple(os.listxattr(path)) if self.plan.tier == USERNS else ()
            marks.append((space.f_ffree, folder.st_ctime_ns, folder.st_mode, attributes))
        return tuple(marks)


def _reap(id_type: int, options: int) -> int | None:
    """Wait for a child: 1 if a child has ended, 0 if none has so far (WNOHANG), None without
    any.
    """
    try:
        return int(os.waitpid(id_type, options)[0] > 0)
    except ChildProcessError:
        return None
