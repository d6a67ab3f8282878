"""Calls in flight: of the whole process and of each host, over several clients and loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ludus.errors import ConfigError
from ludus.llm.client import ChatClient
from ludus.llm.limits import CallLimits, Places, limits_from_environment
from ludus.messages import user

ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}


class Hosts:
    """Servers that count the calls in flight, each by itself and all together."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}
        self.most: dict[int, int] = {}
        self.max_together = 0
        self.urls: list[str] = []
        self.refuse: set[int] = set()

    async def answer(self, request: web.Request) -> web.Response:
        assert request.url.port is not None
        port = request.url.port
        if port in self.refuse:
            self.refuse.discard(port)
            return web.Response(status=429, headers={"Retry-After": "0.3"})
        self.now[port] = self.now.get(port, 0) + 1
        self.most[port] = max(self.most.get(port, 0), self.now[port])
        self.max_together = max(self.max_together, sum(self.now.values()))
        await asyncio.sleep(0.02)
        self.now[port] -= 1
        return web.json_response(ANSWER)


@pytest.fixture
async def hosts() -> AsyncIterator[Hosts]:
    made = Hosts()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            application = web.Application()
            application.router.add_post("/v1/chat/completions", made.answer)
            server = await stack.enter_async_context(TestServer(application))
            made.urls.append(str(server.make_url("/v1")))
        yield made


async def ask_all(hosts: Hosts, limits: CallLimits, *, clients: int = 2, each: int = 8) -> int:
    """Questions of several clients to every host, all at once; how many were answered."""
    made = [ChatClient(url, "m", concurrency=64, limits=limits) for url in hosts.urls * clients]
    asked = [client.complete([user(f"{n}")]) for client in made for n in range(each)]
    answers = await asyncio.gather(*asked)
    await asyncio.gather(*(client.close() for client in made))
    return len(answers)


async def test_several_clients_of_one_host_keep_its_bound(hosts: Hosts) -> None:
    assert await ask_all(hosts, CallLimits(total=100, per_host=3)) == 48
    assert set(hosts.most.values()) == {3}


async def test_all_hosts_together_keep_the_bound_of_the_process(hosts: Hosts) -> None:
    assert await ask_all(hosts, CallLimits(total=4, per_host=100)) == 48
    assert hosts.max_together == 4


async def test_without_a_bound_they_would_be_more(hosts: Hosts) -> None:
    await ask_all(hosts, CallLimits())
    assert hosts.max_together > 12


async def test_a_call_that_waits_to_ask_again_holds_no_place(hosts: Hosts) -> None:
    url = hosts.urls[0]
    hosts.refuse = {int(url.split(":")[2].split("/")[0])}
    client = ChatClient(url, "m", concurrency=64, limits=CallLimits(total=1, per_host=1))
    order: list[int] = []

    async def ask(number: int) -> None:
        await client.complete([user(f"{number}")])
        order.append(number)

    first = asyncio.create_task(ask(0))
    await asyncio.sleep(0.05)
    await asyncio.gather(first, *(ask(n) for n in range(1, 6)))
    await client.close()
    assert order[-1] == 0, "the refused call waits as long as it was told, and the others do not"


async def test_places_of_callers_that_gave_up_come_back() -> None:
    places = Places(1)

    async def hold(seconds: float) -> None:
        async with places.taken():
            await asyncio.sleep(seconds)

    holding = asyncio.create_task(hold(0.05))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(hold(0)) for _ in range(5)]
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()
    await asyncio.gather(holding, *waiting, return_exceptions=True)
    async with asyncio.timeout(60):
        await hold(0)


@pytest.mark.parametrize("gives_up", [True, False], ids=["gave up", "waits"])
@pytest.mark.parametrize("closes", [True, False], ids=["closed", "stopped"])
async def test_no_place_is_lost_to_an_event_loop_that_runs_no_more(
    gives_up: bool, closes: bool
) -> None:
    places, loop = Places(1), asyncio.new_event_loop()

    async def wait() -> None:
        async with places.taken():
            pass

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        if gives_up:
            task.cancel()
            await asyncio.wait([task])
        return task

    async with places.taken():
        task = await asyncio.to_thread(loop.run_until_complete, begin())
    if not gives_up:  # the place was sent, and has not arrived: as `asyncio.run` ends a loop
        task.cancel()
        await asyncio.to_thread(loop.run_until_complete, asyncio.wait([task]))
    if closes:
        loop.close()
    async with asyncio.timeout(60):
        await wait()
    loop.close()


async def test_loops_of_several_threads_share_the_places() -> None:
    places, now, most = Places(2), 0, 0
    lock = threading.Lock()

    async def work() -> None:
        nonlocal now, most
        for _ in range(10):
            async with places.taken():
                with lock:
                    now += 1
                    most = max(most, now)
                await asyncio.sleep(0.001)
                with lock:
                    now -= 1

    async def crowd() -> None:
        await asyncio.gather(*(work() for _ in range(4)))

    threads = [threading.Thread(target=lambda: asyncio.run(crowd())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 20.0)
    assert not any(thread.is_alive() for thread in threads)
    assert most == 2


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_a_bound_that_is_none_is_told(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_MAX_CALLS_PER_HOST", value)
    with pytest.raises(ConfigError, match="LUDUS_MAX_CALLS_PER_HOST"):
        limits_from_environment()


def test_bounds_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_MAX_CALLS", "7")
    monkeypatch.delenv("LUDUS_MAX_CALLS_PER_HOST", raising=False)
    limits = limits_from_environment()
    assert (limits.total, limits.per_host) == (7, 256)
    with pytest.raises(ConfigError, match="at least 1"):
        CallLimits(total=0)
