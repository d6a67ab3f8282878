"""What a model does is done in order, and a submission that is lost stops those behind it once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from ludus.trainer.tinker import futures
from ludus.trainer.tinker.futures import OrderedJobs, Promise, PromiseOutcome, Promises
from ludus.wire.faults import Refused


async def done() -> PromiseOutcome:
    return PromiseOutcome(value="done")


async def given_up() -> PromiseOutcome:
    waited_for = asyncio.get_running_loop().create_future()
    waited_for.cancel()
    await waited_for
    return PromiseOutcome()


class Client:
    def __init__(self) -> None:
        self.promises = Promises()
        self.jobs = OrderedJobs(self.promises)

    def send(self, number: int, job: futures.Job = done) -> Promise:
        promise, _ = self.promises.begin(number, "me", b"request")
        self.jobs.submit(number, promise, job)
        return promise


async def outcome(promise: Promise) -> PromiseOutcome:
    async with asyncio.timeout(10):
        return await promise.outcome


async def test_jobs_are_done_in_the_order_of_their_numbers() -> None:
    client = Client()
    order: list[int] = []

    async def noted(number: int) -> PromiseOutcome:
        order.append(number)
        return PromiseOutcome()

    sent = [client.send(number, partial(noted, number)) for number in (3, 1, 2)]
    for promise in sent:
        await outcome(promise)
    assert order == [1, 2, 3]
    assert client.promises.pending == 0


async def test_a_model_goes_on_behind_a_submission_that_never_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(futures, "GAP_S", 0.1)
    client = Client()
    assert (await outcome(client.send(1))).value == "done"
    behind = [client.send(3), client.send(4)]  # 2 is lost
    for promise in behind:
        assert "seq_id 2 has not come" in (await outcome(promise)).error
    assert (await outcome(client.send(5))).value == "done"
    with pytest.raises(Refused, match="came after requests that had waited for it failed"):
        client.send(2)
    assert client.promises.pending == 0


async def test_a_job_whose_work_was_given_up_fails_alone() -> None:
    client = Client()
    first, second = client.send(1, given_up), client.send(2)
    failed = await outcome(first)
    assert (failed.error, failed.category) == ("the request was given up", futures.SERVER)
    assert (await outcome(second)).value == "done"


async def test_the_end_of_a_model_fails_what_is_being_done_and_what_waits() -> None:
    client = Client()
    first = client.send(1, lambda: asyncio.sleep(60, PromiseOutcome()))
    second = client.send(2)
    await asyncio.sleep(0.01)
    await client.jobs.close()
    assert (await outcome(first)).error == "the server stopped"
    assert "its session has ended" in (await outcome(second)).error
