"""A plain POST is answered as any other: what the shorter way saves changes no answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ludus.envs import TextEnv
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.rewards.serving.server import ScoreService
from ludus.wire.access import AccessLog
from ludus.wire.codec import LARGE_BYTES
from ludus.wire.principals import Principals
from ludus.wire.routes import Service
from ludus.wire.server import HttpServer

ENV = "test/long-v0"
STEP, ROUTED = "/v1/sessions/a/step", "/v1/sessions/%61/step"
"""The same path; only the first is plain."""
TOKENS = """
[alice]
token = "alices"
scopes = ["*"]

[bob]
token = "bobs"
scopes = ["score:*"]
rate = 0.001
"""


class Long(TextEnv):
    """Answers with as many letters as it is told."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "begin", {}

    def step(self, action: str) -> Any:
        return "x" * int(action), 1.0, False, False, {}


class Line:
    """A connection on which requests are written byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, server: HttpServer) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    def send(
        self, path: str, body: bytes, *, version: str = "1.1", token: str = "alices", **headers: str
    ) -> None:
        """Write a request."""
        head = {"Host": "localhost", "Content-Type": "application/json", "X-Request-Id": "me"}
        head |= {"Authorization": f"Bearer {token}", "Content-Length": str(len(body))}
        head |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{name}: {value}" for name, value in head.items() if value]
        text = "\r\n".join([f"POST {path} HTTP/{version}", *lines, "", ""])
        self.writer.write(text.encode() + body)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read a reply: its status, headers and body."""
        async with asyncio.timeout(20):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value
                for name, _, value in (line.partition(": ") for line in head[1:] if line)
            }
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body

    async def ask(self, path: str, body: bytes, **options: str) -> tuple[int, Any, bytes]:
        self.send(path, body, **options)
        return await self.answer()


def step(seq: int, action: str = "3", **more: Any) -> bytes:
    return json.dumps({"seq": seq, "action": action, **more}).encode()


CASES: dict[str, tuple[bytes, dict[str, str]]] = {
    "a step": (step(1), {}),
    "msgpack back": (step(1), {"Accept": "application/msgpack"}),
    "a long reply": (step(1, "700000"), {}),
    "another number": (step(7), {}),
    "the environment fails": (step(1, "no number"), {}),
    "no JSON": (b"{", {}),
    "a word too many": (step(1, actoin="1"), {}),
    "the path's word again": (step(1, session="a"), {}),
    "no token": (step(1), {"token": ""}),
    "a wrong token": (step(1), {"token": "mallorys"}),
    "no session of this principal": (step(1), {"token": "bobs"}),
    "another media type": (step(1), {"Content_Type": "text/plain"}),
    "another encoding": (step(1), {"Content_Encoding": "br"}),
    "not gzip": (step(1), {"Content_Encoding": "gzip"}),
    "too long": (b"x" * 5000, {}),
    "the trace of a client": (step(1), {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_plain_request_is_answered_as_a_routed_one(case: str, tmp_path: Path) -> None:
    tokens, log = tmp_path / "tokens.toml", tmp_path / "log"
    tokens.write_text(TOKENS)
    body, options = CASES[case]
    limits: dict[str, Any] = {"max_body_bytes": 4000, "access_log": AccessLog(str(log))}
    services: list[Service] = [EnvService([ServedEnv(ENV, factory=Long)]), ScoreService(["exact"])]
    async with HttpServer(services, principals=Principals("", tokens), **limits) as server:
        line = await Line.to(server)
        create = b'{"session": "a", "reset": {}}'
        status, _, _ = await line.ask(f"/v1/envs/{ENV}/sessions", create)
        assert status == 200
        answers = []
        for path in (STEP, ROUTED):
            one = await Line.to(server)
            # The second is the first sent again: the reply of the first is kept for it.
            status, headers, reply = await one.ask(path, body, **options)
            assert headers.pop("date")
            is_plain = headers.pop("server", None) is None  # aiohttp's responses name it
            assert is_plain or path == ROUTED or status != 200 or len(reply) > LARGE_BYTES
            answers.append((status, headers, reply))
            one.writer.close()
        line.writer.close()
        counted = server.metrics.text().decode()
    plain, routed = answers
    assert plain == routed
    counts = [row for row in counted.splitlines() if row.startswith("ludus_requests_total{")]
    labels = f'route="/v1/sessions/{{sid}}/step",status="{plain[0]}"'
    assert [row for row in counts if labels in row] == [f"ludus_requests_total{{{labels}}} 2.0"]
    first, second = (json.loads(row) for row in log.read_text().splitlines()[1:])
    for row in (first, second):
        del row["time"], row["ms"]
    assert first == second
    assert first["session"] == "a"


async def test_requests_sent_ahead_are_answered_in_their_order() -> None:
    async with HttpServer([EnvService([ServedEnv(ENV, factory=Long)])]) as server:
        line = await Line.to(server)
        await line.ask(f"/v1/envs/{ENV}/sessions", b'{"session": "a", "reset": {}}')
        # Plain and routed ones in turns; long replies wait for a client that does not read yet.
        for seq in range(1, 21):
            line.send(STEP if seq % 2 else ROUTED, step(seq, "400000"))
        await asyncio.sleep(0.2)
        replies = [json.loads((await line.answer())[2]) for _ in range(20)]
        assert [reply["seq"] for reply in replies] == list(range(1, 21))
        assert {len(reply["observation"]) for reply in replies} == {400_000}
        line.writer.close()


@pytest.mark.parametrize(
    ("version", "connection", "stays"),
    [("1.1", "", True), ("1.1", "close", False), ("1.0", "", False), ("1.0", "keep-alive", True)],
)
async def test_a_connection_ends_as_the_client_asks(
    version: str, connection: str, stays: bool
) -> None:
    async with HttpServer([EnvService([ServedEnv(ENV, factory=Long)])]) as server:
        line = await Line.to(server)
        await line.ask(f"/v1/envs/{ENV}/sessions", b'{"session": "a", "reset": {}}')
        status, _, _ = await line.ask(STEP, step(1), version=version, Connection=connection)
        assert status == 200
        if stays:
            status, _, _ = await line.ask(STEP, step(2))
            assert status == 200
        else:
            assert await asyncio.wait_for(line.reader.read(), 20) == b""
        line.writer.close()


async def test_a_body_in_pieces_is_read_to_its_end() -> None:
    async with HttpServer([EnvService([ServedEnv(ENV, factory=Long)])]) as server:
        line = await Line.to(server)
        await line.ask(f"/v1/envs/{ENV}/sessions", b'{"session": "a", "reset": {}}')
        body = step(1)
        line.send(STEP, b"", Content_Length=str(len(body)))
        await asyncio.sleep(0.05)
        line.writer.write(body[:5])
        await asyncio.sleep(0.05)
        line.writer.write(body[5:])
        assert (await line.answer())[0] == 200
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(step(2)), step(2))
        line.send(STEP, chunks, Content_Length="", Transfer_Encoding="chunked")
        assert (await line.answer())[0] == 200
        line.writer.close()
