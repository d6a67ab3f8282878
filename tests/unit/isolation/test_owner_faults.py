"""Laws of the owner of worker processes, whatever fails in it.

Every line of the owner (each fork, system call and allocation stands on one) and every await of its
task fails once, by a `MemoryError` that a trace function, or the task that drives the coroutine,
raises there. Afterwards: every call was answered, with the right answer or with an error; every
place can be had again; no process and no descriptor is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

from ludus import isolation
from ludus.isolation.group import AnyWorker, WorkerLimits
from ludus.isolation.part import Answer, WorkerPart
from ludus.isolation.process import WorkerEnd
from ludus.wire.prometheus import ServerMetrics

FOLDER = str(Path(isolation.__file__).parent)
PROCESSES = 2
TIMEOUT_S = 0.05
ANSWERED_S = 4.0
"""Seconds after which a call counts as never answered: many times its deadline."""
CALLS = (b"echo", b"pid", b"hang", b"exit", b"echo")


class Part(WorkerPart):
    """Echoes, or does what the body says."""

    is_async = False

    def about(self) -> bytes:
        return b""

    def start(self, thread_of: Callable[[int], Executor]) -> None:
        pass

    def handle(self, tag: int, thread_number: int, body: bytes) -> Answer | Awaitable[Answer]:
        if body == b"hang":
            time.sleep(60)
        if body == b"exit":
            os._exit(3)
        if body == b"pid":
            time.sleep(0.01)  # so that calls side by side need a process each
            return tag, str(os.getpid()).encode()
        return tag, body


class FaultAtLine:
    """Raises once, at the `at`-th line that this process executes in the owner."""

    step = 0

    def __init__(self, at: int) -> None:
        self.at = at
        self.lines = 0
        self.raised = ""
        self._owner = os.getpid()

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event == "line" and self._owner == os.getpid():
            self.lines += 1
            if self.lines == self.at:
                self.raised = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise MemoryError("at a line")
        return self._trace

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Watch this thread, and those that begin meanwhile."""
        before = sys.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)  # type: ignore[arg-type]


class FaultAtAwait:
    """Raises once, where a task of the owner goes on for the `at`-th time."""

    step = 1

    def __init__(self, at: int) -> None:
        self.at = at
        self.lines = 0
        self.raised = ""

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Drive the owner's tasks that begin meanwhile."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(self._task)
        try:
            yield
        finally:
            loop.set_task_factory(None)

    def _task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        code = getattr(work, "cr_code", None)
        if code is not None and code.co_filename.startswith(FOLDER):
            work = _Driven(work, self)
        return asyncio.Task(work, loop=loop, **options)


class _Driven(Coroutine[Any, Any, Any]):
    def __init__(self, work: Coroutine[Any, Any, Any], fault: FaultAtAwait) -> None:
        self._work = work
        self._fault = fault
        self._has_begun = False

    def send(self, value: Any) -> Any:
        if self._has_begun:
            self._fault.lines += 1
            if self._fault.lines == self._fault.at:
                self._fault.raised = "an await"
                return self._work.throw(MemoryError("at an await"))
        self._has_begun = True
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from self._work.__await__()


async def outcome(workers: AnyWorker, body: bytes) -> object:
    """What a call came to: its answer or its error."""
    try:
        async with asyncio.timeout(ANSWERED_S):
            answer = await workers.call(1, body, timeout_s=TIMEOUT_S, queue_s=ANSWERED_S / 2)
    except TimeoutError:
        return "never answered"
    except Exception as error:
        return error
    return answer[1]


def kept(workers: AnyWorker) -> dict[str, int]:
    """How many descriptors and processes this process holds for its workers."""
    own = psutil.Process()
    return {
        "descriptors": own.num_fds(),
        "processes": len(own.children(recursive=True)),
        "workers": len(workers.group.workers),
    }


async def emptied(workers: AnyWorker, expected: dict[str, int] | None = None) -> dict[str, int]:
    """End all workers; return what is left, once that is as expected or has had time for it."""
    deadline = time.monotonic() + ANSWERED_S
    while True:
        for worker in list(workers.group.workers):
            worker.stop(WorkerEnd.STOPPED, "the test looks")
        await asyncio.sleep(0.01)
        left = kept(workers)
        bound = expected or {**left, "workers": 0}
        is_settled = all(left[name] <= bound[name] for name in left)
        if is_settled or time.monotonic() > deadline:
            return left


async def broken(workers: AnyWorker, before: dict[str, int], fault: Any) -> list[str]:
    """Let the fault happen in the midst of calls; return in which ways the law is broken."""
    with fault.active():
        outcomes = await asyncio.gather(*(outcome(workers, body) for body in CALLS))
    wrong = []
    for body, result in zip(CALLS, outcomes, strict=True):
        is_right = result == body if body == b"echo" else body == b"pid"
        if isinstance(result, str) or (isinstance(result, bytes) and not is_right):
            wrong.append(f"{body!r} came to {result!r}")
    deadline = time.monotonic() + ANSWERED_S
    pids: set[object] = set()
    while len(pids) < PROCESSES and time.monotonic() < deadline:
        again = await asyncio.gather(*(outcome(workers, b"pid") for _ in range(PROCESSES)))
        pids = {pid for pid in again if isinstance(pid, bytes)}
    if len(pids) < PROCESSES:
        wrong.append(f"the places give {again}")
    if workers.group.problem:
        wrong.append(f"a problem stays: {workers.group.problem}")
    left = await emptied(workers, before)
    is_more = any(left[name] > before[name] for name in left)
    return [*wrong, f"{before} became {left}"] if is_more else wrong


@pytest.mark.parametrize(
    ("kind", "step_of_lines"),
    [(FaultAtLine, 23), pytest.param(FaultAtLine, 5, marks=pytest.mark.large), (FaultAtAwait, 0)],
)
async def test_whatever_fails_once_in_the_owner_no_call_place_or_process_is_lost(
    kind: type[FaultAtLine] | type[FaultAtAwait],
    step_of_lines: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("ludus", "asyncio"):
        caplog.set_level(logging.CRITICAL, logger=name)
    limits = WorkerLimits(processes=PROCESSES, memory_bytes=64 << 20)
    workers = AnyWorker("faulty", Part, limits=limits, metrics=ServerMetrics())
    await workers.start()
    await outcome(workers, b"echo")
    before = await emptied(workers)
    found: dict[str, list[str]] = {}
    step = kind.step or int(os.environ.get("LUDUS_FAULT_STEP", step_of_lines))
    at = int(os.environ.get("LUDUS_FAULT_FROM", "0"))
    while True:
        at += step
        fault = kind(at)
        if wrong := await broken(workers, before, fault):
            found[f"{at} ({fault.raised})"] = wrong
            before = kept(workers)
        if not fault.raised:
            break
    await workers.stop()
    assert not found
    assert at > 9, "too few places to fail at were seen"
