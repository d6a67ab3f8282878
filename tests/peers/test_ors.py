"""`ors-sdk` and `openreward`, unmodified, play ludus environments, and ludus plays theirs."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import ludus
from ludus.envs.outside.servers.ors import OrsClient
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.integrations.ors import OrsService
from ludus.messages import ToolCall, assistant
from ludus.wire.server import BackgroundServer, HttpServer

from . import games

ors: Any = pytest.importorskip("ors", reason="make test-peers installs ors-sdk")
openreward: Any = pytest.importorskip("openreward")
uvicorn: Any = pytest.importorskip("uvicorn")
sse: Any = pytest.importorskip("sse_starlette.sse")
from openreward.environments import Server as RewardServer  # noqa: E402
from ors.client import ORS  # noqa: E402
from pydantic import BaseModel  # noqa: E402


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    service = EnvService([ServedEnv("peers/sums-v0", factory=games.Sums)])
    with BackgroundServer(HttpServer([service, OrsService(service)])) as address:
        yield address


def texts(blocks: Any) -> str:
    return "\n".join(block.text for block in blocks)


def equals_direct_play(environment: Any) -> None:
    """A hundred episodes by an official client have the rewards of direct play."""
    for index, script in enumerate(games.scripts()):
        with environment.session(split="train", index=index) as session:
            assert script.question in texts(session.get_prompt())
            if script.calls:
                called = session.call_tool("add", {"first": 1, "second": 2})
                assert (texts(called.blocks), called.reward) == ("3", None)
            ended = session.call_tool("say", {"text": script.said})
            assert (ended.reward, ended.finished) == (script.reward, True)


def test_the_sdks_client_gets_the_rewards_of_ludus(url: str) -> None:
    client = ORS(base_url=url)
    environment = client.environments.get("peers-sums-v0")
    assert environment.list_splits() == ["train", "validation", "test"]
    assert environment.num_tasks("train") == 10_000
    assert environment.get_task("test", 2).task_spec == {"id": "test/2", "split": "test"}
    assert len(environment.get_task_range("train", 5, 8)) == 3
    assert {"add", "submit", "say"} <= {tool.name for tool in environment.list_tools()}
    equals_direct_play(environment)


def client_of_openreward(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    # Of a base_url it talks to a subdomain; these two name the server itself.
    monkeypatch.setenv("OPENREWARD_SESSION_URL", url)
    monkeypatch.setenv("OPENREWARD_API_URL", url)
    monkeypatch.setenv("OPENREWARD_API_KEY", "any")
    return openreward.OpenReward().environments.get(name, base_url=url)


def test_openrewards_client_plays_too(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = client_of_openreward(url, "peers-sums-v0", monkeypatch)
    assert environment.list_splits() == ["train", "validation", "test"]
    assert environment.get_task("train", 4).task_spec["id"] == "train/4"
    equals_direct_play(environment)
    with environment.session(split="train", index=1) as session:
        messages = session.get_messages()
        assert [message.role for message in messages] == ["system", "user"]
        with pytest.raises(Exception, match="no tool 'gold'"):
            session.call_tool("gold", {})
        with pytest.raises(Exception, match="the judge is away"):
            session.call_tool("say", {"text": "break"})


class Guess(BaseModel):
    number: int


def cave(base: Any, output: Any, text_block: Any, tool: Any) -> Any:
    """An environment of theirs, by the classes of either package."""

    class Cave(base):  # type: ignore[misc]
        @classmethod
        def list_splits(cls) -> list[str]:
            return ["train", "test"]

        @classmethod
        def list_tasks(cls, split: str) -> list[dict[str, Any]]:
            return [{"number": n} for n in range(games.EPISODES if split == "train" else 2)]

        def get_prompt(self) -> list[Any]:
            return [text_block(text=f"Guess {self.task_spec['number']}.")]

        @tool
        def look(self, params: Guess) -> output:
            """Look around."""
            return output(blocks=[text_block(text="x " * 5000)])

        @tool
        def guess(self, params: Guess) -> output:
            """Guess the number."""
            worth = 1 / (1 + abs(params.number - self.task_spec["number"]))
            return output(blocks=[text_block(text="done")], reward=worth, finished=True)

    # Annotations of tools are read as types, and here they are names of this function.
    for method in (Cave.look, Cave.guess):
        method.__annotations__.update(params=Guess, **{"return": output})
    return Cave


@contextmanager
def running(server: Any) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = uvicorn.Config(server.app, host="127.0.0.1", port=port, log_level="error")
    web = uvicorn.Server(config)
    # The event of the last server of this process belongs to another loop.
    sse.AppStatus.should_exit_event = None
    thread = threading.Thread(target=web.run, daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while not web.started and time.monotonic() < until:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        web.should_exit = True
        thread.join(30)


@pytest.mark.parametrize("package", ["ors", "openreward"])
def test_ludus_plays_a_hundred_episodes_of_theirs_to_the_rewards_of_their_client(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if package == "ors":
        from ors import Environment, Server, TextBlock, ToolOutput, tool

        server = Server([cave(Environment, ToolOutput, TextBlock, tool)])
    else:
        from openreward.environments import Environment, TextBlock, ToolOutput, tool

        server = RewardServer([cave(Environment, ToolOutput, TextBlock, tool)])
    with running(server) as address:
        if package == "ors":
            owner = ORS(base_url=address)  # closes its loop when it is collected
            theirs = owner.environments.get("cave")
        else:
            theirs = client_of_openreward(address, "cave", monkeypatch)
        env: Any = ludus.make(f"ors/{address}")
        for index in range(games.EPISODES):
            guess = index + index % 7
            with theirs.session(split="train", index=index) as session:
                prompt = texts(session.get_prompt())
                session.call_tool("look", {"number": 1})
                wanted = session.call_tool("guess", {"number": guess})
            shown, _ = env.reset(options={"task": f"train/{index}"})
            assert f"Guess {index}." == prompt
            assert prompt in str(shown)
            looked = env.step(call("look", number=1))
            assert (looked[1], looked[2]) == (0.0, False)
            assert "x " * 5000 in looked[0][0].text
            assert env.step(call("guess", number=guess))[1:3] == (wanted.reward, wanted.finished)
            assert wanted.reward == 1 / (1 + index % 7)
        env.close()
        client = OrsClient(address)
        assert client.tasks("test").size == 2
        asyncio.run(client.close())


def call(name: str, **arguments: Any) -> Any:
    return assistant("", [ToolCall(name=name, arguments=arguments, id="c")])
