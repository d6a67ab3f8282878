"""`/v1/stream`: many operations over one connection, each answered by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import aiohttp
import msgspec
import pytest

import ludus
from ludus.envs import TextEnv
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.errors import ConfigError
from ludus.rewards.serving.server import ScoreService
from ludus.wire.codec import LARGE_BYTES, SEE_OTHER
from ludus.wire.server import HttpServer

ENV = "test/talker-v0"
HUGE = 1 << 70


class Talker(TextEnv):
    """Says as many letters as it is told, or waits until it is released."""

    never_blocks = True
    release: ClassVar[asyncio.Event]
    steps: ClassVar[int] = 0

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "begin", {}

    async def step(self, action: str) -> Any:
        if action == "wait":
            await Talker.release.wait()
            return "released", 1.0, False, False, {}
        Talker.steps += 1
        if action == "huge number":
            return "", 1.0, False, False, {"number": HUGE}
        return "x" * int(action), 1.0, False, False, {}


@asynccontextmanager
async def serving(**kwargs: Any) -> AsyncGenerator[HttpServer]:
    Talker.release = asyncio.Event()
    envs = EnvService([ServedEnv(ENV, factory=Talker)])
    async with HttpServer([envs, ScoreService(["exact"])], **kwargs) as server:
        yield server


@asynccontextmanager
async def streaming(server: HttpServer, **kwargs: Any) -> AsyncGenerator[Any]:
    async with (
        aiohttp.ClientSession(server.url) as http,
        http.ws_connect("/v1/stream", **kwargs) as socket,
    ):
        hello = await socket.receive_json()
        assert hello["instance"] == server.instance
        yield socket


def create(number: int, name: str) -> list[Any]:
    return [number, {"op": "create", "env": ENV, "session": name, "reset": {}}]


def step(number: int, name: str, action: str, seq: int = 1) -> list[Any]:
    return [number, {"op": "step", "session": name, "seq": seq, "action": action}]


async def ask(socket: Any, *items: list[Any]) -> dict[int, tuple[int, Any]]:
    """Send a frame of JSON and gather the answers to all of it."""
    await socket.send_str(json.dumps(list(items)))
    answers: dict[int, tuple[int, Any]] = {}
    async with asyncio.timeout(60):
        while len(answers) < len(items):
            answers |= {n: (status, body) for n, status, body in await socket.receive_json()}
    return answers


async def test_operations_of_environments_and_verifiers_share_a_stream() -> None:
    sample = {"response": "a", "gold": "a"}
    async with serving() as server, streaming(server) as socket:
        score = [9, {"op": "score", "verifier": "exact", "sample": sample}]
        answers = await ask(socket, create(7, "one"), score)
        answers |= await ask(socket, step(8, "one", "3"))
        answers |= await ask(socket, [10, {"op": "delete", "session": "one"}])
    assert answers[7][1]["observation"] == "begin"
    assert (answers[8][0], answers[8][1]["observation"]) == (200, "xxx")
    assert answers[9] == (200, {"status": "ok", "reward": 1.0, "detail": "equal"})
    assert answers[10][1]["released"] is True


async def test_frames_of_msgpack_are_answered_in_msgpack() -> None:
    async with serving() as server, streaming(server) as socket:
        await socket.send_bytes(msgspec.msgpack.encode([create(1, "one")]))
        ((number, status, body),) = msgspec.msgpack.decode(await socket.receive_bytes())
    assert (number, status, body["observation"]) == (1, 200, "begin")


async def test_no_answer_waits_for_another() -> None:
    async with serving() as server, streaming(server) as socket:
        await ask(socket, create(1, "slow"), create(2, "quick"))
        await socket.send_str(json.dumps([step(3, "slow", "wait")]))
        for seq in range(1, 20):  # answered while the other still runs
            assert (await ask(socket, step(3 + seq, "quick", "1", seq)))[3 + seq][0] == 200
        Talker.release.set()
        ((number, status, body),) = await socket.receive_json()
    assert (number, status, body["observation"]) == (3, 200, "released")


async def test_a_wrong_item_is_refused_and_the_others_of_its_frame_are_done() -> None:
    async with serving() as server, streaming(server) as socket:
        wrong = [2, {"op": "step", "session": "one", "seq": "first", "action": "1"}]
        answers = await ask(socket, create(1, "one"), wrong, [3, {"op": "fly"}], [4, 5])
    assert {n: status for n, (status, _) in answers.items()} == {1: 200, 2: 422, 3: 422, 4: 422}
    assert "$.seq" in answers[2][1]["message"]


@pytest.mark.parametrize("frame", ["{", '{"op": "step"}', "[[1]]", "7"])
async def test_a_frame_that_is_no_list_of_operations_ends_the_stream(frame: str) -> None:
    async with serving() as server, streaming(server) as socket:
        await socket.send_str(frame)
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == aiohttp.WSCloseCode.INVALID_TEXT


async def test_an_answer_too_large_for_a_stream_is_asked_for_over_plain_http() -> None:
    size = str(LARGE_BYTES + 1)
    async with serving() as server:
        async with streaming(server) as socket:
            await ask(socket, create(1, "one"), create(2, "two"))
            answers = await ask(socket, step(3, "one", size), step(4, "two", "1"))
        assert answers[3] == (SEE_OTHER, None)
        assert answers[4][0] == 200
        async with ludus.connect(server.url) as client:
            session = client.make_async(ENV)
            await session.reset()
            assert len((await session.step(size))[0]) == LARGE_BYTES + 1
            assert (await session.step("5"))[0] == "xxxxx"
            await session.close()


async def test_an_answer_that_the_format_cannot_hold_is_asked_for_over_plain_http() -> None:
    async with serving() as server:
        async with streaming(server) as socket:
            await ask(socket, create(1, "one"))
            asked = step(2, "one", "huge number")
            await socket.send_bytes(msgspec.msgpack.encode([asked]))
            assert msgspec.msgpack.decode(await socket.receive_bytes()) == [[2, SEE_OTHER, None]]
            assert (await ask(socket, asked))[2][1]["info"] == {"number": HUGE}  # in JSON
        async with ludus.connect(server.url) as client:
            session = client.make_async(ENV)
            await session.reset()
            assert (await session.step("huge number"))[4] == {"number": HUGE}
            assert (await session.step("5"))[0] == "xxxxx"
            await session.close()


async def test_each_answer_has_the_format_of_the_last_frame_that_was_heard() -> None:
    """Both on one connection, while answers wait to be sent."""
    async with serving() as server, streaming(server) as socket:
        for number in range(20):
            frame = [create(number, f"session-{number}")]
            if number % 2:
                await socket.send_bytes(msgspec.msgpack.encode(frame))
            else:
                await socket.send_str(json.dumps(frame))
        heard: set[int] = set()
        while len(heard) < 20:
            message = await socket.receive(10)
            is_text = message.type is aiohttp.WSMsgType.TEXT
            answers = (json.loads if is_text else msgspec.msgpack.decode)(message.data)
            assert all(body["observation"] == "begin" for _, _, body in answers)
            heard |= {number for number, _, _ in answers}


async def test_a_client_that_takes_no_answers_is_not_heard_further() -> None:
    """Its answers are not piled up without bound; once it takes them, all are there."""
    size, number = 400_000, 300
    async with serving() as server, streaming(server) as socket:
        names = [f"session-{index}" for index in range(number)]
        await ask(socket, *(create(index, name) for index, name in enumerate(names)))
        Talker.steps = 0
        for index, name in enumerate(names):
            await socket.send_str(json.dumps([step(index, name, str(size))]))
        stalled = 0
        async with asyncio.timeout(60):
            while stalled < 10:
                before = Talker.steps
                await asyncio.sleep(0.05)
                stalled = stalled + 1 if Talker.steps == before else 0
        assert 0 < Talker.steps < number // 2
        answered = 0
        async with asyncio.timeout(60):
            while answered < number:
                answered += len(await socket.receive_json())
        assert Talker.steps == number


async def test_a_frame_beyond_the_bound_is_not_read() -> None:
    async with serving(max_body_bytes=10_000) as server, streaming(server) as socket:
        await socket.send_str("[" + " " * 10_000 + "]")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG


async def test_a_stream_needs_the_token_and_an_upgrade() -> None:
    async with serving(token="secret") as server, aiohttp.ClientSession(server.url) as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await http.ws_connect("/v1/stream")
        assert caught.value.status == 401
        headers = {"Authorization": "Bearer secret"}
        async with http.get("/v1/stream", headers=headers) as reply:
            assert reply.status == 426
        async with http.ws_connect("/v1/stream", headers=headers) as socket:
            assert (await socket.receive_json())["instance"] == server.instance


async def test_a_client_plays_on_over_plain_http_where_streams_do_not_pass() -> None:
    class Without(HttpServer):
        def _build_streams(self) -> None:
            return None

    async with (
        Without([EnvService([ServedEnv(ENV, factory=Talker)])]) as server,
        ludus.connect(server.url) as client,
    ):
        sessions = [client.make_async(ENV) for _ in range(8)]
        await asyncio.gather(*(session.reset() for session in sessions))
        stepped = await asyncio.gather(*(session.step("2") for session in sessions))
        assert [one[0] for one in stepped] == ["xx"] * 8
        await asyncio.gather(*(session.close() for session in sessions))


async def test_an_action_that_cannot_be_sent_fails_alone() -> None:
    async with serving() as server, ludus.connect(server.url) as client:
        sessions = [client.make_async(ENV) for _ in range(3)]
        await asyncio.gather(*(session.reset() for session in sessions))
        outcomes = await asyncio.gather(
            *(s.step(a) for s, a in zip(sessions, ("1", "\ud800", "3"), strict=True)),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], ConfigError)
        assert [len(outcome[0]) for outcome in (outcomes[0], outcomes[2])] == [1, 3]  # type: ignore[index]
        await asyncio.gather(*(session.close() for session in sessions))


async def test_a_server_that_stops_closes_its_streams() -> None:
    async with serving() as server, streaming(server) as socket:
        stopping = asyncio.create_task(server.stop())
        message = await socket.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == aiohttp.WSCloseCode.GOING_AWAY
        await socket.close()
        await stopping
