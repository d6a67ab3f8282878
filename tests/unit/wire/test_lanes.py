"""Single-thread executors."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import pytest

from ludus.wire.worker_threads import Lanes


@pytest.fixture
async def lanes() -> AsyncIterator[Lanes]:
    made = Lanes(4)
    await made.start()
    yield made
    await made.stop()


async def run(lanes: Lanes, key: str, work: object, timeout_s: float = 5.0) -> object:
    return await lanes.submit(key, work, timeout_s=timeout_s, late=lambda: "late")  # type: ignore[arg-type]


async def test_a_key_always_runs_on_the_same_thread_in_order(lanes: Lanes) -> None:
    order: list[int] = []

    def work(index: int) -> int:
        order.append(index)
        return threading.get_ident()

    threads = await asyncio.gather(
        *(run(lanes, "a", lambda index=index: work(index)) for index in range(50))
    )
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()
    assert order == list(range(50))


async def test_keys_spread_over_the_threads(lanes: Lanes) -> None:
    threads = await asyncio.gather(*(run(lanes, str(k), threading.get_ident) for k in range(64)))
    assert len(set(threads)) == 4


async def test_what_the_work_raises_is_raised(lanes: Lanes) -> None:
    def fail() -> None:
        raise KeyError("x")

    def stop() -> None:
        raise StopIteration

    with pytest.raises(KeyError):
        await run(lanes, "a", fail)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run(lanes, "a", stop)
    assert await run(lanes, "a", lambda: 1) == 1


async def test_a_hung_thread_is_abandoned_and_its_lane_goes_on(lanes: Lanes) -> None:
    release = threading.Event()
    started = time.monotonic()
    hung = asyncio.create_task(run(lanes, "a", lambda: release.wait(10), timeout_s=0.2))
    behind = asyncio.create_task(run(lanes, "a", lambda: "next"))
    assert await hung == "late"
    assert await behind == "next"
    assert time.monotonic() - started < 2
    assert lanes.abandoned == 1
    release.set()
    await asyncio.sleep(0.05)
    assert await run(lanes, "a", threading.get_ident) == await run(lanes, "a", threading.get_ident)


async def test_waiting_in_the_queue_does_not_count_as_running(lanes: Lanes) -> None:
    jobs = [run(lanes, "a", lambda: time.sleep(0.1), timeout_s=0.4) for _ in range(8)]
    assert await asyncio.gather(*jobs) == [None] * 8
    assert lanes.abandoned == 0
