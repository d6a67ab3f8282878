"""Ending a background task: what belongs to the task, and what to whoever ends it."""

from __future__ import annotations

import asyncio

import pytest

from ludus.background import end_task


async def slow_to_end() -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(0.2)
        raise


async def test_the_task_has_ended_afterwards() -> None:
    task = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    await end_task(task)
    assert task.cancelled()


async def test_a_cancellation_of_the_caller_goes_through() -> None:
    task = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end_task(task))
    await asyncio.sleep(0.05)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await asyncio.wait({task})


async def test_what_the_task_failed_with_is_raised() -> None:
    async def failing() -> None:
        raise KeyError("gone")

    task = asyncio.create_task(failing())
    await asyncio.sleep(0)
    with pytest.raises(KeyError):
        await end_task(task)
    await end_task(None)
