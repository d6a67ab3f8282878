"""A stream whose connection is dead without a sign: the next operation opens another at once."""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import web

from ludus.errors import RequestTimeout
from ludus.wire import carrier
from ludus.wire.carrier import ClientStream
from ludus.wire.client import AsyncTransport, Client
from ludus.wire.codec import PATH, Hello


class Double(msgspec.Struct):
    number: int


@dataclass
class Server:
    """Answers every frame but those of the first connection, which is never read."""

    connections: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.connections += 1
        first = self.connections == 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(msgspec.json.encode(Hello(instance="a", max_bytes=100_000)).decode())
        if first:
            await self.ended.wait()
            return socket
        async for message in socket:
            frame: list[tuple[int, Any]] = msgspec.msgpack.decode(message.data)
            answers = [(number, 200, 2 * asked["number"]) for number, asked in frame]
            await socket.send_bytes(msgspec.msgpack.encode(answers))
        return socket


async def test_an_operation_after_a_dead_connection_uses_another_one_at_once() -> None:
    server = Server()
    application = web.Application()
    application.router.add_get(PATH, server.serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    transport = AsyncTransport()
    stream = ClientStream(Client(f"http://{host}:{port}", transport), transport)
    try:
        with pytest.raises(RequestTimeout):
            await stream.submit(Double(1), int, 0.3)
        # In the same turn of the loop, while the dead connection is still being closed.
        assert await stream.submit(Double(21), int, 30.0) == 42
        assert server.connections == 2
    finally:
        server.ended.set()
        await stream.close()
        await transport.close()
        await runner.cleanup()


def test_copies_of_a_client_know_together_whether_the_server_has_answered() -> None:
    client = Client("http://127.0.0.1:1", AsyncTransport())
    copy = client.within(3.0)
    client.contact.made = True
    assert copy.contact.made
    assert not Client("http://127.0.0.1:1", AsyncTransport()).contact.made


async def test_many_callers_and_a_lone_one_take_turns_on_a_stream() -> None:
    """Sends by the reader, by the writer, and by both in a row reach the server, each once."""
    server = Server(connections=1)  # no connection is left unread
    application = web.Application()
    application.router.add_get(PATH, server.serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    transport = AsyncTransport()
    client = Client(f"http://{host}:{port}", transport)
    stream = ClientStream(client, transport)

    async def ask_in_a_row(first: int, times: int) -> None:
        for number in range(first, first + times):
            assert await stream.submit(Double(number), int, 30.0) == 2 * number
            if number % 7 == first % 7:
                await asyncio.sleep(0)  # asks a turn later than the others

    try:
        await ask_in_a_row(0, 50)
        assert client.traffic.requests == 50  # a frame each
        await asyncio.gather(*(ask_in_a_row(first, 1 + first % 40) for first in range(80)))
        await ask_in_a_row(0, 50)
    finally:
        await stream.close()
        await transport.close()
        await runner.cleanup()


async def test_a_proxy_that_takes_streams_and_passes_nothing_on_leaves_plain_http(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carrier, "HANDSHAKE_S", 0.1)
    monkeypatch.setattr(carrier, "PAUSE_S", 0.0)
    ended = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await ended.wait()
        return socket

    application = web.Application()
    application.router.add_get(PATH, silent)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    transport = AsyncTransport()
    stream = ClientStream(Client(f"http://{host}:{port}", transport), transport)
    try:
        for _ in range(carrier.MAX_SILENT_LOSSES + 1):
            assert stream.http_until < math.inf
            with pytest.raises(carrier.UseHttp):
                await stream.submit(Double(1), int, 30.0)
        assert stream.http_until == math.inf
    finally:
        ended.set()
        await stream.close()
        await transport.close()
        await runner.cleanup()
