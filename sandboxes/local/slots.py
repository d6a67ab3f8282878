"""One slot as the driver sees it: start it, hand runs to it, end it when it breaks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from ..guest.run.plan import JailPlan
from ..guest.run.request import Request, send
from ..guest.run.slot import ORDER, READY
from ..protocol import Limits
from . import process_tree
from .control_groups import ControlGroup
from .runs import KILL_TIMEOUT_S, Run, RunOutcome, SlotLost
from .supervisor import Supervisor, pair, spawn

__all__ = ["START_TIMEOUT_S", "RunOutcome", "Slot", "SlotLost"]

START_TIMEOUT_S = 30.0
_KILL_AGAIN_S = 0.5


class Slot:
    """A running slot. One run at a time; whoever holds it calls `run`."""

    def __init__(self, plan: JailPlan, group: ControlGroup | None) -> None:
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
        self._supervisor, self._control, self._requests = await self._launch()
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

    async def _launch(self) -> tuple[Supervisor, socket.socket, socket.socket]:
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
    ) -> RunOutcome:
        """Run one request to its end.

        Args:
            peers: further descriptors for the child, by name ("peer", "report"); closed here once
                they are sent, so
                that the other end of a line sees it close when the child ends.
            preserve: keep the run's files for the next run in this slot.

        Raises:
            SlotLost: the slot broke; the run's outcome is unknown.
        """
        if self._waiter:
            self._lose("that was still going when the slot was used again")
        if not self.alive:
            for _, descriptor in peers:
                os.close(descriptor)
            raise SlotLost("the slot has ended")
        run = Run(self, limits)
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
        send(self._requests, request, self.number, descriptors)

    def is_busy(self) -> bool:
        """Whether the present run's request lies unread: the slot still clears up after the last
        run.
        """
        unread = bytearray(4)
        try:
            fcntl.ioctl(self._requests, termios.TIOCOUTQ, unread)
        except OSError:
            return False
        return any(unread)

    def kill_run(self) -> None:
        """End the present run, if there is one; its report follows, or the slot is given up."""
        if self._waiter is None:  # what is armed here would end the next run
            return
        self._order(b"K")
        self._loop.call_later(KILL_TIMEOUT_S, self._give_up_run, self.number)

    def _give_up_run(self, number: int) -> None:
        if self.alive and self._waiter is not None and self.number == number:
            self.give_up()

    async def end_run(self, run: asyncio.Future[RunOutcome]) -> None:
        """See that a run is over that may not have begun yet."""
        await asyncio.sleep(0)
        while not run.done():
            self.kill_run()
            await asyncio.wait([run], timeout=_KILL_AGAIN_S)

    def interrupt_run(self) -> None:
        """Send the run's first process SIGINT."""
        self._order(b"I")

    def hold_run(self) -> None:
        """The present run ends when it is killed, even if its first process has ended before."""
        self._order(b"H")

    def _order(self, what: bytes) -> None:
        """Without a run it would go to the child that waits for the next one."""
        if self._waiter:
            with suppress(OSError):
                self._control.send(ORDER.pack(what, self.number))

    def new_oom_kills(self) -> int:
        """Kills for want of memory since the last call."""
        if self.group is None:
            return 0
        before, self._oom_kills = self._oom_kills, self.group.oom_kills()
        return self._oom_kills - before

    @property
    def pid(self) -> int:
        """Its guardian, as this machine counts."""
        return self._supervisor.pid

    def look(self) -> process_tree.TreeUsage:
        """What the processes of the present run have used."""
        return process_tree.usage(self.processes())

    def processes(self) -> list[int]:
        """The pids of the present run."""
        slot = process_tree.descendants(self._supervisor.pid)[:1]
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
        elif self._waiter is None:  # its child ended without a run: their numbers differ now
            self._lose()
        elif not self._waiter.done():
            self._waiter.set_result(report)

    def give_up(self) -> None:
        """The slot does not answer: end it."""
        self._lose()

    def _lose(self, reason: str = "") -> None:
        self.alive = False
        self._loop.remove_reader(self._control)
        self._supervisor.kill()
        if self._waiter and not self._waiter.done():
            self._waiter.set_exception(SlotLost(f"the slot ended during the run {reason}".rstrip()))

    async def close(self) -> None:
        """End the slot and everything in it. Idempotent."""
        if self._started:
            self._started = self.alive = False
            self._loop.remove_reader(self._control)
            self._control.close()
            self._requests.close()
            self._supervisor.kill()
            await _until(lambda: self._supervisor.poll() is not None)
        if self.group:
            group = self.group
            await _until(group.try_to_remove)
            self.group = None


async def _until(true: Callable[[], bool]) -> None:
    """Try again every few milliseconds. (Not a thread: this also runs while the process exits.)"""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while not true() and time.monotonic() < deadline:  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.003)
