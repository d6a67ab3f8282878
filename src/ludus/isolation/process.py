"""A worker process as the owner sees it: calls with deadlines, and a classified end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from .frames import CANCEL, FAILED, BadFrame, Frame, FrameReader, pack
from .output import Output
from .owner import Death, Forked, Template
from .part import Answer
from .worker import Failure

logger = logging.getLogger(__name__)
CANCEL_GRACE_S = 0.5
"""A late async call is cancelled first; if it has not ended after so many seconds, its process is
killed.
"""
DRAIN_S = 0.02
"""The seconds for which the last output of a dead process is read."""

controls = ThreadPoolExecutor(4, thread_name_prefix="ludus-control")
"""The threads for blocking calls to templates: a fork and a reap take about a millisecond."""


class WorkerEnd(StrEnum):
    """The reasons why a worker process has ended."""

    LATE = "late"
    """We killed the process: a call did not answer by its deadline."""
    CORRUPT = "corrupt"
    """We killed the process: it sent something that is not an answer."""
    STOPPED = "stopped"
    """We ended the process: it was idle or due for recycling, or the server stops."""
    EXITED = "exited"
    """The process ended by itself: `os._exit`, or a failed start."""
    CRASHED = "crashed"
    """The process died by a signal of its own making: a segmentation fault, an abort."""
    KILLED = "killed"
    """Somebody else sent SIGKILL: a person, or the kernel when memory ran out."""
    UNSTARTED = "unstarted"
    """The process never started: the fork failed, or the template could not be loaded again."""


class CallFailed(Exception):
    """An exception escaped from the part, or the answer was too large; the worker goes on."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class CallLate(Exception):
    """The call did not answer by the deadline."""


class WorkerLost(Exception):
    """The worker process ended before the call was answered."""

    def __init__(self, end: WorkerEnd, reason: str) -> None:
        super().__init__(reason)
        self.end = end


@dataclass(slots=True)
class _Call:
    future: asyncio.Future[Answer]
    timeout_s: float
    frame: bytes
    """The encoded call, until it is sent."""
    timer: asyncio.TimerHandle | None = None


class WorkerProcess:
    """A worker process. The fork runs in the background; calls made before wait for it.

    Args:
        label: the name of what the worker serves.
        is_async: whether the part is async; a late call is then cancelled before the process is
            killed.
        max_body: the most bytes of an answer; a longer answer makes the worker untrusted.
        fork: returns the process, and the template that is its parent.
        on_change: called whenever a call or the process has ended.
    """

    def __init__(
        self,
        label: str,
        *,
        is_async: bool,
        max_body: int,
        fork: Callable[[], Awaitable[tuple[Template, Forked]]],
        on_change: Callable[[WorkerProcess], None],
    ) -> None:
        self.label = label
        self.pid = 0
        self.end: WorkerEnd | None = None
        """Set once the process has ended or is being ended; no more calls are taken then."""
        self.why = ""
        """The reason for the end in words; empty while the process runs."""
        self.calls = 0
        """The number of calls so far."""
        self.sessions = 0
        """The number of sessions in the process; the caller counts them."""
        self._late: set[int] = set()
        """Calls past their deadline that were cancelled and have not ended."""
        self._held: list[int] = []
        """Calls that passed their deadline while a cancelled call had not ended."""
        self.idle_since = time.monotonic()
        self._is_async = is_async
        self._max_body = max_body
        self._on_change = on_change
        self._numbers = itertools.count(1)
        self._open: dict[int, _Call] = {}
        self._template: Template | None = None
        self._handle: int | None = None
        """A pid file descriptor, which is readable once the process has ended; None where the
        system has none.
        """
        self._reaping = False
        self._transport: asyncio.WriteTransport | None = None
        self._output: Output | None = None
        self._ended = asyncio.Event()
        self._starting = asyncio.create_task(self._start(fork))

    @property
    def busy(self) -> int:
        """The number of calls without an answer."""
        return len(self._open)

    @property
    def is_late(self) -> bool:
        """Whether a call is past its deadline and has not ended."""
        return bool(self._late)

    @property
    def is_empty(self) -> bool:
        """Whether the process has neither open calls nor sessions."""
        return not self._open and not self.sessions

    @property
    def gone(self) -> bool:
        """Whether the process has ended and every waiting caller was told."""
        return self._ended.is_set()

    def call(
        self, tag: int, thread_number: int, body: bytes, *, timeout_s: float
    ) -> asyncio.Future[Answer]:
        """Send a call.

        Args:
            tag: what is asked.
            thread_number: the number of the worker thread; calls with the same number run one
                after another.
            body: the encoded arguments.
            timeout_s: the limit in seconds, from when the call is sent.

        Returns:
            A future of the answer, which may fail with CallFailed, CallLate or WorkerLost.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        if self.end is not None:
            future.set_exception(WorkerLost(self.end, self.why))
            return future
        number = next(self._numbers)
        call = _Call(future, timeout_s, pack(number, tag, thread_number, body))
        self._open[number] = call
        self.calls += 1
        if self._transport is not None:
            self._send(number, call)
        return future

    def stop(self, end: WorkerEnd, reason: str) -> None:
        """Kill the process; waiting callers are told `reason`."""
        if self.end is None:
            self.end, self.why = end, reason
        self._kill()

    async def ended(self) -> None:
        """Wait until the process has ended."""
        await self._ended.wait()

    async def _start(self, fork: Callable[[], Awaitable[tuple[Template, Forked]]]) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._template, forked = await fork()
        except Exception as error:
            self._finish(WorkerEnd.UNSTARTED, f"no worker process could be started: {error}")
            return
        self.pid = forked.pid
        self._output = Output(forked.output, self.label)
        forked.sock.setblocking(False)
        self._transport, _ = await loop.create_connection(
            lambda: FrameReader(self._max_body, self._take, self._closed), sock=forked.sock
        )
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._handle = os.pidfd_open(forked.pid)
                loop.add_reader(self._handle, self._died)
        if self.end is not None:  # stopped meanwhile
            self._kill()
        for number, call in list(self._open.items()):
            self._send(number, call)

    def _send(self, number: int, call: _Call) -> None:
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        call.timer = loop.call_later(call.timeout_s, self._deadline, number, call.timeout_s)
        self._transport.write(call.frame)
        call.frame = b""

    # --- what comes from the worker --------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        call = self._open.pop(frame.call, None)
        if call is None:
            raise BadFrame(f"an answer to call {frame.call}, which nobody made")
        if call.timer is not None:
            call.timer.cancel()
        if frame.call in self._late:
            # A late call has ended; calls past their deadline behind it are late now.
            self._late.discard(frame.call)
            # Each of them is judged by itself: with another late call the deadline would only be
            # put off again, so `_late` is emptied before.
            held, self._held = self._held, []
            for number in held:
                if waiting := self._open.get(number):
                    self._late.clear()
                    self._deadline(number, waiting.timeout_s)
        elif not call.future.done():
            if frame.tag != FAILED:
                call.future.set_result((frame.tag, frame.body))
            else:
                try:
                    failure = msgspec.msgpack.decode(frame.body, type=Failure)
                except msgspec.DecodeError as error:
                    raise BadFrame(f"a failure that cannot be read: {error}") from None
                call.future.set_exception(CallFailed(failure))
        self.idle_since = time.monotonic()
        self._on_change(self)

    def _deadline(self, number: int, timeout_s: float) -> None:
        call = self._open.get(number)
        if call is None:
            return
        if self._late:
            # Perhaps the earlier call blocks the event loop for both. This call is judged when the
            # earlier call has ended (decision 0210).
            self._held.append(number)
            return
        if not call.future.done():
            call.future.set_exception(CallLate(f"no answer within {timeout_s:g} s"))
        if not self._is_async:
            self._give_up(timeout_s)
            return
        assert self._transport is not None
        # An async call is asked to end first, since other calls share its process.
        self._late.add(number)
        self._transport.write(pack(number, CANCEL, 0, b""))
        loop = asyncio.get_running_loop()
        call.timer = loop.call_later(CANCEL_GRACE_S, self._give_up, timeout_s)

    def _give_up(self, timeout_s: float) -> None:
        self.stop(WorkerEnd.LATE, f"a call in its process did not end within {timeout_s:g} s")

    # --- its end ---------------------------------------------------------------------------------

    def _died(self) -> None:
        """Handle the end of the process, whose socket may still be open in a child that it left."""
        assert self._handle is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._handle)
        loop.call_later(DRAIN_S, self._closed, None)

    def _closed(self, error: BaseException | None) -> None:
        """Find out how a dead or untrusted process ended, and tell every caller."""
        if self._reaping:
            return
        assert self._template is not None
        assert self._transport is not None
        self._transport.abort()
        if isinstance(error, BadFrame) and self.end is None:
            self.end = WorkerEnd.CORRUPT
            self.why = f"its process sent what is not an answer: {error}"
        self._kill()
        self._reaping = True
        loop = asyncio.get_running_loop()
        reaping = loop.run_in_executor(controls, self._template.reap, self.pid)
        reaping.add_done_callback(self._reaped)

    def _reaped(self, reaping: asyncio.Future[Death]) -> None:
        death = Death(known=False) if reaping.cancelled() else reaping.result()
        if self._output is not None:
            self._output.close()
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None
        end, reason = self.end, self.why
        if end is None:
            # We did not end the process. Whoever sent SIGKILL is unknown, and so is an end without
            # a report, so neither is blamed on the code in the process.
            reason = f"its process ended ({death})"
            end = WorkerEnd.CRASHED if death.signal else WorkerEnd.EXITED
            if not death.known or death.signal == signal.SIGKILL:
                end = WorkerEnd.KILLED
        self._finish(end, reason)

    def _finish(self, end: WorkerEnd, reason: str) -> None:
        """Tell every waiting caller that the process has ended, and log the end once."""
        self.end, self.why = end, reason
        calls, self._open = list(self._open.values()), {}
        waiting = [call for call in calls if not call.future.done()]
        if end is not WorkerEnd.STOPPED:
            last_output = self._output.tail if self._output else ""
            logger.error(
                "%s: worker process %d is lost (%s): %s; it held %d sessions and %d open calls%s",
                self.label,
                self.pid,
                end,
                reason,
                self.sessions,
                len(calls),
                f"; it printed last: {last_output}" if last_output else "",
            )
        for call in calls:
            if call.timer is not None:
                call.timer.cancel()
        for call in waiting:
            call.future.set_exception(WorkerLost(end, reason))
        self._ended.set()
        self._on_change(self)

    def _kill(self) -> None:
        """Send SIGKILL to the process and its group.

        The process has not been reaped, so its pid cannot belong to another process.
        """
        if self._reaping or not self.pid:
            return
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)
