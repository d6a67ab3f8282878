"""Work that no cancellation cuts in half."""

from __future__ import annotations

import asyncio

import pytest

from ludus.trainer.run.saver import shielded


@pytest.mark.parametrize("cancellations", [1, 2, 5])
async def test_work_is_finished_however_often_the_caller_is_cancelled(cancellations: int) -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.2)
        done.append("finished")

    caller = asyncio.create_task(shielded(work()))
    for _ in range(cancellations):
        await asyncio.sleep(0.01)
        caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["finished"]


async def test_an_error_of_the_work_comes_before_the_cancellation() -> None:
    async def work() -> None:
        await asyncio.sleep(0.05)
        raise OSError("disk full")

    caller = asyncio.create_task(shielded(work()))
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(OSError, match="disk full"):
        await caller


async def test_a_result_is_returned() -> None:
    async def work() -> int:
        return 3

    assert await shielded(work()) == 3
