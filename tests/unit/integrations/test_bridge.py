"""What the bridges to other projects carry: text, and nothing that a peer would not be shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import aiohttp
import msgspec
import pytest
from aiohttp import WSCloseCode, web
from aiohttp.test_utils import TestClient, TestServer

import ludus
from ludus.background import run_on_loop
from ludus.envs import Briefing, ToolSpec
from ludus.envs.serving.mcp_server import McpEnv
from ludus.envs.serving.server import EnvService
from ludus.errors import ConfigError
from ludus.integrations.bridge import EnvBridge, as_chat, spoken
from ludus.integrations.nemo_gym import NemoGymService
from ludus.integrations.openenv.playing import ListeningSocket
from ludus.integrations.openenv.service import OpenEnvService
from ludus.messages import ImagePart, Message, Role, TextPart, user
from ludus.verdict import Status
from ludus.wire.server import BackgroundServer, HttpServer

PICTURE = user([TextPart(text="What is it?"), ImagePart(data=b"x")])


@ludus.register("test/pictures-v0")
class Pictures(ludus.TextEnv):
    """Shows an image at the start, at later turns, or never."""

    never_blocks = True
    shows_images = True
    max_turns = 3
    reset_options: ClassVar[Mapping[str, type]] = {"when": str}

    def __init__(self, when: str = "never") -> None:
        self.when = when

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str | list[Message], dict[str, Any]]:
        self.when = (options or {}).get("when", self.when)
        return [PICTURE] if self.when == "first" else "Look.", {}

    def step(self, action: str) -> tuple[str | list[Message], float, bool, bool, dict[str, Any]]:
        shown: str | list[Message] = [PICTURE] if self.when == "later" else "Nothing."
        return shown, 0.5, action == "end", False, {}

    @ludus.tool
    def look(self) -> ludus.ToolResult:
        """Look closer."""
        images = [ImagePart(data=b"x")] if self.when == "later" else []
        return ludus.ToolResult(content="This.", images=images)


@pytest.fixture(scope="module")
def bridge() -> Iterator[EnvBridge]:
    with EnvBridge(Pictures) as bridge:
        yield bridge


def test_messages_become_one_text_and_a_chat() -> None:
    messages = [Message(role=Role.SYSTEM, content="Add."), user("2 + 2?"), user("")]
    assert spoken(messages) == "Add.\n\n2 + 2?"
    assert as_chat(messages[:1]) == [{"role": "system", "content": "Add."}]


def test_an_episode_without_images_has_its_reward(bridge: EnvBridge) -> None:
    episode = bridge.episode()
    assert spoken(run_on_loop(episode.begin(options={"when": "never"}))).endswith("Look.")
    assert run_on_loop(episode.call("look", {})) == "This."
    assert spoken(run_on_loop(episode.act("end"))) == "Nothing."
    assert episode.verdict.reward == 0.5
    run_on_loop(episode.close())


def test_an_episode_that_begins_with_an_image_is_refused_and_has_no_reward(
    bridge: EnvBridge,
) -> None:
    episode = bridge.episode()
    with pytest.raises(ConfigError, match=r"shows an image, .* play it with ludus train"):
        run_on_loop(episode.begin(options={"when": "first"}))
    assert (episode.over, episode.verdict.status) == (True, Status.ERROR)
    run_on_loop(episode.close())


@pytest.mark.parametrize("tool", [False, True])
def test_an_episode_that_shows_an_image_later_ends_without_a_reward(
    bridge: EnvBridge, tool: bool
) -> None:
    episode = bridge.episode()
    run_on_loop(episode.begin(options={"when": "later"}))
    if tool:
        assert "does not count" in run_on_loop(episode.call("look", {}))
    else:
        assert run_on_loop(episode.act("go on")) == []
    assert (episode.over, episode.verdict.reward) == (True, None)
    assert episode.verdict.status is Status.ERROR
    assert "shows an image" in episode.verdict.detail
    assert run_on_loop(episode.act("end")) == []
    assert episode.verdict.reward is None
    run_on_loop(episode.close())


def test_an_image_that_nobody_has_to_answer_takes_no_reward(bridge: EnvBridge) -> None:
    episode = bridge.episode()
    run_on_loop(episode.begin(options={"when": "later"}))
    assert spoken(run_on_loop(episode.act("end"))) == "What is it?"
    assert episode.verdict.reward == 0.5
    run_on_loop(episode.close())


@asynccontextmanager
async def served(when: str) -> AsyncGenerator[aiohttp.ClientSession]:
    """A server of `Pictures`, for the protocols of NeMo Gym and of OpenEnv."""
    envs = EnvService([f"test/pictures-v0?when={when}"])
    nemo_gym = NemoGymService(envs, model_url="http://127.0.0.1:1")
    server = HttpServer([envs, OpenEnvService(envs), nemo_gym])
    await server.start()
    try:
        # The server has a bare address for a host, whose cookies aiohttp keeps only if told so.
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(server.url, cookie_jar=jar) as client:
            yield client
    finally:
        await server.stop()


SAID: dict[str, Any] = {"response": {"output": [{"content": "end"}]}}


@pytest.mark.parametrize(("when", "reward"), [("never", 0.5), ("later", None)])
async def test_nemo_gym_has_no_reward_for_an_image_that_is_not_shown(
    when: str, reward: float | None
) -> None:
    async with served(when) as client:
        assert (await client.post("/seed_session", json={})).ok
        looked = await client.post("/look", json={})
        assert looked.ok is (reward is not None)
        told = await client.post("/verify", json=SAID)
        if reward is not None:
            assert (await told.json())["reward"] == reward
        else:
            for failed in (looked, told):
                assert failed.status == 500
                assert "shows an image" in await failed.text()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/aggregate_metrics", {"verify_responses": [{"reward": 1e308}] * 3}),
        ("/aggregate_metrics", {"verify_responses": [{"reward": 10**400}]}),
        ("/run", {"responses_create_params": {"input": 5}}),
        ("/run", {"responses_create_params": {"input": {"role": "user"}}}),
        ("/run", {"responses_create_params": []}),
    ],
)
async def test_nemo_gym_answers_a_mistake_of_the_client_as_one(path: str, body: Any) -> None:
    async with served("never") as client:
        answered = await client.post(path, json=body)
        assert (answered.status, "Refused: " in await answered.text()) == (422, True)


async def test_an_openenv_client_that_never_waits_for_answers_is_cut_off() -> None:
    asked: asyncio.Queue[str] = asyncio.Queue()
    over = asyncio.Event()

    async def play(request: web.Request) -> web.StreamResponse:
        socket = ListeningSocket(max_bytes=10_000, idle_s=60)
        async for question in socket.serve(request):
            asked.put_nowait(question)
            await over.wait()
        return socket.response

    app = web.Application()
    app.router.add_get("/ws", play)
    async with TestClient(TestServer(app)) as client, asyncio.timeout(20):
        line = await client.ws_connect("/ws")
        await line.send_str("begin")
        assert await asked.get() == "begin"
        for letter in "abc":  # two can wait
            await line.send_str(letter * 4000)
        assert (await line.receive()).data == WSCloseCode.POLICY_VIOLATION
        over.set()
        assert [await asked.get() for _ in range(2)] == ["a" * 4000, "b" * 4000]


async def test_nemo_gym_does_not_begin_with_an_image() -> None:
    async with served("first") as client:
        told = await client.post("/seed_session", json={})
        assert (told.status, "shows an image" in await told.text()) == (422, True)
        assert not (await client.post("/verify", json=SAID)).ok


async def test_openenv_carries_the_images() -> None:
    async with served("first") as client:
        shown = (await (await client.post("/reset", json={})).json())["observation"]
        assert shown["text"] == "What is it?"
        assert shown["messages"][0]["content"][1]["type"] == "image"


async def test_openenv_by_json_rpc_carries_text_alone() -> None:
    async def asked(client: aiohttp.ClientSession, method: str, **parameters: Any) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        return await (await client.post("/mcp", json=request)).json()

    answers: list[Any] = []
    for when in ("never", "later"):
        async with served(when) as client:
            session = (await asked(client, "openenv/session/create"))["result"]["session_id"]
            look = {"session_id": session, "name": "look", "arguments": {}}
            answers.append(await asked(client, "tools/call", **look))
    assert answers[0]["result"]["data"] == "This."
    assert "shows an image" in answers[1]["error"]["message"]


@pytest.mark.parametrize("when", ["never", "first", "later"])
async def test_mcp_clients_are_told_that_an_image_is_not_shown(when: str) -> None:
    pytest.importorskip("mcp", reason="needs the extra 'mcp'")
    env = McpEnv(f"test/pictures-v0?when={when}")
    await env.start()
    try:
        begun = await env.call("begin_episode", {})
        assert begun.is_error is (when == "first")
        looked = await env.call("look", {})
        assert looked.is_error is (when != "never")
        if when != "never":
            assert "shows an image" in (looked if when == "later" else begun).text
            ended = await env.call("say", {"text": "end"})
            assert (ended.is_error, ended.facts) == (True, {})
    finally:
        await env.stop()


@ludus.register("test/odd-tools-v0")
class OddTools(Pictures):
    """Declares tools whose names are patterns of paths, and one whose name is not."""

    def briefing(self) -> Briefing:
        names = ("a{b", "{tail}", "a/b", "look")
        tools = [ToolSpec(name=name, description="", parameters={}) for name in names]
        return msgspec.structs.replace(super().briefing(), tools=tools)


def test_a_tool_whose_name_is_no_part_of_a_path_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    envs = EnvService(["test/odd-tools-v0"])
    with BackgroundServer(HttpServer([envs, NemoGymService(envs)])):
        told = [record.getMessage() for record in caplog.records if "NeMo Gym" in record.msg]
    assert [name for name in ("a{b", "{tail}", "a/b", "look") if repr(name) in str(told)] == [
        "a{b", "{tail}", "a/b"
    ]  # fmt: skip
