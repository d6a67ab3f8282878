"""The Open Reward Standard: its conformance list, with requests as they go over the wire, and a
stranger's server whose streams break, cut characters and blank out."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import ludus
from ludus.envs.outside.servers.ors import OrsClient
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.errors import ConfigError, RewardUnavailable, UnknownTask
from ludus.integrations.ors import OrsService
from ludus.messages import ToolCall, assistant
from ludus.wire.server import HttpServer


class Maze(ludus.TextEnv):
    """Walk to the door. `long` shows much, `break` cannot be scored, `nothing` earns nothing."""

    system_prompt = "Find the door."
    never_blocks = True
    runs = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        if self.task.id == "train/13":
            raise RuntimeError("no such room")
        return f"You are in room {self.task.id}.", {}

    def step(self, action: str) -> Any:
        if action == "break":
            return "", ludus.Verdict.unavailable("the judge is away"), True, False, {}
        return f"You said {action!r}.", float(action == "open"), True, False, {}

    @ludus.tool
    def walk(self, where: str) -> str:
        """Walk somewhere.

        Args:
            where: the direction.
        """
        type(self).runs += 1
        if where == "long":
            return "é " + "x " * 6000 + " " * 5000 + "end"
        return f"You walk {where}."


@asynccontextmanager
async def serving(**limits: Any) -> AsyncGenerator[str]:
    Maze.runs = 0
    served = [ServedEnv("me/maze-v0", factory=Maze), ServedEnv("me/other-v0", factory=Maze)]
    service = EnvService(served, limits=SessionLimits(**limits))
    async with HttpServer([service, OrsService(service)]) as server:
        yield server.url


class Wire:
    """A client that says exactly what it is told to."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url, self.http, self.sid = url, http, ""

    async def ask(
        self, method: str, path: str, body: Any = None, **more: Any
    ) -> tuple[int, Any, Any]:
        headers = {"X-Session-ID": self.sid} if self.sid else {}
        async with self.http.request(
            method, self.url + path, json=body, headers=headers, **more
        ) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if text else None, reply.headers

    async def events(self, path: str, body: Any) -> list[tuple[str, str]]:
        headers = {"X-Session-ID": self.sid} if self.sid else {}
        async with self.http.post(self.url + path, json=body, headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            text = await reply.text()
        lines = [part.split("\n") for part in text.split("\n\n") if part.startswith("event:")]
        return [(one.removeprefix("event: "), two.removeprefix("data: ")) for one, two in lines]

    async def begin(self, body: Any) -> tuple[int, Any]:
        self.sid = ""
        events = await self.events("/create_session", {})
        assert [kind for kind, _ in events] == ["task_id", "end"]
        self.sid = events[0][1]
        status, answer, _ = await self.ask("POST", "/create", body)
        return status, answer

    async def call(self, tool: str, **given: Any) -> Any:
        events = await self.events("/me-maze-v0/call", {"name": tool, "input": given})
        kinds = [kind for kind, _ in events]
        assert kinds[0] == "task_id"
        if kinds[-1] == "error":
            raise RuntimeError(events[-1][1])
        # As the official clients do: leading blanks of every piece are lost.
        return json.loads("".join(data.lstrip() for _, data in events[1:]))


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Wire]:
    async with aiohttp.ClientSession() as http:
        yield Wire(url, http)


async def test_what_there_is_can_be_asked() -> None:
    async with serving() as url, connected(url) as wire:
        assert (await wire.ask("GET", "/health"))[1] == {"status": "ok"}
        assert (await wire.ask("GET", "/list_environments"))[1] == ["me-maze-v0", "me-other-v0"]
        splits = (await wire.ask("GET", "/me-maze-v0/splits"))[1]
        assert {each["name"]: each["type"] for each in splits} == {
            name: name for name in ("train", "validation", "test")
        }
        status, answer, _ = await wire.ask("POST", "/me-maze-v0/num_tasks", {"split": "train"})
        assert (status, answer) == (200, {"num_tasks": 10_000})
        _, answer, _ = await wire.ask("POST", "/ME-MAZE-V0/task", {"split": "test", "index": 3})
        assert answer == {"task": {"id": "test/3", "split": "test"}, "env_name": "me-maze-v0"}
        ranged = {"split": "train", "start": -2}
        _, answer, _ = await wire.ask("POST", "/me-maze-v0/task_range", ranged)
        assert [each["id"] for each in answer["tasks"]] == ["train/9998", "train/9999"]
        tools = (await wire.ask("GET", "/me-maze-v0/tools"))[1]["tools"]
        assert [set(tool) for tool in tools] == [{"name", "description", "input_schema"}] * 2
        assert [tool["name"] for tool in tools] == ["walk", "say"]
        refusals = [
            ("/me-maze-v0/tasks", {"split": "prod"}, 400),
            ("/me-maze-v0/task", {"split": "train", "index": -1}, 400),
            ("/me-maze-v0/num_tasks", {"split": "train", "more": 1}, 422),
            ("/me-maze-v0/nothing", {}, 404),
        ]
        for path, body, status in refusals:
            got, answer, _ = await wire.ask("POST", path, body)
            assert got == status, path
            assert isinstance(answer["detail"], str)
        # A path that names no environment belongs to the first one.
        status, _, headers = await wire.ask("GET", "/splits?a=1", allow_redirects=False)
        assert (status, headers["Location"]) == (308, "/me-maze-v0/splits?a=1")
        assert (await wire.ask("POST", "/num_tasks", {"split": "train"}))[1] == {
            "num_tasks": 10_000
        }


async def test_an_episode_is_created_in_one_way_and_once() -> None:
    async with serving() as url, connected(url) as wire:
        for wrong in (
            {},
            {"split": "train"},
            {"task_spec": {"id": "train/1"}, "split": "train", "index": 1},
            {"split": "train", "index": 1, "colour": "red"},
        ):
            assert (await wire.begin(wrong))[0] == 422
        assert (await wire.begin({"split": "prod", "index": 1}))[0] == 400
        by_index = {"split": "train", "index": 5, "secrets": {"A": "b"}}
        assert await wire.begin(by_index) == (200, {"sid": wire.sid})
        assert (await wire.ask("POST", "/create", by_index))[0] == 400
        prompt = (await wire.ask("GET", "/me-maze-v0/prompt"))[1]
        assert [block["text"] for block in prompt] == ["Find the door.", "You are in room train/5."]
        messages = (await wire.ask("GET", "/me-maze-v0/messages"))[1]
        assert [message["role"] for message in messages] == ["system", "user"]
        spec = {"task_spec": {"id": "test/2"}, "env_name": "me-other-v0"}
        assert (await wire.begin(spec))[0] == 200
        # A setup that fails is an error at the first use.
        assert (await wire.begin({"split": "train", "index": 13}))[0] == 200
        status, answer, _ = await wire.ask("GET", "/me-maze-v0/prompt")
        assert status == 500
        assert "no such room" in answer["detail"]
        wire.sid = ""
        assert (await wire.ask("POST", "/ping"))[0] == 400
        wire.sid = "nobody"
        assert (await wire.ask("POST", "/ping"))[0] == 404


async def test_a_reward_is_null_or_a_number_and_failures_are_neither() -> None:
    async with serving() as url, connected(url) as wire:
        await wire.begin({"split": "train", "index": 1})
        walked = await wire.call("walk", where="north")
        assert walked["output"]["blocks"] == [
            {"type": "text", "text": "You walk north.", "detail": None}
        ]
        assert (walked["output"]["reward"], walked["output"]["finished"]) == (None, False)
        for tool, given, reason in (
            ("fly", {}, "not_found"),
            ("say", {"words": "open"}, "input_validation"),
        ):
            refused = await wire.call(tool, **given)
            assert (refused["ok"], refused["reason"]) == (False, reason)
        ended = await wire.call("say", text="nothing")
        assert (ended["output"]["reward"], ended["output"]["finished"]) == (0.0, True)
        assert (await wire.call("walk", where="north"))["reason"] == "episode_finished"
        await wire.begin({"split": "train", "index": 1})
        with pytest.raises(RuntimeError, match="the judge is away"):
            await wire.call("say", text="break")
        assert (await wire.ask("POST", "/delete"))[0] == 200
        assert (await wire.ask("GET", "/me-maze-v0/prompt"))[0] == 404


async def test_long_results_survive_clients_that_strip_blanks() -> None:
    async with serving() as url, connected(url) as wire:
        await wire.begin({"split": "train", "index": 1})
        shown = (await wire.call("walk", where="long"))["output"]["blocks"][0]["text"]
        assert shown == "é " + "x " * 6000 + " " * 5000 + "end"


async def test_a_call_that_is_asked_for_again_was_made_once() -> None:
    async with serving() as url, connected(url) as wire:
        await wire.begin({"split": "train", "index": 1})
        body = {"name": "walk", "input": {"where": "east"}}
        first = await wire.events("/me-maze-v0/call", body)
        again = await wire.events("/me-maze-v0/call", {**body, "task_id": first[0][1]})
        assert again == first
        assert Maze.runs == 1
        session, wire.sid = wire.sid, ""
        await wire.begin({"split": "train", "index": 2})
        assert session != wire.sid
        stolen = await wire.events("/me-maze-v0/call", {**body, "task_id": first[0][1]})
        assert stolen == [("error", "unknown task_id")]


async def test_silence_ends_a_session_and_a_ping_does_not() -> None:
    async with serving(lease_s=0.6, max_sessions=1) as url, connected(url) as wire:
        await wire.begin({"split": "train", "index": 1})
        assert await is_full(url)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            assert (await wire.ask("POST", "/ping"))[0] == 200
            await asyncio.sleep(0.1)
        assert (await wire.call("walk", where="west"))["ok"]
        for _ in range(100):
            await asyncio.sleep(0.1)
            if not await is_full(url):
                break
        assert (await wire.ask("POST", "/ping"))[0] == 404


async def is_full(url: str) -> bool:
    """Whether every session is taken; a look at it keeps none."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/readyz") as reply:
        return reply.status == 503


def test_names_that_the_standard_cannot_tell_apart_are_refused() -> None:
    served = [ServedEnv("me/a-b-v0", factory=Maze), ServedEnv("me-a/b-v0", factory=Maze)]
    with pytest.raises(ConfigError, match="no names of their own"):
        OrsService(EnvService(served))


# --- the other side -----------------------------------------------------------------------------


async def test_an_environment_played_through_the_standard_is_the_same() -> None:
    """Served by the standard and played by our client: the same turns and rewards as here."""
    async with serving() as url:
        env = await asyncio.to_thread(ludus.make, f"ors/{url}", environment="me-maze-v0")
        local = ludus.make(Maze)
        for index in range(6):
            task = f"train/{index}"
            shown, _ = await asyncio.to_thread(env.reset, options={"task": task})
            here, _ = local.reset(options={"task": task})
            assert str(here) in str(shown)
            said = "open" if index % 2 else "shut"
            there = await asyncio.to_thread(env.step, said)
            expected = local.step(said)
            assert (there[1], there[2]) == (expected[1], expected[2])
        await asyncio.to_thread(env.close)


class Stranger:
    """A server of the standard that is not ours, with faults on purpose."""

    def __init__(self, result: str, *, breaks: int = 0, cuts: list[int] | None = None) -> None:
        self.result, self.breaks, self.cuts = result, breaks, cuts or []
        self.made = 0
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[str]:
        app = web.Application()
        app.router.add_get("/list_environments", self.say(["Cave"]))
        app.router.add_get("/Cave/splits", self.say([{"name": "prod", "type": "train"}]))
        app.router.add_post("/Cave/num_tasks", self.say({"num_tasks": 3}))
        app.router.add_get("/Cave/task_tools", self.no)
        tool = {"name": "dig", "description": "", "input_schema": None}
        app.router.add_get("/Cave/tools", self.say({"tools": [tool]}))
        app.router.add_get("/Cave/prompt", self.say([{"type": "text", "text": "Dark."}]))
        for path in ("/create", "/ping", "/delete", "/delete_session"):
            app.router.add_post(path, self.say({"sid": "s"}))
        app.router.add_post("/create_session", self.name)
        app.router.add_post("/Cave/call", self.call)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            await runner.cleanup()

    def say(self, value: Any) -> Any:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response(value)

        return answer

    async def no(self, request: web.Request) -> web.Response:
        return web.json_response({"detail": "no"}, status=404)

    async def name(self, request: web.Request) -> web.StreamResponse:
        return await self.stream(request, b"event: task_id\ndata: s\n\nevent: end\ndata: \n\n")

    async def call(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.made += "task_id" not in asked
        data = b": ping\r\n\r\nevent: task_id\r\ndata: t1\r\n\r\n"
        if self.breaks:
            self.breaks -= 1
            return await self.stream(request, data, breaks=True)
        half = len(self.result) // 2
        for kind, part in (("chunk", self.result[:half]), ("end", self.result[half:])):
            data += f"event: {kind}\r\ndata: {part}\r\n\r\n".encode()
        return await self.stream(request, data)

    async def stream(
        self, request: web.Request, data: bytes, *, breaks: bool = False
    ) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        start = 0
        for end in [*self.cuts, len(data)]:
            await reply.write(data[start:end])
            await asyncio.sleep(0.01)
            start = end
        if breaks and request.transport is not None:
            request.transport.abort()
        return reply


def result(text: str, reward: float | None, *, finished: bool) -> str:
    blocks = [{"type": "text", "text": text, "detail": None}]
    output = {"blocks": blocks, "metadata": None, "reward": reward, "finished": finished}
    return json.dumps({"ok": True, "output": output}, ensure_ascii=False, separators=(",", ":"))


async def played(url: str) -> tuple[Any, ...]:
    env = OrsClient(url, timeout_s=5)
    await asyncio.to_thread(env.tasks, "train")
    try:
        await env.reset()
        call = ToolCall(name="dig", arguments={}, id="c")
        return await env.step(assistant("", [call]))
    finally:
        await env.close()


async def test_a_chunk_may_be_cut_inside_a_character_and_before_a_blank() -> None:
    text = "é€🎲  " * 20 + "   end"
    told = result(text, 0.5, finished=True)
    # Every byte of the stream comes by itself: no cut is left out.
    stranger = Stranger(told, cuts=list(range(1, 200)))
    async with stranger.running() as url:
        shown, reward, over, *_ = await played(url)
    assert [message.text for message in shown] == [text]
    assert (reward, over) == (0.5, True)


async def test_a_broken_stream_is_asked_for_again_and_the_call_is_made_once() -> None:
    stranger = Stranger(result("dug", 1.0, finished=True), breaks=2)
    async with stranger.running() as url:
        _, reward, *_ = await played(url)
    assert (reward, stranger.made) == (1.0, 1)


async def test_no_reward_in_a_whole_episode_is_a_failure_and_not_a_zero() -> None:
    stranger = Stranger(result("dug", None, finished=True))
    async with stranger.running() as url:
        with pytest.raises(RewardUnavailable, match="no call of it had a reward"):
            await played(url)
    stranger = Stranger(result("dug", None, finished=False))
    async with stranger.running() as url:
        assert (await played(url))[1:3] == (0.0, False)
    for nonsense in ('{"ok":true,"output":', '{"ok":true,"output":[]}', '{"ok":true,"output":1}'):
        async with Stranger(nonsense).running() as url:
            with pytest.raises(RewardUnavailable, match="cannot be read"):
                await played(url)


async def test_splits_and_environments_that_are_not_there_are_named() -> None:
    async with Stranger("").running() as url:
        assert (await asyncio.to_thread(OrsClient(url).tasks, "train")).size == 3
        with pytest.raises(UnknownTask, match="has no split 'test'; there are train"):
            await asyncio.to_thread(OrsClient(url).tasks, "test")
        with pytest.raises(ConfigError, match="no environment 'Maze', but Cave"):
            await asyncio.to_thread(OrsClient(url, environment="Maze").tasks, "train")
    for address in ("127.0.0.1:80", "http://[::1"):
        with pytest.raises(ConfigError, match="name the server's address"):
            OrsClient(address)


async def test_splits_that_were_read_in_part_are_read_again() -> None:
    asked: list[str] = []

    async def counted(request: web.Request) -> web.Response:
        asked.append((await request.json())["split"])
        return web.json_response({"num_tasks": 3}, status=503 if len(asked) == 2 else 200)

    async def named(request: web.Request) -> web.Response:
        splits = [{"name": "prod", "type": "train"}, {"name": "held", "type": "test"}]
        return web.json_response(["Cave"] if request.path == "/list_environments" else splits)

    app = web.Application()
    app.router.add_get("/{path:.*}", named)
    app.router.add_post("/Cave/num_tasks", counted)
    async with TestServer(app) as server:
        env = OrsClient(f"http://127.0.0.1:{server.port}")
        with pytest.raises(RewardUnavailable, match="503"):
            await asyncio.to_thread(env.tasks, "test")
        assert (await asyncio.to_thread(env.tasks, "test")).size == 3
