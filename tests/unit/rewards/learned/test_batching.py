"""Samples that arrive one by one are scored in batches, and fail alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

import ludus
from ludus.errors import ConfigError, RewardUnavailable
from ludus.rewards import Sample, Status, Verdict
from ludus.rewards.learned.batching import PREPARING_THREADS, Batched, MicroBatcher
from ludus.rewards.registry import as_verifier
from ludus.rewards.serving.server import ScoreService
from ludus.wire.server import HttpServer


class Doubling:
    """Doubles numbers, notes its batches, and fails as it is told."""

    def __init__(self, fits: int = 1000) -> None:
        self.batches: list[list[int]] = []
        self.fits = fits

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        if len(items) > self.fits:
            raise MemoryError
        if -1 in items:
            raise KeyError("-1")
        return [2 * item for item in items]


async def test_items_that_arrive_together_are_computed_together_and_answered_in_order() -> None:
    run = Doubling()
    batcher = MicroBatcher(run, max_batch=4, max_wait_s=0.05)
    assert await asyncio.gather(*map(batcher.submit, range(10))) == [2 * n for n in range(10)]
    assert run.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_callers_on_two_event_loops_are_both_answered() -> None:
    batcher = MicroBatcher(Doubling(), max_batch=2, max_wait_s=0.2)

    async def doubled() -> list[int]:
        async with asyncio.timeout(30):
            return await asyncio.gather(*map(batcher.submit, range(5)))

    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(asyncio.run, doubled()) for _ in range(2)]
    assert [answer.result() for answer in answers] == [[0, 2, 4, 6, 8]] * 2


async def test_samples_that_wait_to_be_prepared_are_unavailable_after_the_close() -> None:
    class Slow:
        def prepare(self, sample: Sample) -> Sample:
            time.sleep(0.1)
            return sample

        def score_batch(self, samples: Sequence[Sample]) -> list[float]:
            return [1.0] * len(samples)

    batched = Batched(Slow())
    scoring = [
        asyncio.ensure_future(batched.score(Sample(response=str(number))))
        for number in range(PREPARING_THREADS + 2)
    ]
    await asyncio.sleep(0.02)
    await batched.close()
    verdicts = [*await asyncio.gather(*scoring), await batched.score(Sample(response="late"))]
    assert {verdict.status for verdict in verdicts} == {Status.UNAVAILABLE}


async def test_a_full_batch_does_not_wait() -> None:
    batcher = MicroBatcher(Doubling(), max_batch=2, max_wait_s=60)
    async with asyncio.timeout(60):
        assert await asyncio.gather(batcher.submit(1), batcher.submit(2)) == [2, 4]


async def test_a_batch_that_fails_costs_only_the_item_at_fault() -> None:
    run = Doubling()
    batcher = MicroBatcher(run, max_batch=4, max_wait_s=0.05)
    results = await asyncio.gather(*map(batcher.submit, [1, -1, 3]), return_exceptions=True)
    assert results[0] == 2
    assert isinstance(results[1], KeyError)
    assert results[2] == 6
    assert run.batches == [[1, -1, 3], [1], [-1], [3]]


async def test_out_of_memory_halves_the_batch_and_those_after_it() -> None:
    run = Doubling(fits=2)
    batcher = MicroBatcher(run, max_batch=8, max_wait_s=0.05)
    assert await asyncio.gather(*map(batcher.submit, range(8))) == [2 * n for n in range(8)]
    assert [len(batch) for batch in run.batches] == [8, 4, 2, 2, 4, 2, 2]
    assert batcher.max_batch == 2
    await asyncio.gather(*map(batcher.submit, range(4)))
    assert [len(batch) for batch in run.batches[7:]] == [2, 2]


async def test_closing_tells_those_who_wait_and_cancels_nobody() -> None:
    begun, end = threading.Event(), threading.Event()

    def run(items: Sequence[int]) -> list[int]:
        begun.set()
        assert end.wait(30)
        return list(items)

    batcher = MicroBatcher(run, max_batch=1, max_wait_s=0.0, label="doubling")
    async with asyncio.timeout(60):
        callers = [asyncio.create_task(batcher.submit(number)) for number in range(3)]
        await asyncio.to_thread(begun.wait, 30)
        await batcher.close()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        end.set()
    for outcome in outcomes:  # the one that runs, and those in the queue
        assert isinstance(outcome, RewardUnavailable)
        assert "doubling was closed" in str(outcome)


async def test_a_caller_that_is_cancelled_as_the_batcher_closes_is_cancelled() -> None:
    batcher = MicroBatcher[int, int](list, max_wait_s=30)
    caller = asyncio.create_task(batcher.submit(1))
    await asyncio.sleep(0)
    await batcher.close()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_one_who_gives_up_leaves_the_queue_and_the_others_are_served() -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def run(items: Sequence[int]) -> list[int]:
        begun.set()
        go_on.wait(30)
        seen.extend(items)
        return list(items)

    batcher = MicroBatcher(run, max_batch=1, max_wait_s=0)
    first, second, third = (asyncio.ensure_future(batcher.submit(n)) for n in (1, 2, 3))
    await asyncio.to_thread(begun.wait, 30)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    go_on.set()
    assert await asyncio.gather(first, third) == [1, 3]
    assert seen == [1, 3]


def test_the_same_batcher_serves_one_event_loop_after_the_other() -> None:
    batcher = MicroBatcher(Doubling(), max_batch=2, max_wait_s=0)

    async def once() -> int:
        return await batcher.submit(4)

    assert asyncio.run(once()) == 8
    assert asyncio.run(once()) == 8


@pytest.mark.parametrize(("max_batch", "max_wait_s"), [(0, 0.0), (1, -1.0), (1, float("nan"))])
def test_bounds_that_cannot_work_are_refused(max_batch: int, max_wait_s: float) -> None:
    with pytest.raises(ConfigError, match="max_batch must be at least 1"):
        MicroBatcher(Doubling(), max_batch=max_batch, max_wait_s=max_wait_s)


class Length:
    """The length of a response, many at a time."""

    max_batch = 8
    max_wait_ms = 20.0
    memory_bytes = 1000

    def prepare(self, sample: Sample) -> str:
        if not sample.text:
            raise RewardUnavailable(Verdict.invalid("an empty response has no length"))
        return sample.text

    def score_batch(self, texts: Sequence[str], /) -> list[float]:
        if "hang" in texts:
            time.sleep(600)
        if "large" in texts:
            raise MemoryError
        return [float(len(text)) for text in texts]

    def card(self) -> dict[str, object]:
        return {"counts": "characters"}


async def test_a_batch_verifier_is_a_verifier() -> None:
    verifier = as_verifier("me/length", Length())
    assert isinstance(verifier, Batched)
    texts = ["a", "bb", "", "large", "ccc"]
    verdicts = await asyncio.gather(*(verifier.score(Sample(response=text)) for text in texts))
    assert [verdict.reward for verdict in verdicts] == [1.0, 2.0, None, None, 3.0]
    assert verdicts[2] == Verdict.invalid("an empty response has no length")
    assert verdicts[3].status is Status.UNAVAILABLE
    assert "out of memory" in verdicts[3].detail
    await verifier.close()


async def test_a_served_batch_verifier_has_one_process_and_a_card() -> None:
    service = ScoreService(verifiers={"length": Length()}, timeout_s=30)
    async with HttpServer([service]) as http, ludus.connect(http.url) as server:
        verifier = server.verifier("length")
        verdicts = await asyncio.gather(
            *(verifier.score(Sample(response="x" * n)) for n in range(1, 40))
        )
        assert [verdict.reward for verdict in verdicts] == [float(n) for n in range(1, 40)]
        card = (await asyncio.to_thread(server.verifiers))[0].card
    assert card == {"counts": "characters", "max_batch": 8, "max_wait_ms": 20.0}


async def test_a_batch_that_hangs_is_ended_and_the_next_is_served() -> None:
    service = ScoreService(verifiers={"length": Length()}, timeout_s=1.0)
    async with HttpServer([service]) as http, ludus.connect(http.url) as server:
        verifier = server.verifier("length")
        hanging = await verifier.score(Sample(response="hang"))
        assert hanging.status is Status.UNAVAILABLE
        assert (await verifier.score(Sample(response="four"))).reward == 4.0


async def test_after_the_close_every_caller_is_told_at_once() -> None:
    batcher = MicroBatcher(Doubling(), max_batch=2)
    assert await batcher.submit(1) == 2
    await batcher.close()
    async with asyncio.timeout(60):
        late = await asyncio.gather(*map(batcher.submit, range(5)), return_exceptions=True)
    assert [type(one) for one in late] == [RewardUnavailable] * 5


async def test_work_that_calls_exit_ends_its_item_alone() -> None:
    def run(items: Sequence[int]) -> list[int]:
        if 3 in items:
            raise SystemExit(1)
        return list(items)

    batcher = MicroBatcher(run, max_batch=4, max_wait_s=0.05)
    results = await asyncio.gather(*map(batcher.submit, [1, 3, 5]), return_exceptions=True)
    assert (results[0], results[2]) == (1, 5)
    assert str(results[1]) == "a batch called exit: 1"
