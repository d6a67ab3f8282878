"""Runs the calls of a turn: beside each other where the tools allow that, else in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from .spec import ToolResult


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
