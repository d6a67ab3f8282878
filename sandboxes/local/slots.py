"""The driver's side of a slot: starting a slot, running requests, and ending the slot."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from ..guest.run import emptying
from ..guest.run.plan import LANDLOCK, JailPlan
from ..guest.run.request import Request, send
from ..guest.run.slot import ORDER, READY
from ..protocol import Limits
from . import process_tree
from .control_groups import ControlGroup
from .runs import KILL_TIMEOUT_S, Beside, Run, RunOutcome, SlotLost, refusal
from .supervisor import Supervisor, pair, spawn

__all__ = ["START_TIMEOUT_S", "RunOutcome", "Slot", "SlotLost"]

START_TIMEOUT_S = 30.0
_KILL_AGAIN_S = 0.5


class Slot:
    """A slot that the driver has started or will start; `run` takes a single request at a time."""

    def __init__(self, plan: JailPlan, group: ControlGroup | None) -> None:
        self.plan = plan
        self.group = group
        self.runs = 0
        self.alive = False
        self._started = False
        self.number = 1
        """The number of the run that the waiting child will serve."""
        self._waiter: asyncio.Future[bytes] | None = None
        self._oom_kills = group.oom_kills() if group else 0

    async def start(self) -> None:
        """Start the supervisor, and wait until the slot is isolated and ready.

        Raises:
            SlotLost: an isolation step failed (the message says which), or the slot is not ready
                within `START_TIMEOUT_S`.
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
            reason = str(error) or type(error).__name__
            raise SlotLost(f"the slot did not start: {reason}") from error
        if answer != READY:
            await self.close()
            raise SlotLost(
                answer.decode("utf-8", "replace").removeprefix("failed:") or "it ended at once"
            )
        self._loop.add_reader(self._control, self._on_control)

    async def _launch(self) -> tuple[Supervisor, socket.socket, socket.socket]:
        """Start the supervisor; return the supervisor with the driver's ends of control socket and
        request socket.

        Raises:
            SlotLost: the supervisor cannot be started.
        """
        with ExitStack() as lines:  # closed here if there is no supervisor to speak to
            try:
                control, control_there = map(lines.enter_context, pair())
                requests, requests_there = map(lines.enter_context, pair())
                supervisor = spawn(control_there, requests_there)
            except OSError as error:  # such as too many open files, or no process left
                raise SlotLost(refusal("the supervisor cannot be started", error)) from error
            control_there.close()
            requests_there.close()
            lines.pop_all()
        return supervisor, control, requests

    async def run(
        self,
        request: Request,
        limits: Limits,
        *,
        stdin: bytes = b"",
        peers: Sequence[tuple[str, int]] = (),
        preserve: bool = False,
        beside: Beside | None = None,
    ) -> RunOutcome:
        """Run a request to the end, and return the outcome.

        Args:
            request: what the child is to do.
            limits: what the run may use; a run that exceeds a limit is killed.
            stdin: the standard input of the run.
            peers: further descriptors for the child, by name ("peer", "report"). They are closed
                here once they are sent, so that the other end of a line sees it close when the
                child ends.
            preserve: keep the run's files for the next run in this slot.
            beside: the run with which this run takes turns, if any.

        Raises:
            SlotLost: the slot broke; the run's outcome is unknown.
        """
        with ExitStack() as lines:
            for _, descriptor in peers:
                lines.callback(os.close, descriptor)
            if self._waiter:
                self._lose("that was still going when the slot was used again")
            if not self.alive:
                raise SlotLost("the slot has ended")
            run = Run(self, limits, beside)
            self._waiter = self._loop.create_future()
            try:
                if self.group:
                    self.group.limit_memory(limits.memory_bytes)
                if preserve:
                    self._control.send(ORDER.pack(b"P", self.number))
                run.begin(request, stdin, peers)
                lines.close()
                report = await self._waiter
                return run.finish(report)
            except BaseException as error:
                # The run is still going, or driver and slot count runs differently from now on: so
                # nobody else may get this slot.
                self._waiter.cancel()  # nobody waits for the report
                if self.alive:
                    self._lose()
                if isinstance(error, OSError):
                    raise SlotLost(refusal("the slot cannot be reached", error)) from error
                raise
            finally:
                self._waiter = None
                self.number += 1
                self.runs += 1
                run.close()

    def send(self, request: Request, descriptors: list[int]) -> None:
        """Send the request and the descriptors to the child that waits for a run."""
        send(self._requests, request, self.number, descriptors)

    def is_busy(self) -> bool:
        """Return whether the present run's request lies unread: the slot still cleans up after the
        last run.
        """
        # On a Unix socket the ioctl gives the bytes that the other end has not read, as an int.
        unread_count = bytearray(4)
        try:
            fcntl.ioctl(self._requests, termios.TIOCOUTQ, unread_count)
        except OSError:
            return False
        return any(unread_count)

    def kill_run(self) -> None:
        """Kill the present run, if any; a slot that does not report the end in time is given up."""
        if self._waiter is None:  # The timer below would end the next run.
            return
        self._order(b"K")
        self._loop.call_later(KILL_TIMEOUT_S, self._give_up_run, self.number)

    def _give_up_run(self, number: int) -> None:
        if self.alive and self._waiter is not None and self.number == number:
            self.give_up()

    async def end_run(self, run: asyncio.Future[RunOutcome]) -> None:
        """Kill `run`, which may not have begun, and wait until the run has ended.

        The kill is repeated, because a kill before the run begins has no effect.
        """
        await asyncio.sleep(0)  # A task that was only just created begins its run here.
        while not run.done():
            self.kill_run()
            await asyncio.wait([run], timeout=_KILL_AGAIN_S)

    def interrupt_run(self) -> None:
        """Send SIGINT to the first process of the run."""
        self._order(b"I")

    def hold_run(self) -> None:
        """Have the present run last until killed, even if the first process ends before."""
        self._order(b"H")

    def _order(self, order: bytes) -> None:
        """Send the slot an order about the present run, if any.

        Without a run the order would reach the child that waits for the next run.
        """
        if self._waiter:
            with suppress(OSError):
                self._control.send(ORDER.pack(order, self.number))

    def new_oom_kills(self) -> int:
        """Return how many processes were killed for lack of memory since the last call."""
        if self.group is None:
            return 0
        before, self._oom_kills = self._oom_kills, self.group.oom_kills()
        return self._oom_kills - before

    @property
    def pid(self) -> int:
        """The pid of the supervisor, in the pid namespace of the driver."""
        return self._supervisor.pid

    def look(self) -> process_tree.TreeUsage:
        """Return what the processes of the present run have used."""
        return process_tree.usage(self.processes())

    @property
    def watches_disk(self) -> bool:
        """Whether nothing but the driver bounds what runs write."""
        return self.plan.tier == LANDLOCK

    def fills_disk(self) -> bool:
        """Return whether the work directory holds more than a run may write."""
        plan = self.plan
        return emptying.holds_more(plan.work, plan.disk_inodes, plan.disk_bytes)

    def processes(self) -> list[int]:
        """Return the pids of the present run."""
        # The slot is the supervisor's only child, so it comes first; a run is below the slot.
        slot = process_tree.descendants(self._supervisor.pid)[:1]
        return process_tree.descendants(slot[0]) if slot else []

    def _on_control(self) -> None:
        try:
            report = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            report = b""
        if report[:1] != b"R":  # The socket was closed, or the slot says why it had to stop.
            self._lose(report.decode("utf-8", "replace").removeprefix("failed:"))
        elif self._waiter is None:
            # The parked child ended without a run, so driver and slot now count runs differently.
            self._lose()
        elif not self._waiter.done():
            self._waiter.set_result(report)

    def give_up(self) -> None:
        """End the slot, which does not answer; the present run fails with `SlotLost`."""
        self._lose()

    def _lose(self, reason: str = "") -> None:
        self.alive = False
        self._loop.remove_reader(self._control)
        self._supervisor.end()
        if self._waiter and not self._waiter.done():
            self._waiter.set_exception(SlotLost(f"the slot ended during the run {reason}".rstrip()))

    async def close(self) -> None:
        """End the slot with every process inside, and remove the control group; a run that goes on
        fails with `SlotLost`. A second call does nothing.
        """
        if self._started:
            self._started = False
            self._lose()
            self._control.close()
            self._requests.close()
            await _until(lambda: self._supervisor.poll() is not None)
        if self.group:
            group = self.group
            await _until(group.try_to_remove)
            self.group = None


async def _until(condition: Callable[[], bool]) -> None:
    """Try a condition every few milliseconds, for at most `KILL_TIMEOUT_S`.

    No thread is used, because this also runs while the process exits.
    """
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.003)
