"""One slot as the driver sees it: start it, hand runs to it, watch their limits, replace it when
it breaks.

A run costs the driver two pipes, one datagram with their write ends, one report and two reads. The
pipes are read only after the report, unless the run is still going after a few milliseconds: most
programs fit a pipe's buffer.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from . import process_tree
from .control_groups import ControlGroup
from .guardian import Guardian, pair, spawn
from .inside.plan import Plan
from .inside.request import INLINE_BYTES, Request, encode
from .inside.slot import ORDER, READY, REPORT
from .protocol import ExecutionStatus, Limits, Usage

START_TIMEOUT_S = 30.0
KILL_TIMEOUT_S = 5.0
"""How long a slot may take to report after its run was killed, before the slot itself is given
up.
"""

MAX_PROCESSES = 128
"""Where no control group counts them, more processes than this end the run."""

_FIRST_LOOK_S = 0.005
_LOOK_EVERY_S = 0.25
_SHORTEST_LOOK_S = 0.02
_PATIENCE = 8.0
"""A run that is denied the CPU is given up after this many times its wall limit: the machine is
overloaded.
"""

_READ_BYTES = 1 << 18


class SlotLost(Exception):
    """The slot ended or could not start: ours, never the program's."""


@dataclass(slots=True)
class Outcome:
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


class Slot:
    """A running slot. One run at a time; whoever holds it calls `run`."""

    def __init__(self, plan: Plan, group: ControlGroup | None) -> None:
        self.plan = plan
        self.group = group
        self.runs = 0
        self.alive = False
        self._started = False
        self.number = 1
        """The run the parked child is waiting for."""
        self._waiter: asyncio.Future[bytes] | None = None
        self._oom_kills = group.oom_kills() if group else 0

    async def start(self) -> None:
        """Start the guardian and wait until the slot is behind its walls.

        Raises:
            SlotLost: a wall could not be built; the message says which.
        """
        self._loop = asyncio.get_running_loop()
        self._guardian, self._control, self._requests = await self._launch()
        self._started = True
        self._control.setblocking(False)
        self._requests.setblocking(False)
        self.alive = True
        try:
            await self._loop.sock_sendall(self._control, self.plan.encode())
            async with asyncio.timeout(START_TIMEOUT_S):
                answer = await self._loop.sock_recv(self._control, 4096)
        except (OSError, TimeoutError) as error:
            await self.close()
            raise SlotLost(f"the slot did not start: {error or type(error).__name__}") from error
        if answer != READY:
            await self.close()
            raise SlotLost(
                answer.decode("utf-8", "replace").removeprefix("failed:") or "it ended at once"
            )
        self._loop.add_reader(self._control, self._on_control)

    async def _launch(self) -> tuple[Guardian, socket.socket, socket.socket]:
        """The guardian, and the driver's ends of the control and the request line.

        Raises:
            SlotLost: it cannot be started.
        """
        control, control_there = pair()
        requests, requests_there = pair()
        with control_there, requests_there:
            return spawn(control_there, requests_there), control, requests

    async def run(
        self,
        request: Request,
        limits: Limits,
        *,
        stdin: bytes = b"",
        peers: Sequence[tuple[str, int]] = (),
        preserve: bool = False,
    ) -> Outcome:
        """Run one request to its end.

        Args:
            peers: further descriptors for the child, by name ("peer", "report"); closed here once
                they are sent, so
                that the other end of a line sees it close when the child ends.
            preserve: keep the run's files for the next run in this slot.

        Raises:
            SlotLost: the slot broke; the run's outcome is unknown.
        """
        if not self.alive:
            for _, descriptor in peers:
                os.close(descriptor)
            raise SlotLost("the slot has ended")
        run = _Run(self, limits)
        self._waiter = self._loop.create_future()
        try:
            self._prepare(limits, preserve)
            run.begin(request, stdin, peers)
            report = await self._waiter
            return run.finish(report)
        except OSError as error:
            self._lose()
            raise SlotLost(f"the slot cannot be reached: {error}") from error
        except asyncio.CancelledError:
            self._lose()  # its run is still going, so nobody else may get this slot
            raise
        finally:
            self._waiter = None
            self.number += 1
            self.runs += 1
            run.close()

    def _prepare(self, limits: Limits, preserve: bool) -> None:
        if self.group:
            self.group.limit_memory(limits.memory_bytes)
        if preserve:
            self._control.send(ORDER.pack(b"P", self.number))

    def send(self, request: Request, descriptors: list[int]) -> None:
        """Hand the parked child its request."""
        data = encode(request, self.number)
        body = -1
        if len(data) > INLINE_BYTES:
            body = _memory_file("request", data)
            data = b"@"
            descriptors = [*descriptors, body]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        self._requests.sendmsg([data], rights)
        if body >= 0:
            os.close(body)

    def kill_run(self) -> None:
        """End the present run; its report follows."""
        with suppress(OSError):
            self._control.send(ORDER.pack(b"K", self.number))

    def interrupt_run(self) -> None:
        """Send the run's first process SIGINT."""
        with suppress(OSError):
            self._control.send(ORDER.pack(b"I", self.number))

    def new_oom_kills(self) -> int:
        """Kills for want of memory since the last call."""
        if self.group is None:
            return 0
        before, self._oom_kills = self._oom_kills, self.group.oom_kills()
        return self._oom_kills - before

    def look(self) -> process_tree.TreeUsage:
        """What the processes of the present run have used."""
        return process_tree.usage(self.processes())

    def processes(self) -> list[int]:
        """The pids of the present run."""
        slot = process_tree.descendants(self._guardian.pid)[:1]
        return process_tree.descendants(slot[0]) if slot else []

    def _on_control(self) -> None:
        try:
            report = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            report = b""
        if report[:1] != b"R":  # closed, or the reason why the slot had to stop
            self._lose(report.decode("utf-8", "replace").removeprefix("failed:"))
        elif self._waiter and not self._waiter.done():
            self._waiter.set_result(report)

    def give_up(self) -> None:
        """The slot does not answer: end it."""
        self._lose()

    def _lose(self, reason: str = "") -> None:
        self.alive = False
        self._loop.remove_reader(self._control)
        self._guardian.kill()
        if self._waiter and not self._waiter.done():
            self._waiter.set_exception(SlotLost(f"the slot ended during the run {reason}".rstrip()))

    async def close(self) -> None:
        """End the slot and everything in it. Idempotent."""
        if self._started:
            self._started = self.alive = False
            self._loop.remove_reader(self._control)
            self._control.close()
            self._requests.close()
            self._guardian.kill()
            await _until(lambda: self._guardian.poll() is not None)
        if self.group:
            group = self.group
            await _until(group.try_to_remove)
            self.group = None


async def _until(true: Callable[[], bool]) -> None:
    """Try again every few milliseconds. (Not a thread: this also runs while the process exits.)"""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while not true() and time.monotonic() < deadline:  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.003)


class _Run:
    """The limits and pipes of one run."""

    def __init__(self, slot: Slot, limits: Limits) -> None:
        self.slot = slot
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.streams: list[_Stream] = []
        self.reading = False
        self.verdict: ExecutionStatus | None = None
        self.detail = ""
        self.timer: asyncio.TimerHandle | None = None
        self.cpu_before = 0.0
        self.ended = 0.0

    def begin(self, request: Request, stdin: bytes, peers: Sequence[tuple[str, int]]) -> None:
        """Open the pipes and send the request."""
        names, own = ["out", "err"], list[int]()
        try:
            for _ in names:
                reader, writer = os.pipe()
                self.streams.append(_Stream(reader, self.limits.output_bytes))
                os.set_blocking(reader, False)
                os.fchmod(
                    writer, 0o622
                )  # so that a program may open /dev/stdout, which is this pipe
                own.append(writer)
            if stdin:
                names.append("in")
                own.append(_memory_file("stdin", stdin))
            own += [descriptor for _, descriptor in peers]
            request.streams = names + [name for name, _ in peers]
            self.started = time.monotonic()
            self.slot.send(request, own)
        finally:
            for descriptor in own:
                os.close(descriptor)
        self.timer = self.loop.call_later(_FIRST_LOOK_S, self._first_look)

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
        """Hold the run against its limits, and say when to look again."""
        elapsed = time.monotonic() - self.started
        limits = self.limits
        tree = None if self.slot.group else self.slot.look()
        cpu = tree.cpu_s if tree else self._group_cpu()
        left = limits.timeout_s - elapsed
        if cpu >= limits.cpu_s:
            self.stop(ExecutionStatus.TIMEOUT, f"used more than {limits.cpu_s:g} s of CPU time")
        elif tree and tree.memory_bytes > limits.memory_bytes < process_tree.shared_out(
            self.slot.processes()
        ):
            self.stop(ExecutionStatus.OOM, f"used more than {limits.memory_bytes} bytes of memory")
        elif tree and tree.processes > MAX_PROCESSES:
            self.stop(ExecutionStatus.ERROR, f"started more than {MAX_PROCESSES} processes")
        elif left <= 0:
            left = self._overdue(elapsed, cpu)
        if not self.verdict:
            soon = max(_SHORTEST_LOOK_S, (limits.cpu_s - cpu) / (os.cpu_count() or 1))
            often = _LOOK_EVERY_S if self.slot.group else _SHORTEST_LOOK_S
            self.timer = self.loop.call_later(max(0.001, min(left, soon, often)), self._look)

    def _group_cpu(self) -> float:
        return self.slot.group.cpu_s() - self.cpu_before if self.slot.group else 0.0

    def _overdue(self, elapsed: float, cpu: float) -> float:
        """Past the wall limit: the program's own doing, unless the machine kept it waiting for a
        core.
        """
        waited = 0.0 if cpu >= self.limits.timeout_s else self.slot.look().waited_s
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
        self.timer = self.loop.call_later(KILL_TIMEOUT_S, self.slot.give_up)

    def finish(self, report: bytes) -> Outcome:
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
        out, err = (stream.content() for stream in self.streams)
        code = os.waitstatus_to_exitcode(status)
        usage = Usage(wall_s=wall, cpu_s=(user_us + system_us) / 1e6, memory_bytes=memory)
        killed_for_memory = self.slot.new_oom_kills() > 0
        if self.verdict:
            return Outcome(self.verdict, None, out, err, usage, self.detail)
        if code != 0 and (killed_for_memory or _ends_in_memory_error(code, err)):
            return Outcome(ExecutionStatus.OOM, None, out, err, usage, "it ran out of memory")
        return Outcome(ExecutionStatus.ERROR if code else ExecutionStatus.OK, code, out, err, usage)

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


def _memory_file(name: str, data: bytes) -> int:
    """A sealed-off copy of `data` behind a descriptor that stands at its start."""
    descriptor = os.memfd_create(name)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
