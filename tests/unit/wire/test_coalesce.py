"""Many calls, few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ludus.errors import LudusError, ServerUnreachable, SessionGone
from ludus.wire import carrier
from ludus.wire.carrier import FREE_REQUESTS, Coalescer


class Server:
    """Answers `2 * item`; what it is asked is kept."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.still_running: set[int] = set()

    async def send(self, items: Sequence[int]) -> list[int | LudusError | None]:
        self.requests.append(list(items))
        await asyncio.sleep(0.01)
        return [self._answer(item) for item in items]

    def _answer(self, item: int) -> int | LudusError | None:
        if item in self.still_running:
            self.still_running.discard(item)
            return None
        return SessionGone(f"{item} is gone") if item == 13 else 2 * item


async def test_calls_made_together_leave_in_one_request() -> None:
    server = Server()
    coalescer = Coalescer(server.send)
    answers = await asyncio.gather(*(coalescer.submit(i) for i in range(10)))
    assert answers == [2 * i for i in range(10)]
    assert server.requests == [list(range(10))]


async def test_a_request_holds_no_more_than_asked() -> None:
    server = Server()
    coalescer = Coalescer(server.send, max_items=4)
    await asyncio.gather(*(coalescer.submit(i) for i in range(10)))
    assert [len(request) for request in server.requests] == [4, 4, 2]


async def test_an_error_of_one_item_is_its_own() -> None:
    coalescer = Coalescer(Server().send)
    answers = await asyncio.gather(
        *(coalescer.submit(i) for i in (12, 13, 14)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [int, SessionGone, int]


async def test_what_still_runs_is_asked_for_again_alone() -> None:
    server = Server()
    server.still_running = {2}
    coalescer = Coalescer(server.send)
    assert await asyncio.gather(*(coalescer.submit(i) for i in range(4))) == [0, 2, 4, 6]
    assert server.requests == [[0, 1, 2, 3], [2]]


async def test_a_request_that_fails_fails_all_its_items() -> None:
    async def fail(items: Sequence[int]) -> list[int | LudusError | None]:
        raise ServerUnreachable("nobody there")

    coalescer: Coalescer[int, int] = Coalescer(fail)
    answers = await asyncio.gather(*(coalescer.submit(i) for i in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ServerUnreachable] * 3


async def test_a_caller_that_gives_up_is_not_sent_again() -> None:
    server = Server()
    server.still_running = {1, 2}
    coalescer = Coalescer(server.send)
    one, two = (asyncio.create_task(coalescer.submit(i)) for i in (1, 2))
    await asyncio.sleep(0.005)
    one.cancel()
    assert await two == 4
    assert server.requests == [[1, 2], [2]]
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_closing_ends_the_calls_that_wait() -> None:
    server = Server()
    coalescer = Coalescer(server.send)
    waiting = asyncio.create_task(coalescer.submit(1))
    await asyncio.sleep(0.005)
    await coalescer.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("turns", range(1, 6))
async def test_closing_ends_a_call_whatever_stage_it_is_in(turns: int) -> None:
    async def never(_: Sequence[int]) -> list[int | LudusError | None]:
        await asyncio.Event().wait()
        return []

    coalescer = Coalescer(never)
    waiting = asyncio.create_task(coalescer.submit(1))
    for _ in range(turns):  # of the event loop: submitted, taken up, sent
        await asyncio.sleep(0)
    await coalescer.close()
    await asyncio.wait([waiting], timeout=10)
    assert waiting.cancelled()


async def test_nobody_waits_when_nobody_else_is_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "GATHER_S", 3600.0)  # whoever gathers does not come back
    server = Server()
    coalescer = Coalescer(server.send)
    async with asyncio.timeout(60):
        for index in range(20):  # each as soon as the one before it is answered
            assert await coalescer.submit(index + 20) == 2 * index + 40
    assert [len(request) for request in server.requests] == [1] * 20


async def test_calls_gather_while_many_requests_are_out_until_one_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carrier, "GATHER_S", 3600.0)
    server = Server()
    coalescer = Coalescer(server.send)
    calls: list[asyncio.Task[int]] = []
    async with asyncio.timeout(60):
        for index in range(FREE_REQUESTS + 6):
            calls.append(asyncio.create_task(coalescer.submit(index + 20)))
            await asyncio.sleep(0)  # so that each is a turn of its own
            await asyncio.sleep(0)
        await asyncio.gather(*calls)
    assert [len(request) for request in server.requests] == [1] * FREE_REQUESTS + [6]
