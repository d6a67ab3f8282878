"""Name servers that stay silent cost a bounded number of threads, and hold up nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from ludus.envs.outside.servers.exchange import PeerServer
from ludus.errors import RequestTimeout, RewardUnavailable, ServerUnreachable
from ludus.wire.client import AsyncTransport, HttpRequest
from ludus.wire.resolver import MAX_LOOKUPS, SharedResolver


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Names under `.silent.test` are looked up until the event is set, and then are unknown."""
    asked, system = threading.Event(), socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        if str(host).endswith(".silent.test"):
            asked.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return system(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield asked
    asked.set()
    for thread in looking_up():
        thread.join(60)


def looking_up() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "ludus-look-up"]


async def test_callers_that_time_out_share_a_look_up_and_leave_the_executor_free(
    silence: threading.Event,
) -> None:
    async def episode() -> None:
        server = PeerServer("ors", "http://peer.silent.test:80", 0.2)
        with pytest.raises(RewardUnavailable, match="no answer"):
            await server.ask("GET", "/")
        await server.close()

    async def step() -> None:
        transport = AsyncTransport()
        with pytest.raises(RequestTimeout):
            await transport.send(HttpRequest("GET", "http://peer.silent.test:80/", {}), 0.2)
        await transport.close()

    await asyncio.gather(*(play() for _ in range(40) for play in (episode, step)))
    assert len(looking_up()) == 1
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 60) == "free"


async def test_further_names_are_refused_while_too_many_are_looked_up(
    silence: threading.Event,
) -> None:
    resolver = SharedResolver()
    waiting = [
        asyncio.ensure_future(resolver.resolve(f"{number}.silent.test", 80))
        for number in range(MAX_LOOKUPS)
    ]
    await asyncio.sleep(0)
    transport = AsyncTransport()
    with pytest.raises(ServerUnreachable, match=r"'0\.silent\.test'; do the name servers answer\?"):
        await transport.send(HttpRequest("GET", "http://one-more.test:80/", {}), 60)
    await transport.close()
    assert len(looking_up()) == MAX_LOOKUPS
    silence.set()
    for task in waiting:
        with pytest.raises(socket.gaierror, match="no answer"):
            await task
    for thread in looking_up():
        thread.join(60)
    assert await resolver.resolve("localhost", 80)  # the look-ups that have ended make room


def test_a_fork_looks_names_up_though_those_of_its_parent_stay_silent(
    silence: threading.Event,
) -> None:
    async def begin() -> None:
        names = [f"{number}.silent.test" for number in range(MAX_LOOKUPS)]
        waiting = [asyncio.ensure_future(SharedResolver().resolve(name, 80)) for name in names]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()

    asyncio.run(begin())
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os._exit(not asyncio.run(SharedResolver().resolve("localhost", 80)))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNSPEC])
async def test_addresses_are_those_of_aiohttps_own_resolver(family: socket.AddressFamily) -> None:
    ours, theirs = SharedResolver(), aiohttp.ThreadedResolver()
    assert await ours.resolve("localhost", 80, family) == await theirs.resolve(
        "localhost", 80, family
    )
    of_a_link = "fe80::1%lo", 80, socket.AF_INET6
    assert await ours.resolve(*of_a_link) == await theirs.resolve(*of_a_link)
    with pytest.raises(socket.gaierror):
        await ours.resolve("nothing.invalid", 80, family)
    with pytest.raises(socket.gaierror, match=r"'a{64}\.test' is no host name"):
        await ours.resolve("a" * 64 + ".test", 80, family)
