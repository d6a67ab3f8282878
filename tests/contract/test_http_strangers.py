"""Whoever has not shown the token costs a server next to nothing; bodies are bounded for all."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from ludus.rewards.serving.server import ScoreService
from ludus.wire.server import HttpServer

TOKEN = "open-sesame"
LIMIT = 100_000
BODY = json.dumps({"verifier": "exact", "sample": {"response": "a", "gold": "a"}}).encode()
HEAD = (
    "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Authorization: Bearer {token}\r\n{more}\r\n"
)


@asynccontextmanager
async def serving(**kwargs: Any) -> AsyncGenerator[HttpServer]:
    options: dict[str, Any] = {"token": TOKEN, "max_body_bytes": LIMIT, **kwargs}
    async with HttpServer([ScoreService(["exact"])], **options) as server:
        yield server


@asynccontextmanager
async def connected(
    server: HttpServer,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


def head(*headers: str, token: str = TOKEN) -> bytes:
    return HEAD.format(token=token, more="".join(line + "\r\n" for line in headers)).encode()


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(60):
        return int((await reader.readline()).split()[1])


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes the connection."""
    try:
        async with asyncio.timeout(60):
            await reader.read()
    except ConnectionError:
        return True
    return reader.at_eof()


async def post(server: HttpServer, data: bytes, **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named |= {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/score", data=data, headers=named) as reply,
    ):
        return reply.status, await reply.json()


@pytest.mark.parametrize("framing", ["Content-Length: 1000000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate", "br", "zstd"])
async def test_a_stranger_is_refused_before_the_body(framing: str, encoding: str) -> None:
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(head(framing, f"Content-Encoding: {encoding}", token="wrong"))
        assert await status(reader) == 401
        writer.write(b"x" * 1000)
        assert await ended(reader)


async def test_a_stranger_is_not_asked_for_the_body_it_offers() -> None:
    async with serving() as server:
        async with connected(server) as (reader, writer):
            writer.write(head("Content-Length: 1000", "Expect: 100-continue", token="wrong"))
            assert await status(reader) == 401
        async with connected(server) as (reader, writer):
            length = f"Content-Length: {len(BODY)}"
            writer.write(head(length, "Expect: 100-continue"))
            assert await status(reader) == 100
            writer.write(BODY)
            await reader.readline()
            assert await status(reader) == 200


@pytest.mark.parametrize("token", [TOKEN, "wrong"])
@pytest.mark.parametrize("host", ["localhost", "elsewhere.example"])
@pytest.mark.parametrize("path", ["/v1/score", "/v1/nothing", "/healthz"])
@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 2",
        "Content-Length: 1000000000\r\nExpect: 100-continue",
        "Transfer-Encoding: chunked",
    ],
    ids=["short", "offered", "chunked"],
)
async def test_a_reply_after_which_the_connection_ends_says_so(
    framing: str, path: str, host: str, token: str
) -> None:
    """A client sends head and body in two pieces, and may be answered between them."""
    asked = head(framing, token=token).replace(b"/v1/score", path.encode())
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(asked.replace(b"Host: localhost", b"Host: " + host.encode()))
        await asyncio.sleep(0.05)
        writer.write(b"2\r\n{}\r\n0\r\n\r\n" if "chunked" in framing else b"{}")
        async with asyncio.timeout(60):
            while (reply := (await reader.readuntil(b"\r\n\r\n")).lower()).startswith(
                b"http/1.1 100"
            ):
                pass
        if b"connection: close" in reply:
            assert await ended(reader)
            return
        length = int(re.findall(rb"content-length: (\d+)", reply)[0])
        await reader.readexactly(length)
        whole = head(f"Content-Length: {len(BODY)}") + BODY
        writer.write(whole)
        assert await status(reader) == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compressed_body_is_read(encoding: str) -> None:
    data = gzip.compress(BODY) if encoding == "gzip" else zlib.compress(BODY)
    async with serving() as server:
        assert await post(server, data, Content_Encoding=encoding) == (
            200,
            {"status": "ok", "reward": 1.0, "detail": "equal"},
        )


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_bomb_is_too_large_once_it_has_grown_to_the_bound(encoding: str) -> None:
    bomb = b'"' + b" " * 200 * LIMIT + b'"'
    data = gzip.compress(bomb) if encoding == "gzip" else zlib.compress(bomb)
    assert len(data) < LIMIT
    async with serving() as server:
        code, answer = await post(server, data, Content_Encoding=encoding)
        assert (code, answer["error"]["code"]) == (413, "too_large")
        assert server.bytes_held == 0


@pytest.mark.parametrize(
    ("data", "encoding", "code"),
    [
        (BODY, "gzip", 400),
        (gzip.compress(BODY)[:-9], "gzip", 400),
        (gzip.compress(BODY) + b"more", "gzip", 400),
        (gzip.compress(gzip.compress(BODY)), "gzip, gzip", 415),
        (BODY, "br", 415),
        (BODY, "zstd", 415),
        (BODY, "identity", 200),
    ],
    # compressed bytes hold the time of day: two test processes must call the cases alike
    ids=["not gzip", "cut short", "more behind", "twice", "br", "zstd", "identity"],
)
async def test_other_encodings_and_broken_ones_are_refused(
    data: bytes, encoding: str, code: int
) -> None:
    async with serving() as server:
        # aiohttp's client would compress by itself
        async with connected(server) as (reader, writer):
            writer.write(head(f"Content-Encoding: {encoding}", f"Content-Length: {len(data)}"))
            writer.write(data)
            assert await status(reader) == code
        assert server.bytes_held == 0


@pytest.mark.slow
async def test_a_chunked_body_is_bounded_too() -> None:
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(head("Transfer-Encoding: chunked"))
        chunk = b"ffff\r\n" + b" " * 0xFFFF + b"\r\n"
        writer.write(chunk + chunk)
        assert await status(reader) == 413


async def test_bodies_in_flight_are_bounded_over_all_requests() -> None:
    long = BODY[:-1] + b" " * 60_000 + b"}"
    async with serving(max_bytes_in_flight=LIMIT) as server:
        async with connected(server) as (_, writer):
            writer.write(head(f"Content-Length: {len(long)}") + long[:50_000])
            async with asyncio.timeout(60):
                while server.bytes_held < 50_000:
                    await asyncio.sleep(0.01)
            code, answer = await post(server, long)
            assert (code, answer["error"]["code"]) == (429, "overloaded")
            assert answer["error"]["limit"] == LIMIT
            assert (await post(server, BODY))[0] == 200
        async with asyncio.timeout(60):
            while server.bytes_held:  # the client that left gives its bytes back
                await asyncio.sleep(0.01)
        assert (await post(server, long))[0] == 200


@pytest.mark.parametrize("sent", [b"", b"POST /v1/score HTTP/1.1\r\nHost: local", b"GET "])
async def test_who_does_not_show_a_token_in_time_is_closed(sent: bytes) -> None:
    async with serving(stranger_s=0.3) as server:
        async with connected(server) as (reader, writer):
            writer.write(sent)
            assert await ended(reader)
        assert server.turned_away == 1


async def test_who_has_shown_the_token_stays() -> None:
    whole = head(f"Content-Length: {len(BODY)}") + BODY
    async with serving(stranger_s=0.1) as server, connected(server) as (reader, writer):
        for _ in range(2):
            writer.write(whole)
            assert b" 200 " in await reader.readuntil(b'"equal"}')
            async with connected(server) as (stranger, _):
                assert await ended(stranger)  # by then the first would be gone too
        assert server.turned_away == 2


async def test_strangers_make_room_for_others_and_known_clients_do_not() -> None:
    whole = head(f"Content-Length: {len(BODY)}") + BODY
    async with serving(max_connections=3) as server:
        async with connected(server) as known, connected(server) as first:
            known[1].write(whole)
            assert await status(known[0]) == 200
            async with connected(server) as second, connected(server) as third:
                assert await ended(first[0])  # the stranger that was there longest
                for reader, writer in (second, third):
                    writer.write(whole)
                    assert await status(reader) == 200
                async with connected(server) as (reader, _):  # all are known now
                    assert await status(reader) == 503
                known[1].write(whole)
                await known[0].readuntil(b"equal")
                await known[0].readline()
        assert server.turned_away == 2


METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "CONNECT", "PURGE")
PIECES = (
    *("/", "//", "*", "v1", "score", "openapi.json", ":", "?", "#", "..", "%2F", "%00", "%C3%A9"),
    *("%zz", "http://localhost", "localhost:1", "é", "[", "~", ";", "a" * 300),
)


async def test_whatever_a_stranger_addresses_is_no_fault_of_ours() -> None:
    draw = random.Random(7)
    targets = ["*", "", "http://localhost", "localhost:1", "/", "//"]
    targets += ["".join(draw.choices(PIECES, k=draw.randint(1, 4))) for _ in range(400)]
    answered = set()
    async with serving() as server:
        for target in targets:
            method = draw.choice(METHODS)
            async with connected(server) as (reader, writer):
                request = (
                    f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                writer.write(request.encode())
                code = await status(reader)
                assert code < 500, (method, target)
                answered.add(code)
    assert {400, 401} <= answered
