"""Single-thread executors."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager

import pytest

from ludus.wire.worker_threads import WATCH_EVERY_S, WorkerThreads


@pytest.fixture
async def worker_threads() -> AsyncIterator[WorkerThreads]:
    made = WorkerThreads(4)
    await made.start()
    yield made
    await made.stop()


async def run(
    worker_threads: WorkerThreads, key: str, work: object, timeout_s: float = 5.0
) -> object:
    return await worker_threads.submit(key, work, timeout_s=timeout_s, late=lambda: "late")  # type: ignore[arg-type]


async def test_a_key_always_runs_on_the_same_thread_in_order(worker_threads: WorkerThreads) -> None:
    order: list[int] = []

    def work(index: int) -> int:
        order.append(index)
        return threading.get_ident()

    threads = await asyncio.gather(
        *(run(worker_threads, "a", lambda index=index: work(index)) for index in range(50))
    )
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()
    assert order == list(range(50))


async def test_keys_spread_over_the_threads(worker_threads: WorkerThreads) -> None:
    threads = await asyncio.gather(
        *(run(worker_threads, str(k), threading.get_ident) for k in range(64))
    )
    assert len(set(threads)) == 4


async def test_what_the_work_raises_is_raised(worker_threads: WorkerThreads) -> None:
    def fail() -> None:
        raise KeyError("x")

    def stop() -> None:
        raise StopIteration

    with pytest.raises(KeyError):
        await run(worker_threads, "a", fail)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run(worker_threads, "a", stop)
    assert await run(worker_threads, "a", lambda: 1) == 1


async def test_a_hung_thread_is_abandoned_and_its_lane_goes_on(
    worker_threads: WorkerThreads,
) -> None:
    release = threading.Event()
    hung = asyncio.create_task(run(worker_threads, "a", lambda: release.wait(600), timeout_s=0.2))
    behind = asyncio.create_task(run(worker_threads, "a", lambda: "next"))
    assert await hung == "late"
    assert await behind == "next"
    assert worker_threads.abandoned == 1
    release.set()
    await asyncio.sleep(0.05)
    assert await run(worker_threads, "a", threading.get_ident) == await run(
        worker_threads, "a", threading.get_ident
    )


async def test_waiting_in_the_queue_does_not_count_as_running(
    worker_threads: WorkerThreads,
) -> None:
    jobs = [run(worker_threads, "a", lambda: time.sleep(0.4), timeout_s=2.0) for _ in range(8)]
    assert await asyncio.gather(*jobs) == [None] * 8
    assert worker_threads.abandoned == 0


@contextmanager
def no_thread_starts() -> Generator[None]:
    before = threading.stack_size(1 << 47)  # the whole address space
    try:
        yield
    finally:
        threading.stack_size(before)


async def test_work_is_done_once_the_system_has_threads_again(
    worker_threads: WorkerThreads,
) -> None:
    with no_thread_starts(), pytest.raises(RuntimeError, match="start new thread"):
        await run(worker_threads, "a", lambda: 1)
    async with asyncio.timeout(5):
        assert await run(worker_threads, "a", lambda: 2) == 2


async def test_work_behind_late_work_is_done_once_the_system_has_threads_again(
    worker_threads: WorkerThreads,
) -> None:
    release = threading.Event()
    late = asyncio.ensure_future(run(worker_threads, "a", lambda: release.wait(9), 0.05))
    behind = asyncio.ensure_future(run(worker_threads, "a", lambda: 2))
    await asyncio.sleep(0)
    with no_thread_starts():
        async with asyncio.timeout(5):
            assert await late == "late"
        await asyncio.sleep(3 * WATCH_EVERY_S)
        assert not behind.done()
    async with asyncio.timeout(5):
        assert await behind == 2
    release.set()
