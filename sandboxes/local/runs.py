"""One run in a slot as the driver sees it: its pipes, its limits, and what becomes of it.

A run costs the driver two pipes, one datagram with their write ends, one report and two reads. The
pipes are read only after the report, unless the run is still going after a few milliseconds: most
programs fit a pipe's buffer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..guest.run.request import QUIET, Request, memory_file
from ..guest.run.slot import REPORT
from ..protocol import ExecutionStatus, Limits, Usage
from . import process_tree
from .control_groups import ControlGroup

_log = logging.getLogger(__name__)

KILL_TIMEOUT_S = 5.0
"""How long a slot may take to report after its run was killed, before the slot itself is given
up.
"""

MAX_PROCESSES = 128
"""Where no control group counts them, more processes and threads than this end the run."""

_FIRST_LOOK_S = 0.005
_LOOK_EVERY_S = 0.25
_SHORTEST_LOOK_S = 0.02
_PATIENCE = 8.0
"""A run that is denied the CPU is given up after this many times its wall limit: the machine is
overloaded.
"""

_CLEARING_TIMEOUT_S = 30.0
"""How long a slot may clear up after a run before it is given up."""

_READ_BYTES = 1 << 18


class SlotLost(Exception):
    """The slot ended or could not start: ours, never the program's."""


@dataclass(slots=True)
class RunOutcome:
    """What one run did, before anything is made of it."""

    status: ExecutionStatus
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    usage: Usage
    detail: str = ""


@dataclass(slots=True)
class _Stream:
    """One output pipe: what has been read so far, and how much may be."""

    descriptor: int
    limit: int
    parts: list[bytes] = field(default_factory=list[bytes])
    size: int = 0

    def drain(self) -> bool:
        """Read what is there; False once the limit is passed."""
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
    """What a run needs of its slot."""

    @property
    def group(self) -> ControlGroup | None:
        """Its control group, if it has one."""
        ...

    @property
    def number(self) -> int:
        """The number of the present run."""
        ...

    def send(self, request: Request, descriptors: list[int]) -> None:
        """Hand the parked child its request."""
        ...

    def kill_run(self) -> None:
        """End the present run; its report follows, or the slot is given up."""
        ...

    def is_busy(self) -> bool:
        """Whether it has not come to the present run's request yet: it clears up after the last."""
        ...

    def give_up(self) -> None:
        """The slot does not answer: end it."""
        ...

    def new_oom_kills(self) -> int:
        """Kills for want of memory since the last call."""
        ...

    def look(self) -> process_tree.TreeUsage:
        """What the processes of the present run have used."""
        ...

    def processes(self) -> list[int]:
        """The pids of the present run."""
        ...


class Run:
    """The limits and pipes of one run."""

    def __init__(self, slot: RunSlot, limits: Limits) -> None:
        self.slot = slot
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.streams: list[_Stream] = []
        self.reading = False
        self.verdict: ExecutionStatus | None = None
        self.detail = ""
        self.timer: asyncio.TimerHandle | None = None
        self.begun = False
        self.cpu_before = 0.0
        self.own_cpu_s: dict[tuple[int, int], float] = {}
        self.ended = 0.0

    def begin(self, request: Request, stdin: bytes, peers: Sequence[tuple[str, int]]) -> None:
        """Open the pipes and send the request; `peers` are closed here, whatever happens."""
        names = [name for name, _ in peers]
        own = [descriptor for _, descriptor in peers]
        try:
            for name in () if request.mode in QUIET else ("out", "err"):
                names.append(name)
                own.append(self._open_pipe())
            if stdin:
                names.append("in")
                own.append(memory_file("stdin", stdin))
            request.streams = names
            self.asked = self.started = time.monotonic()
            self.slot.send(request, own)
        finally:
            for descriptor in own:
                os.close(descriptor)
        self.timer = self.loop.call_later(_FIRST_LOOK_S, self._first_look)

    def _open_pipe(self) -> int:
        """A pipe whose other end is read here; returns the end to write to."""
        reader, writer = os.pipe()
        self.streams.append(_Stream(reader, self.limits.output_bytes))
        os.set_blocking(reader, False)
        os.fchmod(writer, 0o622)  # so that a program may open /dev/stdout, which is this pipe
        return writer

    def _first_look(self) -> None:
        self.reading = True
        for stream in self.streams:
            self.loop.add_reader(stream.descriptor, self._read, stream)
        if self.slot.group:
            self.cpu_before = self.slot.group.cpu_s() - _FIRST_LOOK_S
        self._look()

    def _read(self, stream: _Stream) -> None:
        before = stream.size
        if not stream.drain():
            self.stop(ExecutionStatus.OUTPUT_LIMIT, f"more than {stream.limit} bytes of output")
        if self.verdict or stream.size == before:
            self.loop.remove_reader(stream.descriptor)  # at its end, or not wanted any more

    def _look(self) -> None:
        """Hold the run against its limits, and say when to look again.

        A run that cannot be held against them is not left to go on without.
        """
        try:
            self._hold()
        except Exception:
            _log.exception("a run could not be looked at; its slot is given up")
            self.slot.give_up()

    def _hold(self) -> None:
        if not self._has_begun():
            return
        elapsed = time.monotonic() - self.started
        limits = self.limits
        tree = None if self.slot.group else self.slot.look()
        cpu = self._tree_cpu(tree) if tree else self._group_cpu()
        left = limits.timeout_s - elapsed
        if cpu >= limits.cpu_s:
            self.stop(ExecutionStatus.TIMEOUT, f"used more than {limits.cpu_s:g} s of CPU time")
        elif tree and tree.memory_bytes > limits.memory_bytes < process_tree.shared_out(
            self.slot.processes()
        ):
            self.stop(ExecutionStatus.OOM, f"used more than {limits.memory_bytes} bytes of memory")
        elif tree and tree.processes > MAX_PROCESSES:
            self.stop(
                ExecutionStatus.ERROR, f"started more than {MAX_PROCESSES} processes and threads"
            )
        elif left <= 0:
            left = self._overdue(elapsed, cpu)
        if not self.verdict:
            soon = max(_SHORTEST_LOOK_S, (limits.cpu_s - cpu) / (os.cpu_count() or 1))
            often = _LOOK_EVERY_S if self.slot.group else _SHORTEST_LOOK_S
            self.timer = self.loop.call_later(max(0.001, min(left, soon, often)), self._look)

    def _has_begun(self) -> bool:
        """Until its slot has cleared up after another run, a run is charged nothing."""
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

    def _group_cpu(self) -> float:
        return self.slot.group.cpu_s() - self.cpu_before if self.slot.group else 0.0

    def _tree_cpu(self, tree: process_tree.TreeUsage) -> float:
        """A process whose parent does not wait for it takes its time with it: what was seen of it
        counts on.
        """
        self.own_cpu_s.update(tree.own_cpu_s)
        return max(tree.cpu_s, sum(self.own_cpu_s.values()))

    def _overdue(self, elapsed: float, cpu: float) -> float:
        """Past the wall limit: the program's own doing, unless the machine kept it waiting for a
        core.
        """
        waited = 0.0
        if cpu < self.limits.timeout_s:
            waited = process_tree.waited_s(self.slot.processes())
        left = self.limits.timeout_s - (elapsed - waited)
        if left <= 0.01 * self.limits.timeout_s:
            self.stop(ExecutionStatus.TIMEOUT, f"ran for more than {self.limits.timeout_s:g} s")
        elif elapsed > _PATIENCE * self.limits.timeout_s:
            reason = (
                f"of {elapsed:.1f} s it waited {waited:.1f} s for a core: an overloaded machine"
            )
            self.stop(ExecutionStatus.INFRA_ERROR, reason)
        return left

    def stop(self, verdict: ExecutionStatus, detail: str) -> None:
        """End the run early, for this reason."""
        if self.verdict:
            return
        self.verdict, self.detail = verdict, detail
        self.slot.kill_run()
        if self.timer:
            self.timer.cancel()

    def finish(self, report: bytes) -> RunOutcome:
        """Read the rest of the output and put the outcome together."""
        wall = time.monotonic() - self.started
        _, number, status, user_us, system_us, memory, _ = REPORT.unpack(report)
        if number != self.slot.number:
            raise SlotLost(f"run {number} was reported while run {self.slot.number} was going")
        whole = [stream.drain() for stream in self.streams]
        if not all(whole) and not self.verdict:
            self.verdict, self.detail = (
                ExecutionStatus.OUTPUT_LIMIT,
                f"more than {self.limits.output_bytes} bytes of output",
            )
        out, err = [stream.content() for stream in self.streams] or [b"", b""]
        code = os.waitstatus_to_exitcode(status)
        usage = Usage(wall_s=wall, cpu_s=(user_us + system_us) / 1e6, memory_bytes=memory)
        killed_for_memory = self.slot.new_oom_kills() > 0
        if self.verdict:
            return RunOutcome(self.verdict, None, out, err, usage, self.detail)
        if code != 0 and (killed_for_memory or _ends_in_memory_error(code, err)):
            return RunOutcome(ExecutionStatus.OOM, None, out, err, usage, "it ran out of memory")
        return RunOutcome(
            ExecutionStatus.ERROR if code else ExecutionStatus.OK, code, out, err, usage
        )

    def close(self) -> None:
        """Give everything back."""
        if self.timer:
            self.timer.cancel()
        for stream in self.streams:
            if self.reading:
                self.loop.remove_reader(stream.descriptor)
            os.close(stream.descriptor)
        self.streams = []


def _ends_in_memory_error(code: int, stderr: bytes) -> bool:
    return code == 1 and stderr.rstrip().rpartition(b"\n")[2].startswith(
        (
            b"MemoryError",
            b"numpy.core._exceptions._ArrayMemoryError",
            b"numpy._core._exceptions._ArrayMemoryError",
        )
    )
