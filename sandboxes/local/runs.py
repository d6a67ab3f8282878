"""The driver's side of a run in a slot: pipes, limits and outcome.

A run costs the driver two pipes, one datagram with their write ends, one report and two reads. The
pipes are read only after the report, unless the run is still going after a few milliseconds: most
programs fit a pipe's buffer.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from ..guest.run.request import QUIET, Request, memory_file
from ..guest.run.slot import REPORT
from ..protocol import Execution, ExecutionStatus, Limits, Usage
from . import process_tree
from .control_groups import ControlGroup

_log = logging.getLogger(__name__)

KILL_TIMEOUT_S = 5.0
"""Seconds that a slot may take to report after its run was killed, before the slot is given up."""

MAX_PROCESSES = 128
"""The most processes and threads of a run where no control group counts processes; more end the
run.
"""

_FIRST_LOOK_S = 0.005
_DISK_SHARE = 0.1
"""The part of a core that the driver may spend to look at a work directory without a file system of
its own.
"""
_LOOK_EVERY_S = 0.25
_SHORTEST_LOOK_S = 0.02
_PATIENCE = 8.0
"""A run that is kept waiting for a core is given up after this many times its wall limit."""

_CLEARING_TIMEOUT_S = 10.0
"""Seconds that a slot may take to clean up after a run before the slot is given up."""

_READ_BYTES = 1 << 18
_MEMORY_ERRORS = (
    b"MemoryError",
    b"numpy.core._exceptions._ArrayMemoryError",
    b"numpy._core._exceptions._ArrayMemoryError",
)
"""How the last line of a traceback begins where an interpreter had no memory left."""


class SlotLost(Exception):
    """The slot ended or could not start: a fault of the sandbox and never of the program."""


def refusal(problem: str, error: OSError) -> str:
    """Say why the system refuses what a slot needs, and what to do if it is another open file.

    >>> refusal("the slot cannot be made", OSError(28, "No space left on device"))
    'the slot cannot be made: [Errno 28] No space left on device'
    """
    full = error.errno in (errno.EMFILE, errno.ENFILE)
    remedy = "; raise the limit of open files (ulimit -n), or run fewer at once" if full else ""
    return f"{problem}: {error}{remedy}"


@dataclass(slots=True)
class RunOutcome:
    """The status, exit code, output and usage of a finished run, before an `Execution` is made from
    them.
    """

    status: ExecutionStatus
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    usage: Usage
    detail: str = ""

    def as_execution(
        self, tier: str, queue_s: float, files: dict[str, bytes], refused: dict[str, str]
    ) -> Execution:
        """Return the outcome in the form for callers of the sandbox.

        Args:
            tier: the isolation tier of the slot.
            queue_s: how long the run waited for a slot, in seconds.
            files: the content of the files that were fetched, by path.
            refused: why other files were not fetched, by path.
        """
        return Execution(
            status=self.status,
            stdout=self.stdout.decode("utf-8", "replace"),
            stderr=self.stderr.decode("utf-8", "replace"),
            exit_code=self.exit_code,
            usage=msgspec.structs.replace(self.usage, queue_s=queue_s),
            files=files,
            refused=refused,
            detail=self.detail,
            tier=tier,
        )


@dataclass(slots=True)
class _Stream:
    """An output pipe of a run, with the bytes read so far and how many are allowed."""

    descriptor: int
    limit: int
    parts: list[bytes] = field(default_factory=list[bytes])
    size: int = 0

    def drain(self) -> bool:
        """Read what the pipe holds now; return False if more than `limit` bytes came in all."""
        while self.size <= self.limit:
            try:
                data = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return True
            self.parts.append(data)
            self.size += len(data)
        return False

    def content(self) -> bytes:
        return b"".join(self.parts)[: self.limit]


class RunSlot(Protocol):
    """The part of a slot that a `Run` uses."""

    @property
    def group(self) -> ControlGroup | None:
        """The control group of the slot, or None where no groups can be made."""
        ...

    @property
    def number(self) -> int:
        """The number of the present run."""
        ...

    def send(self, request: Request, descriptors: list[int]) -> None:
        """Send the request and the descriptors to the child that waits for a run."""
        ...

    def kill_run(self) -> None:
        """Kill the present run; a slot that does not report the end within `KILL_TIMEOUT_S` is
        given up.
        """
        ...

    def is_busy(self) -> bool:
        """Return whether the slot still cleans up after an earlier run and has not read the present
        request.
        """
        ...

    def give_up(self) -> None:
        """End the slot, which does not answer; the present run fails with `SlotLost`."""
        ...

    def new_oom_kills(self) -> int:
        """Return how many processes were killed for lack of memory since the last call."""
        ...

    def look(self) -> process_tree.TreeUsage:
        """Return what the processes of the present run have used."""
        ...

    @property
    def watches_disk(self) -> bool:
        """Whether nothing but the driver bounds what runs write."""
        ...

    def fills_disk(self) -> bool:
        """Return whether the work directory holds more than a run may write."""
        ...

    def processes(self) -> list[int]:
        """Return the pids of the present run."""
        ...


class Beside(NamedTuple):
    """The other run of a grading: the two take turns, so that each waits for what keeps the other
    from a core.
    """

    slot: RunSlot
    is_ready: Callable[[], bool] = lambda: True
    """Whether the other run has done what it does alone; until then this one is charged no wall
    time."""


class Run:
    """A run in progress: opens the pipes, watches the limits, and makes the outcome from the
    report.
    """

    def __init__(self, slot: RunSlot, limits: Limits, beside: Beside | None = None) -> None:
        self.slot, self.limits, self.beside = slot, limits, beside
        self.waited_before = 0.0
        self.loop = asyncio.get_running_loop()
        self.streams: list[_Stream] = []
        self.reading = False
        self.verdict: ExecutionStatus | None = None
        self.detail = ""
        self.timer: asyncio.TimerHandle | None = None
        self.begun = False
        self.cpu_before = self.tree_cpu_s = self.last_cpu_s = 0.0
        self.next_disk_look = 0.0
        self.own_cpu_s: dict[tuple[int, int], float] = {}
        self.ended = 0.0

    def begin(self, request: Request, stdin: bytes, peers: Sequence[tuple[str, int]]) -> None:
        """Open the pipes, and send the request with their far ends and the descriptors of `peers`,
        which stay open here.
        """
        names = [name for name, _ in peers]
        own_descriptors: list[int] = []
        try:
            for name in () if request.mode in QUIET else ("out", "err"):
                names.append(name)
                reader, writer = os.pipe()
                self.streams.append(_Stream(reader, self.limits.output_bytes))
                os.set_blocking(reader, False)
                # A program may open /dev/stdout, which is this pipe, also under another user id.
                os.fchmod(writer, 0o622)
                own_descriptors.append(writer)
            if stdin:
                names.append("in")
                own_descriptors.append(memory_file("stdin", stdin))
            request.streams = names
            self.asked = self.started = time.monotonic()
            self.slot.send(request, [*(descriptor for _, descriptor in peers), *own_descriptors])
        finally:
            for descriptor in own_descriptors:
                os.close(descriptor)
        self.timer = self.loop.call_later(_FIRST_LOOK_S, self._first_look)

    def _first_look(self) -> None:
        self.reading = True
        for stream in self.streams:
            self.loop.add_reader(stream.descriptor, self._read, stream)
        self._look(self._first_hold)

    def _first_hold(self) -> None:
        # The counter was not read at the start, which saves most runs the reading. A run that is
        # still going is charged as if it had computed on one core since.
        if self.slot.group:
            self.cpu_before = self.slot.group.cpu_s() - _FIRST_LOOK_S
        if self.beside:  # a process there may have waited in earlier gradings
            self.waited_before = process_tree.waited_s(self.beside.slot.processes())
        self._hold()

    def _read(self, stream: _Stream) -> None:
        before = stream.size
        if not stream.drain():
            self.stop(ExecutionStatus.OUTPUT_LIMIT, f"more than {stream.limit} bytes of output")
        if self.verdict or stream.size == before:
            # The pipe is at its end, or its content is not wanted any more.
            self.loop.remove_reader(stream.descriptor)

    def _look(self, hold: Callable[[], None] | None = None) -> None:
        """Compare the run with the limits, by `_hold` or else `hold`, and schedule the next check.

        If the check fails the slot is given up, because a run must not go on unwatched.
        """
        try:
            (hold or self._hold)()
        except Exception:
            _log.exception("a run could not be looked at; its slot is given up")
            self.slot.give_up()

    def _hold(self) -> None:
        if not self._has_begun():
            return
        now, limits = time.monotonic(), self.limits
        is_paired = not self.beside or self.beside.is_ready()
        if not is_paired:
            self.started = now
        elapsed = now - self.started
        cpu, problem = self._used()
        left_s, patience_s = limits.timeout_s - elapsed, _PATIENCE * limits.timeout_s
        if cpu >= limits.cpu_s:
            self.stop(ExecutionStatus.TIMEOUT, f"used more than {limits.cpu_s:g} s of CPU time")
        elif problem:
            self.stop(*problem)
        elif left_s <= 0:
            # Time spent ready to run but without a core is the machine's doing, and extends the
            # wall limit (decision 0401). A run that has had its time ends as TIMEOUT; a run that
            # has waited too long for a core ends as INFRA_ERROR.
            waited = self._waited_s(elapsed) if cpu < limits.timeout_s else 0.0
            left_s = limits.timeout_s - (elapsed - waited)
            if left_s <= 0.01 * limits.timeout_s:
                self.stop(ExecutionStatus.TIMEOUT, f"ran for more than {limits.timeout_s:g} s")
            elif elapsed > patience_s:
                reason = (
                    f"of {elapsed:.1f} s it waited {waited:.1f} s for a core: an overloaded machine"
                )
                self.stop(ExecutionStatus.INFRA_ERROR, reason)
        elif not is_paired and now - self.asked > _CLEARING_TIMEOUT_S + patience_s:
            self.stop(ExecutionStatus.INFRA_ERROR, "the other side of the grading is not ready")
        if not self.verdict:
            # The CPU limit cannot be reached before all cores together have used what is left.
            soon = max(_SHORTEST_LOOK_S, (limits.cpu_s - cpu) / (os.cpu_count() or 1))
            counted = self.slot.group and not self.slot.watches_disk
            often = _LOOK_EVERY_S if counted else _SHORTEST_LOOK_S
            self.timer = self.loop.call_later(max(0.001, min(left_s, soon, often)), self._look)

    def _waited_s(self, elapsed: float) -> float:
        """Return how many of `elapsed` seconds the run was kept waiting for a core."""
        pids = self.slot.processes()
        waited = process_tree.waited_s(pids)
        if self.beside:
            there = self.beside.slot.processes()
            waited += max(0.0, process_tree.waited_s(there) - self.waited_before)
            pids = pids + there
        # Of `n` threads that want a core, each waits for the others of the same run.
        cores, wanting = len(os.sched_getaffinity(0)), process_tree.runnable(pids)
        return max(0.0, waited - elapsed * max(0.0, 1 - cores / max(wanting, 1)))

    def _used(self) -> tuple[float, tuple[ExecutionStatus, str] | None]:
        """Return the used CPU seconds, and the exceeded limit, if any, other than time."""
        problem: tuple[ExecutionStatus, str] | None = None
        started = time.monotonic()
        if self.slot.watches_disk and started >= self.next_disk_look:
            if self.slot.fills_disk():
                problem = ExecutionStatus.ERROR, "wrote more files or bytes than a run may"
            now = time.monotonic()
            self.next_disk_look = now + (now - started) / _DISK_SHARE
        if self.slot.group:
            return self.slot.group.cpu_s() - self.cpu_before, problem
        tree, memory_bytes = self.slot.look(), self.limits.memory_bytes
        # When a process ends and its parent does not wait for it, its time appears nowhere in /proc
        # any more. So the last figure seen for each process is kept, and what all have used
        # together never falls.
        self.own_cpu_s.update(tree.own_cpu_s)
        self.tree_cpu_s += max(0.0, tree.cpu_s - self.last_cpu_s)
        self.last_cpu_s = tree.cpu_s
        # The first figure counts shared pages once per process. Only if that exceeds the limit is
        # the second computed, which shares them out and takes longer.
        if tree.memory_bytes > memory_bytes < process_tree.shared_out(self.slot.processes()):
            problem = ExecutionStatus.OOM, f"used more than {memory_bytes} bytes of memory"
        elif tree.processes > MAX_PROCESSES:
            problem = (
                ExecutionStatus.ERROR,
                f"started more than {MAX_PROCESSES} processes and threads",
            )
        return max(self.tree_cpu_s, sum(self.own_cpu_s.values())), problem

    def _has_begun(self) -> bool:
        """Return whether the slot has read the request; until then the run is charged no time.

        A slot may still be cleaning up after an earlier run. It is given up after
        `_CLEARING_TIMEOUT_S`.
        """
        self.begun = self.begun or not self.slot.is_busy()
        if self.begun:
            return True
        now = time.monotonic()
        if now - self.asked > _CLEARING_TIMEOUT_S:
            self.slot.give_up()
            return False
        self.started = now
        if self.slot.group:
            self.cpu_before = self.slot.group.cpu_s()
        self.timer = self.loop.call_later(_SHORTEST_LOOK_S, self._look)
        return False

    def stop(self, verdict: ExecutionStatus, detail: str) -> None:
        """Kill the run and record why; only the first call has an effect."""
        if self.verdict:
            return
        self.verdict, self.detail = verdict, detail
        self.slot.kill_run()
        if self.timer:
            self.timer.cancel()

    def finish(self, report: bytes) -> RunOutcome:
        """Read the rest of the output, and return the outcome.

        Raises:
            SlotLost: the report is about another run.
        """
        wall = time.monotonic() - self.started
        _, number, status, user_us, system_us, memory, _ = REPORT.unpack(report)
        if number != self.slot.number:
            raise SlotLost(f"run {number} was reported while run {self.slot.number} was going")
        totals = [stream.drain() for stream in self.streams]
        if not all(totals) and not self.verdict:
            self.verdict, self.detail = (
                ExecutionStatus.OUTPUT_LIMIT,
                f"more than {self.limits.output_bytes} bytes of output",
            )
        stdout, err = [stream.content() for stream in self.streams] or [b"", b""]
        code = os.waitstatus_to_exitcode(status)
        usage = Usage(wall_s=wall, cpu_s=(user_us + system_us) / 1e6, memory_bytes=memory)
        killed_for_memory = self.slot.new_oom_kills() > 0
        last_line = err.rstrip().rpartition(b"\n")[2]
        if self.verdict:
            return RunOutcome(self.verdict, None, stdout, err, usage, self.detail)
        # A program that survives the kill of a child ends as it likes. Where no control group
        # counts kills, an allocation fails instead, and the last line of the traceback says so.
        if (code != 0 and killed_for_memory) or (
            code == 1 and last_line.startswith(_MEMORY_ERRORS)
        ):
            return RunOutcome(ExecutionStatus.OOM, None, stdout, err, usage, "it ran out of memory")
        return RunOutcome(
            ExecutionStatus.ERROR if code else ExecutionStatus.OK, code, stdout, err, usage
        )

    def close(self) -> None:
        """Cancel the next check and close the pipes."""
        if self.timer:
            self.timer.cancel()
        for stream in self.streams:
            if self.reading:
                self.loop.remove_reader(stream.descriptor)
            os.close(stream.descriptor)
        self.streams = []
