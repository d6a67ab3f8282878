"""An agent's program in a sandbox reaches the gateway and nothing else of this machine. The control
is the same program without a sandbox.
"""

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ludus.agent import Sampling, Stop
from ludus.agent.gateway import AgentCommand, AgentLimits, AgentMaker, AgentSandbox, AgentTask
from ludus.agent.gateway.programs import SandboxedCommand
from ludus.agent.rows import TokenWriter
from ludus.envs import make_async
from ludus.errors import ConfigError
from ludus.messages import user
from tests.unit.agent.gateway_engine import LoggedEngine, chat_format

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
]

AGENT = """
import json, os, sys, time, urllib.request

port, secret, deed = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def reached(url, body=None):
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(url, body, headers)
    try:
        return urllib.request.urlopen(request, timeout=20).status
    except OSError as error:
        return getattr(error, "code", None)

with open(os.environ["LUDUS_TASK"]) as file:
    task = json.load(file)
messages = [{"role": "user", "content": task["messages"][-1]["content"]}]
body = json.dumps({"messages": messages}).encode()
way = os.environ["OPENAI_BASE_URL"]
try:
    read = open(secret + "/secret").read()
except OSError:
    read = None
answer = {
    "gateway": reached(way + "/chat/completions", body),
    "host": reached(f"http://127.0.0.1:{port}/"),
    "proxied": reached(way.removesuffix("/v1") + f"/http://127.0.0.1:{port}/"),
    "file": read,
    "variable": os.environ.get("PRIVATE_NOTE"),
    "folder": os.path.exists("/home"),
}
if deed == "crash":
    raise RuntimeError("the agent breaks")
if deed == "hang":
    time.sleep(600)
with open(os.environ["LUDUS_ANSWER"], "w") as file:
    json.dump(answer, file)
"""


@asynccontextmanager
async def neighbour() -> AsyncGenerator[tuple[int, list[str]]]:
    """A server of this machine that is none of an agent's business, and who came."""
    visits: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        visits.append(request.path)
        return web.Response(text="hello")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1], visits
    finally:
        await runner.cleanup()


def maker(command: str, tier: str, timeout_s: float = 60, **variables: str) -> AgentMaker:
    engine = LoggedEngine(chat_format())
    return AgentMaker(
        AgentCommand(command, variables),
        TokenWriter(engine.chat, engine, Sampling(max_tokens=20)),
        AgentLimits(timeout_s=timeout_s),
        sandbox=AgentSandbox(tier=tier),
        agents=2,
    )


async def answer_of(agents: AgentMaker) -> dict[str, Any]:
    rollout = agents.gateway.open()
    url = agents.gateway.url
    task = AgentTask(
        base_url=f"{url}/v1", anthropic_url=url, key=rollout.key, task="t", messages=[user("hi")]
    )
    answer = agents.agent(task)
    assert not isinstance(answer, str)
    read: dict[str, Any] = json.loads(str(await answer))  # type: ignore[misc]
    assert rollout.counts["calls"] == 1
    return read


@pytest.mark.parametrize("tier", ["slots-root", pytest.param("docker", marks=pytest.mark.docker)])
async def test_a_program_in_a_sandbox_reaches_the_gateway_and_nothing_else(
    tier: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tier == "docker":
        request.getfixturevalue("docker_host")
    monkeypatch.setenv("PRIVATE_NOTE", "a note")
    agent, secret = tmp_path / "agent.py", tmp_path / "secret"
    agent.write_text(AGENT)
    secret.write_text("a secret")
    async with neighbour() as (port, visits):
        command = f"{sys.executable} {agent} {port} {tmp_path} look"
        async with maker(command, "") as agents:
            free = await answer_of(agents)
        assert free["gateway"] == free["host"] == 200
        assert [free["file"], free["variable"]] == ["a secret", "a note"]
        assert visits == ["/"]
        async with maker(command, tier) as agents:
            jailed = await answer_of(agents)
        assert jailed == {
            "gateway": 200,
            "host": None,
            "proxied": 404,
            "file": None,
            "variable": None,
            "folder": False,
        }
        assert visits == ["/"]


@pytest.mark.parametrize(
    ("deed", "stop"), [("crash", Stop.AGENT_FAILED), ("hang", Stop.AGENT_TIMEOUT)]
)
async def test_a_program_that_fails_in_a_sandbox_is_judged(
    deed: str, stop: Stop, tmp_path: Path
) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    env = make_async("ludus/arithmetic-v0")
    _, info = await env.reset(seed=1)
    command = f"{sys.executable} {agent} 1 {tmp_path} {deed}"
    async with maker(command, "slots-root", timeout_s=3) as agents:
        episode = await agents.make(env, task=info["task"], split="train", seed=1, sampling_seed=1)
    (trajectory,) = episode.trajectories
    assert trajectory.stop is stop
    assert trajectory.verdict.reward is not None  # the policy's last words were judged
    assert not trajectory.exclude_from_loss


async def test_a_function_cannot_be_put_into_a_sandbox() -> None:
    agents = maker("true", "slots-root")
    agents.agent = str
    with pytest.raises(ConfigError, match="give the agent as a command"):
        async with agents:
            pass


async def test_a_program_in_a_sandbox_has_the_variables_of_its_command() -> None:
    command = "sh -c 'printf %s \"$GREETING\"'"
    async with maker(command, "slots-root", GREETING="a word = two") as agents:
        task = AgentTask(base_url="", anthropic_url="", key="k", task="t", messages=[user("hi")])
        assert isinstance(agents.agent, SandboxedCommand)
        assert await agents.agent(task) == "a word = two"
