"""The client of the Tinker API against a server that has lost what it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from ludus.errors import SessionGone
from ludus.trainer.tinker.client import PROMISES, TinkerClient


@asynccontextmanager
async def connected(
    asample: int, *, not_yet: int = 0
) -> AsyncIterator[tuple[TinkerClient, list[str]]]:
    """Open a client of a server that answers samplings by a status and has lost every promise,
    after it has said of the first `not_yet` questions for a result that there is none yet.
    """
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        asked.append(name)
        if name == "retrieve_future" and asked.count(name) <= not_yet:
            return web.json_response({"type": "try_again", "queue_state": "active"})
        status = {"asample": asample, "retrieve_future": 410}.get(name, 200)
        return web.json_response({"request_id": "req-1"}, status=status)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        client = TinkerClient(f"tinker://127.0.0.1:{port}")
        client._http = aiohttp.ClientSession()
        try:
            yield client, asked
        finally:
            await client.close()
    finally:
        await runner.cleanup()


async def test_a_sampler_that_is_gone_is_asked_once() -> None:
    async with connected(410) as (client, asked), asyncio.timeout(5):
        with pytest.raises(SessionGone, match="asample"):
            await client.sample("dropped", [1], {})
        assert asked == ["asample"]


async def test_promises_that_are_always_lost_are_an_error_in_the_end() -> None:
    async with connected(200) as (client, asked), asyncio.timeout(5):
        with pytest.raises(SessionGone, match="retrieve_future"):
            await client.sample("sampler", [1], {})
        assert asked.count("asample") == PROMISES


async def test_a_result_that_is_not_there_yet_is_asked_for_with_growing_pauses() -> None:
    async with connected(200, not_yet=1_000_000) as (client, asked):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await client.result("req-1")
        # Pauses of 20, 40, 80, 160 and 320 ms leave room for six questions in a second.
        assert 1 <= len(asked) <= 6


async def test_a_client_without_a_session_ends_none() -> None:
    async with connected(200) as (client, asked):
        await client.close()
        assert asked == []
