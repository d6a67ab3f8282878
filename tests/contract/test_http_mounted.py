"""An application of another project behind our door: `ludus mcp --http` is one."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from ludus.wire.server import HttpServer

TOKEN = "open-sesame"
LIMIT = 100_000


class Foreign:
    """Answers with what it was given, part by part; fails where it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.told_of_the_end = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["method"])
        message = await receive()
        assert message["more_body"] is False
        query = scope["query_string"].decode()
        if query == "fails":
            raise ZeroDivisionError("before the answer")
        headers = [(b"content-type", b"application/json"), (b"x-own", b"yes")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        if query == "wait":
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            assert (await receive())["type"] == "http.disconnect"
            self.told_of_the_end.set()
            return
        heard = {
            "path": scope["path"],
            "query": query,
            "headers": {name.decode(): value.decode() for name, value in scope["headers"]},
            "body": message["body"].decode(),
        }
        data = json.dumps(heard).encode()
        await send({"type": "http.response.body", "body": data[:5], "more_body": True})
        if query == "breaks":
            raise ZeroDivisionError("within the answer")
        await send({"type": "http.response.body", "body": data[5:]})


@asynccontextmanager
async def serving(app: Foreign, **kwargs: Any) -> AsyncGenerator[HttpServer]:
    options: dict[str, Any] = {"token": TOKEN, "max_body_bytes": LIMIT, **kwargs}
    async with HttpServer([], mounted={"/mcp": app}, **options) as server:
        yield server


@asynccontextmanager
async def asking(
    server: HttpServer, path: str = "/mcp", data: bytes = b"", **headers: str
) -> AsyncGenerator[aiohttp.ClientResponse]:
    named = {"Authorization": f"Bearer {TOKEN}", **headers}
    async with (
        aiohttp.ClientSession(server.url) as http,
        http.post(path, data=data, headers=named) as reply,
    ):
        yield reply


@pytest.mark.parametrize("encoding", [None, "gzip", "deflate"])
async def test_the_application_is_given_the_request_with_its_body_inflated(
    encoding: str | None,
) -> None:
    body = b"what is said " * 100
    sent = {None: body, "gzip": gzip.compress(body), "deflate": zlib.compress(body)}[encoding]
    headers = {"X-Mine": "1"} | ({"Content-Encoding": encoding} if encoding else {})
    async with (
        serving(Foreign()) as server,
        asking(server, "/mcp?a=%C3%A9&b=2", sent, **headers) as reply,
    ):
        assert (reply.status, reply.headers["X-Own"]) == (202, "yes")
        heard = await reply.json()
    assert (heard["path"], heard["query"]) == ("/mcp", "a=%C3%A9&b=2")
    assert heard["body"] == body.decode()
    assert (heard["headers"]["x-mine"], heard["headers"]["content-length"]) == ("1", "1300")
    assert "content-encoding" not in heard["headers"]


@pytest.mark.parametrize("framing", ["Content-Length: 1000000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_stranger_is_refused_before_the_body_and_never_reaches_the_application(
    framing: str, encoding: str
) -> None:
    app = Foreign()
    async with serving(app) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n"
        writer.write(f"{head}Content-Encoding: {encoding}\r\n\r\n".encode())
        async with asyncio.timeout(60):
            assert b" 401 " in await reader.readline()
            writer.write(b"x" * 1000)
            with contextlib.suppress(ConnectionError):
                await reader.read()  # to the end: the connection is closed
        writer.transport.abort()
        assert app.asked == []
        async with asking(server) as known:
            assert known.status == 202
        assert app.asked == ["POST"]  # the control


async def test_a_stranger_who_says_nothing_is_turned_away() -> None:
    async with serving(Foreign(), stranger_s=0.3) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /mcp HTTP/1.1\r\nHost: local")
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        assert server.turned_away == 1


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
async def test_a_bomb_is_too_large_once_it_has_grown_to_the_bound(compress: Any) -> None:
    app = Foreign()
    encoding = "gzip" if compress is gzip.compress else "deflate"
    data = compress(b" " * 200 * LIMIT)
    assert len(data) < LIMIT
    async with (
        serving(app) as server,
        asking(server, data=data, **{"Content-Encoding": encoding}) as reply,
    ):
        assert (reply.status, (await reply.json())["error"]["code"]) == (413, "too_large")
        assert (app.asked, server.bytes_held) == ([], 0)


async def test_a_failure_before_the_answer_is_500_and_one_within_it_is_no_end() -> None:
    async with serving(Foreign()) as server:
        async with asking(server, "/mcp?fails") as reply:
            assert reply.status == 500
        async with asking(server, "/mcp?breaks") as reply:
            with pytest.raises(aiohttp.ClientError):
                await reply.read()
        async with asking(server, "/mcp?works") as reply:
            assert (await reply.json())["query"] == "works"


async def test_the_application_is_told_when_its_client_has_gone() -> None:
    app = Foreign()
    async with serving(app) as server:
        async with asking(server, "/mcp?wait") as reply:
            assert await reply.content.readexactly(5) == b"begun"
            assert not app.told_of_the_end.is_set()
        async with asyncio.timeout(60):
            await app.told_of_the_end.wait()


class Slow(Foreign):
    """Answers when it is let go, or when its client asks by GET, never."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            await self.let_go.wait()
        await super().__call__(scope, receive, send)


async def test_calls_of_an_application_count_and_the_server_ends_after_them() -> None:
    app = Slow()
    server = HttpServer([], mounted={"/mcp": app}, token=TOKEN, max_requests=1)
    await server.start()

    async def status() -> int:
        async with asking(server) as reply:
            return reply.status

    first = asyncio.create_task(status())
    await asyncio.sleep(0.2)
    assert await status() == 429
    ending = asyncio.create_task(server.stop())
    await asyncio.sleep(0.2)
    assert await status() == 503  # the door is open, and tells why nothing begins
    app.let_go.set()
    assert await first == 202
    await ending
