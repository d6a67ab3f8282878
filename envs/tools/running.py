"""Runs tools: plain functions within a deadline, and the calls of a turn beside each other.

A thread cannot be killed. A thread that was given up goes on until its function returns; while a
few of them do, the tool refuses calls.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar, cast

from ludus.errors import ToolError

from .spec import ToolResult

T = TypeVar("T")


class Late(Exception):
    """The function gave no result in time."""


MAX_GIVEN_UP = 4
"""How many given-up threads of a tool may still run before the tool refuses calls."""


class Threads:
    """Runs each function on a new thread, and remembers the threads that were given up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._given_up: list[threading.Thread] = []

    async def run(self, work: Callable[[], T], timeout_s: float) -> T:
        """Run `work` on a new thread and return the result.

        Raises:
            Late: no result came in time; the thread goes on.
            ToolError: too many given-up threads still run.
        """
        self._given_up = [thread for thread in self._given_up if thread.is_alive()]
        if len(self._given_up) >= MAX_GIVEN_UP:
            raise ToolError("it is still busy with earlier calls that got no answer in time")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def tell(value: T | None, error: BaseException | None) -> None:
            if not outcome.done():
                outcome.set_result((value, error))

        def body() -> None:
            value, error = None, None
            try:
                value = context.run(work)
            except BaseException as raised:  # the waiting task raises this again
                error = raised
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(tell, value, error)

        thread = threading.Thread(target=body, name=f"tool {self.name}", daemon=True)
        thread.start()
        try:
            value, error = await asyncio.wait_for(outcome, timeout_s)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._given_up.append(thread)
            if isinstance(error, TimeoutError):
                raise Late from None
            raise
        if error is not None:
            raise error
        return cast("T", value)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of a turn that was looked up, and not yet run."""

    start: Callable[[], Awaitable[ToolResult]]
    concurrent: bool
    """Whether the call may run while other such calls run."""
    refused: bool = False
    """Whether the call is answered without running anything."""


async def run_calls(planned: Sequence[PlannedCall], *, at_once: int) -> list[ToolResult]:
    """Run the calls of a turn, and return the results in the order of the calls.

    Neighbouring calls that are concurrent run together, at most `at_once` of them at a time. Any
    other call waits for those before it, and those after it wait for it. The results end with
    the first that ends the episode; calls that have not begun by then are not run.

    Raises:
        Exception: what the first failing call raised, once all calls that run beside it are done.
    """
    results: list[ToolResult] = []
    for free, group in groupby(planned, key=lambda call: call.concurrent or call.refused):
        batch = list(group)
        together = free and at_once > 1 and sum(call.concurrent for call in batch) > 1
        results += await (_together(batch, at_once) if together else _in_order(batch))
        if any(result.terminated for result in results):
            break
    return results


async def _in_order(batch: Sequence[PlannedCall]) -> list[ToolResult]:
    results: list[ToolResult] = []
    for planned in batch:
        results.append(await planned.start())
        if results[-1].terminated:
            break
    return results


async def _together(batch: Sequence[PlannedCall], at_once: int) -> list[ToolResult]:
    places = asyncio.Semaphore(at_once)
    last = len(batch)

    async def run(index: int) -> ToolResult | Exception | None:
        nonlocal last
        async with places:
            if index > last:
                return None
            try:
                result = await batch[index].start()
            except Exception as error:  # raised below, after the others are done
                return error
            if result.terminated:
                last = min(last, index)
            return result

    async with asyncio.TaskGroup() as group:  # a cancellation reaches every call
        tasks = [group.create_task(run(index)) for index in range(len(batch))]
    results: list[ToolResult] = []
    for task in tasks[: last + 1]:
        outcome = task.result()
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is not None:
            results.append(outcome)
    return results
