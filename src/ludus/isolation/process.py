"""A worker process as its owner sees it: calls with deadlines, and a classified end.

The owner of a process is a single task, from the fork to the reaping: it keeps the deadlines, kills
the process, finds out how the process ended, tells every caller, and frees the place. Whatever
fails in the task ends the process and is told to the callers; so no call stays without an answer,
and no place is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import os
import signal
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import msgspec

from .frames import CANCEL, FAILED, BadFrame, Frame, FrameReader, pack
from .part import Answer
from .spawning import Death, OwnedProcess
from .worker import Failure

T = TypeVar("T")

logger = logging.getLogger(__name__)
CANCEL_GRACE_S = 0.5
"""A late async call is cancelled first; if it has not ended after so many seconds, its process is
killed.
"""
DRAIN_S = 0.02
"""The seconds for which the last output of a dead process is read."""
RETRY_S = 0.05
"""The seconds after which a step of the end that failed is done again."""
MAX_LINES = 50
"""How many lines of what a worker prints are logged."""
TAIL_BYTES = 400
CHUNK_BYTES = 16 << 10
READ_BYTES = 1 << 20
"""How many bytes of what a worker prints are read at a time; most are dropped."""
READ_EVERY_S = 0.05
"""The time between two such readings, in seconds: one that prints without end has to wait."""

controls = ThreadPoolExecutor(4, thread_name_prefix="ludus-control")
"""The threads for blocking calls to templates: a fork and a reap take about a millisecond."""


async def blocking(function: Callable[[], T]) -> T:
    """Call `function` on a control thread, and wait for the end even if the caller is cancelled, so
    that the result is known.
    """
    running: asyncio.Future[T] | None = None
    try:
        running = asyncio.get_running_loop().run_in_executor(controls, function)
        return await asyncio.shield(running)
    except BaseException:
        if running is not None:
            await asyncio.wait({running})
        raise


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
    ABANDONED = "abandoned"
    """We killed the process: its owner could not go on, as when the owner's memory ran out."""


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


@dataclass(slots=True, eq=False)
class _Call:
    """A call that was made and not answered."""

    future: asyncio.Future[Answer]
    timeout_s: float
    frame: bytes
    """The encoded call, until it is sent."""
    deadline: float = math.inf
    """A value of `time.monotonic()`; infinite until the call is sent."""


class WorkerProcess:
    """A worker process, started in the background; earlier calls wait for the start.

    Args:
        label: the name of what the worker serves.
        is_async: whether the part is async; a late call is then cancelled before the process is
            killed.
        max_body: the most bytes of an answer; a longer answer makes the worker untrusted.
        max_calls: after so many calls the process ends, once it is empty.
        on_free: called whenever a call has ended.
        on_gone: called when the process has ended and its callers were told; once more if it fails.
    """

    def __init__(
        self,
        label: str,
        *,
        is_async: bool,
        max_body: int,
        max_calls: float = math.inf,
        on_free: Callable[[], None] = lambda: None,
        on_gone: Callable[[WorkerProcess], None] = lambda worker: None,
    ) -> None:
        self.label = label
        self.process: OwnedProcess | None = None
        self.end: WorkerEnd | None = None
        """Set once the process has ended or is being ended; no more calls are taken then."""
        self.why = ""
        """The reason for the end in words; empty while the process runs."""
        self.death = Death(known=False)
        """How the process ended, once it has."""
        self.gone = False
        """Whether the process has ended and every waiting caller was told."""
        self.calls = 0
        """The number of calls so far."""
        self.sessions = 0
        """The number of sessions in the process; the caller counts them."""
        self.alone = False
        """Whether the call that runs shall be the only one; the caller says so."""
        self.heard = 0
        """The number of answers so far, also those that nobody waits for."""
        self.open: dict[int, _Call] = {}
        """Calls without an answer, by number."""
        self.late: dict[int, float] = {}
        """Calls past their deadline that were cancelled and have not ended, with the time at which
        the process is killed for it.
        """
        self.idle_since = time.monotonic()
        self._heeds = False
        """Whether a late call has ended at its cancellation since the last deadline was kept."""
        self._is_async = is_async
        self._max_body = max_body
        self._max_calls = max_calls
        self._on_free = on_free
        self._on_gone = on_gone
        self._numbers = itertools.count(1)
        self._transport: asyncio.WriteTransport | None = None
        self._output: _Output | None = None
        self._alarm = asyncio.Event()
        """Wakes the owner: a stop, an end, or a deadline before `_next_look`."""
        self._next_look = math.inf
        self._ended = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The pid of the process; 0 before the start."""
        return self.process.pid if self.process is not None else 0

    @property
    def is_empty(self) -> bool:
        """Whether the process has neither open calls nor sessions."""
        return not self.open and not self.sessions

    @property
    def is_worn(self) -> bool:
        """Whether the process is due for recycling."""
        return self.calls >= self._max_calls

    @property
    def takes_more(self) -> bool:
        """Whether the process is alive, answers in time, and is not due for recycling."""
        return self.end is None and not self.late and self.calls < self._max_calls

    def start(self, spawn: Callable[[WorkerProcess], Awaitable[None]]) -> None:
        """Start the process in the background.

        Args:
            spawn: starts the process and puts it into `process`.
        """
        self._owner = asyncio.create_task(self._own(spawn), name=f"ludus-worker-{self.label}")
        self._owner.add_done_callback(self._disowned)

    def abandon(self) -> None:
        """End a process whose start failed, also before the process has an owner."""
        self.stop(WorkerEnd.UNSTARTED, "no worker process could be started")
        if self._owner is None:
            self._on_gone(self)

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
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self.end is not None:
            future.set_exception(WorkerLost(self.end, self.why))
            return future
        number = next(self._numbers)
        call = _Call(future, timeout_s, pack(number, tag, thread_number, body))
        try:
            self.open[number] = call
            self.calls += 1
            if self._transport is not None:
                self._send(call)
        except BaseException:
            # Part of the call may have been sent, and the next one would be read as its rest.
            self.open.pop(number, None)
            self.stop(WorkerEnd.ABANDONED, "a call could not be sent to its process")
            raise
        return future

    def cancel(self, future: asyncio.Future[Answer]) -> None:
        """Ask an async part to end a call that nobody waits for any more."""
        for number, call in self.open.items():
            if call.future is future and self._transport is not None and self.end is None:
                self._transport.write(pack(number, CANCEL, 0, b""))

    def stop(self, end: WorkerEnd, reason: str) -> None:
        """End the process; waiting callers are told `reason`."""
        if self.end is None:
            self.end, self.why = end, reason
        if self.process is not None:
            self.process.kill()
        self._alarm.set()

    async def ended(self) -> None:
        """Wait until the process has ended."""
        await self._ended.wait()

    # --- the owner -------------------------------------------------------------------------------

    async def _own(self, spawn: Callable[[WorkerProcess], Awaitable[None]]) -> None:
        """Start the process, keep the deadlines of calls, and see to the end, whatever fails."""
        try:
            await spawn(self)
            await self._attend()
        except asyncio.CancelledError:
            self.stop(WorkerEnd.STOPPED, "its owner was cancelled, as at the end of an event loop")
        except BaseException as error:
            if self.process is None:
                self.stop(WorkerEnd.UNSTARTED, f"no worker process could be started: {error}")
            else:
                reason = f"its owner could not go on: {type(error).__name__}: {error}"
                self.stop(WorkerEnd.ABANDONED, reason)
        finally:
            await self._see_to_end()

    async def _see_to_end(self) -> None:
        while not self._ended.is_set():
            # What fails here is done again, until the place is free.
            try:
                await self._finish()
            except BaseException as error:
                with contextlib.suppress(BaseException):
                    logger.warning("%s: the end of a process: %r", self.label, error)
                    await asyncio.sleep(RETRY_S)

    def _disowned(self, owner: asyncio.Task[None]) -> None:
        """See to the end of a process whose owner was cancelled before it had begun."""
        if not self._ended.is_set():
            self.stop(WorkerEnd.UNSTARTED, "no worker process could be started: its owner ended")
            self._owner = asyncio.create_task(self._see_to_end())

    async def _attend(self) -> None:
        """Connect to the process, then keep the deadlines until the process ends or must end."""
        process = self.process
        assert process is not None
        loop = asyncio.get_running_loop()
        if process.output >= 0:
            self._output = _Output(process.output, self.label)
        process.sock.setblocking(False)
        transport, _ = await loop.create_connection(
            lambda: FrameReader(self._max_body, self._take, self._closed), sock=process.sock
        )
        if process.handle >= 0:
            # The socket of a dead process may still be open in a child that it left.
            loop.add_reader(process.handle, self._died)
        self._transport = transport
        for call in self.open.values():
            self._send(call)
        while self.end is None and not transport.is_closing():
            self._alarm.clear()
            self._next_look = self._keep_deadlines(time.monotonic())
            if self.end is None:
                with contextlib.suppress(TimeoutError):
                    remaining_s = self._next_look - time.monotonic()
                    async with asyncio.timeout(None if remaining_s == math.inf else remaining_s):
                        await self._alarm.wait()

    def _keep_deadlines(self, now: float) -> float:
        """Judge the overdue calls; return when to look again."""
        if self.late and now >= min(self.late.values()):
            self._give_up(max(self.open[number].timeout_s for number in self.late))
            return now
        past = [n for n, call in self.open.items() if call.deadline <= now and n not in self.late]
        if not self._heeds:
            # Perhaps the first late call blocks the event loop for the others. They are judged
            # when it has ended (decision 0210).
            past = [] if self.late else past[:1]
        self._heeds = False
        for number in past:
            call = self.open[number]
            if not call.future.done():
                call.future.set_exception(CallLate(f"no answer within {call.timeout_s:g} s"))
            if not self._is_async:
                self._give_up(call.timeout_s)
                return now
            # An async call is asked to end first, since other calls share its process.
            self.late[number] = now + CANCEL_GRACE_S
            assert self._transport is not None
            self._transport.write(pack(number, CANCEL, 0, b""))
        times = self.late.values() or [call.deadline for call in self.open.values()]
        return min(times, default=math.inf)

    def _give_up(self, timeout_s: float) -> None:
        self.stop(WorkerEnd.LATE, f"a call in its process did not end within {timeout_s:g} s")

    async def _finish(self) -> None:
        """End the process, classify the end, tell every caller, and free the place. Each step may
        be repeated.
        """
        if self._transport is not None:
            self._transport.abort()
        if self.process is not None:
            if self.process.handle >= 0:
                asyncio.get_running_loop().remove_reader(self.process.handle)
            self.death = death = await blocking(self.process.reap)
            if self.end is None:
                # We did not end the process. Whoever sent SIGKILL is unknown, and so is an end
                # without a report, so neither is blamed on the code in the process.
                self.why = f"its process ended ({death})"
                self.end = WorkerEnd.CRASHED if death.signal else WorkerEnd.EXITED
                if not death.known or death.signal == signal.SIGKILL:
                    self.end = WorkerEnd.KILLED
            if self._output is not None:
                self._output.close()
            self.process.close()
        assert self.end is not None
        calls = len(self.open)
        for call in self.open.values():
            if not call.future.done():
                call.future.set_exception(WorkerLost(self.end, self.why))
        if not self.gone and self.end is not WorkerEnd.STOPPED:
            last_output = self._output.tail if self._output else ""
            logger.error(
                "%s: worker process %d is lost (%s): %s; it held %d sessions and %d open calls%s",
                self.label,
                self.pid,
                self.end,
                self.why,
                self.sessions,
                calls,
                f"; it printed last: {last_output}" if last_output else "",
            )
        self.gone = True
        self.open.clear()
        self._on_gone(self)
        self._ended.set()

    # --- what the event loop reports -------------------------------------------------------------

    def _send(self, call: _Call) -> None:
        assert self._transport is not None
        call.deadline = time.monotonic() + call.timeout_s
        if call.deadline < self._next_look:
            self._alarm.set()
        self._transport.write(call.frame)
        call.frame = b""

    def _take(self, answer: Frame) -> None:
        call = self.open.get(answer.call)
        if call is None:
            raise BadFrame(f"an answer to call {answer.call}, which nobody made")
        self.heard += 1
        if answer.call in self.late:
            del self.late[answer.call]
            self._heeds = True
            self._alarm.set()
        elif not call.future.done():
            if answer.tag != FAILED:
                call.future.set_result((answer.tag, answer.body))
            else:
                try:
                    failure = msgspec.msgpack.decode(answer.body, type=Failure)
                except msgspec.DecodeError as error:
                    raise BadFrame(f"a failure that cannot be read: {error}") from None
                call.future.set_exception(CallFailed(failure))
        del self.open[answer.call]
        self.idle_since = time.monotonic()
        if self.calls >= self._max_calls and not self.open and not self.sessions:
            self.stop(WorkerEnd.STOPPED, "it has served enough")
        self._on_free()

    def _died(self) -> None:
        assert self.process is not None
        loop = asyncio.get_running_loop()
        loop.call_later(DRAIN_S, self._closed, None)
        if self.process.handle >= 0:
            loop.remove_reader(self.process.handle)

    def _closed(self, error: BaseException | None) -> None:
        if isinstance(error, BadFrame):
            self.stop(WorkerEnd.CORRUPT, f"its process sent what is not an answer: {error}")
        if self._transport is not None:
            self._transport.abort()
        self._alarm.set()


class _Output:
    """Reads what a worker prints on the running loop, logs it within bounds, and keeps the last
    words; whoever owns the descriptor closes it.
    """

    def __init__(self, descriptor: int, label: str) -> None:
        self._descriptor = descriptor
        self._label = label
        self._lines = 0
        self._last = b""
        self._rest = b""
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    @property
    def tail(self) -> str:
        """The last text that was printed."""
        return self._last.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Read a last chunk, and read no more."""
        if not self._is_closed:
            self._read()
            self._is_closed = True
            if self._pause is not None:
                self._pause.cancel()
            self._loop.remove_reader(self._descriptor)

    def _read(self) -> None:
        size = 0
        try:
            while size < READ_BYTES and (data := os.read(self._descriptor, READ_BYTES - size)):
                size += len(data)
                self._note(data)
        except BlockingIOError:
            if not size:
                return
        except OSError:
            size = 0
        self._loop.remove_reader(self._descriptor)
        if size:
            self._pause = self._loop.call_later(READ_EVERY_S, self._resume)

    def _resume(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._descriptor, self._read)

    def _note(self, data: bytes) -> None:
        self._last = (self._last + data)[-TAIL_BYTES:]
        if self._lines >= MAX_LINES:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines[: MAX_LINES - self._lines]:
            logger.info("%s: %s", self._label, line[:500].decode("utf-8", "replace"))
        self._lines += len(lines)
        self._rest = self._rest[-CHUNK_BYTES:]
        if self._lines >= MAX_LINES:
            logger.info("%s: more is not shown of what this worker prints", self._label)
            self._rest = b""
