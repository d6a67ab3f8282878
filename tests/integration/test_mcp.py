"""MCP both ways with the real SDK: its servers as our tools, our environments as its servers."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra 'mcp'")

from mcp import Client, StdioServerParameters

from ludus.agent import ScriptedPolicy, Stop, play
from ludus.cli.main import main
from ludus.envs import AddedTools, EnvSession, Tool, build_env, make
from ludus.envs.tools import ToolFault
from ludus.envs.tools.mcp_client import McpServer
from ludus.errors import ConfigError, ServerUnreachable
from ludus.messages import ToolCall, as_messages, assistant

pytestmark = pytest.mark.slow

SERVER = '''
import asyncio, os, sys, time
from typing import Annotated
from mcp.server import MCPServer
from pydantic import Field

server = MCPServer("odd", log_level="CRITICAL")

@server.tool()
def add(a: Annotated[int, Field(description="the first")], b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)

@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return text

@server.tool()
def fail() -> str:
    """Refuse."""
    raise ValueError("not today")

@server.tool()
def pid() -> str:
    """Who is it."""
    return str(os.getpid())

meeting = asyncio.Barrier(8)

@server.tool()
async def meet() -> str:
    """Wait for seven others."""
    await meeting.wait()
    return "met"

@server.tool()
async def wait(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "waited"

@server.tool()
async def freeze() -> str:
    """Hang, and everything with it."""
    time.sleep(3600)

@server.tool()
def flood() -> str:
    """Say ten megabytes."""
    return "x" * 10_000_000

if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run()
'''


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return file


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def http_server(script: Path) -> Generator[tuple[str, "subprocess.Popen[bytes]"]]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(script), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.wait(60)


async def opened(server: McpServer, *, within_s: float = 30.0) -> dict[str, Tool]:
    """The tools of a server that may still be starting."""
    ends = time.monotonic() + within_s
    while True:
        try:
            return {tool.spec.name: tool for tool in await server.tools()}
        except ServerUnreachable:
            if time.monotonic() > ends:
                raise
            await asyncio.sleep(0.1)


@pytest.fixture(params=["stdio", "http"])
async def server(request: pytest.FixtureRequest, script: Path) -> AsyncIterator[McpServer]:
    if request.param == "stdio":
        async with McpServer([sys.executable, str(script)], timeout_s=20) as made:
            yield made
        return
    with http_server(script) as (url, _):
        async with McpServer(url, timeout_s=20) as made:
            yield made


async def test_tools_of_a_server_have_its_schemas_and_answer(server: McpServer) -> None:
    tools = await opened(server)
    assert list(tools) == ["add", "echo", "fail", "pid", "meet", "wait", "freeze", "flood"]
    spec = tools["add"].spec
    assert spec.description == "Add two numbers."
    assert spec.parameters["properties"]["a"]["description"] == "the first"
    assert spec.parameters["required"] == ["a"]
    assert (await tools["add"].call({"a": 2, "b": 3})).content == "5"
    assert (await tools["echo"].call({"text": "é 数 \n\x00 <b>"})).content == "é 数 \n\x00 <b>"


async def test_what_a_server_refuses_is_told_to_the_policy(server: McpServer) -> None:
    tools = await opened(server)
    wrong, failed = await tools["add"].call({"a": "x"}), await tools["fail"].call({})
    assert (wrong.fault, failed.fault) == (ToolFault.REFUSED, ToolFault.REFUSED)
    assert "valid integer" in wrong.content
    assert "fail" in failed.content


async def test_ten_megabytes_of_a_server_are_bounded(server: McpServer) -> None:
    result = await (await opened(server))["flood"].call({})
    assert not result.error
    assert 60_000 < len(result.content) < 70_000


async def test_a_megabyte_is_not_even_sent(server: McpServer) -> None:
    result = await (await opened(server))["echo"].call({"text": "x" * 1_000_000})
    assert result.fault is ToolFault.INVALID


async def test_calls_run_at_the_same_time(server: McpServer) -> None:
    tools = await opened(server)
    results = await asyncio.gather(*[tools["meet"].call({}) for _ in range(8)])
    assert [result.content for result in results] == ["met"] * 8


async def test_kill_9_in_the_middle_of_a_call_costs_that_call_and_no_more(script: Path) -> None:
    async with McpServer([sys.executable, str(script)], timeout_s=20) as server:
        tools = await opened(server)
        first = int((await tools["pid"].call({})).content)
        waiting = asyncio.create_task(tools["wait"].call({"seconds": 15.0}))
        await asyncio.sleep(0.3)
        os.kill(first, signal.SIGKILL)
        result = await waiting
        assert result.fault is ToolFault.CRASHED
        assert "went away in the middle of the call" in result.content
        again = await tools["pid"].call({})
        assert not again.error
        assert int(again.content) != first


async def test_kill_9_of_a_server_over_http_is_told_and_then_ends_the_episode(script: Path) -> None:
    with http_server(script) as (url, process):
        async with McpServer(url, timeout_s=20) as server:
            tools = await opened(server)
            waiting = asyncio.create_task(tools["wait"].call({"seconds": 15.0}))
            await asyncio.sleep(0.3)
            process.kill()
            assert (await waiting).fault is ToolFault.CRASHED
            with pytest.raises(ServerUnreachable):
                await tools["add"].call({"a": 1})


async def test_a_server_that_hangs_is_given_up_and_started_again(script: Path) -> None:
    async with McpServer([sys.executable, str(script)], timeout_s=2) as server:
        tools = await opened(server)
        first = (await tools["pid"].call({})).content
        late = await tools["freeze"].call({})
        assert (late.fault, late.content) == (ToolFault.TIMEOUT, "freeze: no answer within 2 s")
        ends = time.monotonic() + 60
        while (again := await tools["pid"].call({})).error and time.monotonic() < ends:
            assert again.fault is ToolFault.TIMEOUT
        assert not again.error
        assert again.content != first


async def test_a_server_that_starts_slower_than_a_call_may_take_comes_up(script: Path) -> None:
    sleepy = f"import time; time.sleep(4); exec(open({str(script)!r}).read())"
    async with McpServer([sys.executable, "-c", sleepy], timeout_s=1) as server:
        tools = await opened(server)
        assert (await tools["freeze"].call({})).fault is ToolFault.TIMEOUT
        ends = time.monotonic() + 60
        while (again := await tools["pid"].call({})).error and time.monotonic() < ends:
            assert again.fault is ToolFault.TIMEOUT
        assert not again.error


async def test_a_server_may_be_closed_while_it_starts() -> None:
    async with McpServer([sys.executable, "-c", "import time; time.sleep(600)"]) as server:
        asking = asyncio.create_task(server.tools())
        await asyncio.sleep(0.5)
        async with asyncio.timeout(60):
            await server.close()
        with pytest.raises((ServerUnreachable, asyncio.CancelledError)):
            await asking


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["no-such-command-anywhere"], "FileNotFoundError"),
        ([sys.executable, "-c", "import sys; sys.exit('no key given')"], "it said: no key given"),
        ([sys.executable, "-c", "print('hello')"], "Connection closed"),
        ("http://127.0.0.1:9/mcp", "http://127.0.0.1:9/mcp"),
    ],
)
async def test_a_server_that_does_not_start_says_why(command: Any, said: str) -> None:
    async with McpServer(command) as server:
        with pytest.raises(ServerUnreachable, match=re.escape(said)):
            await server.tools()


@pytest.mark.parametrize("command", ["", [], '"unclosed'])
def test_what_is_no_server_is_refused(command: Any) -> None:
    with pytest.raises(ConfigError):
        McpServer(command)


def calling(*calls: ToolCall) -> ScriptedPolicy:
    left = list(calls)
    return ScriptedPolicy(lambda _: assistant("", [left.pop(0)]) if left else "done")


async def test_an_episode_is_played_with_the_tools_of_a_server(script: Path) -> None:
    async with McpServer([sys.executable, str(script)], prefix="odd_") as server:
        env = AddedTools(build_env("ludus/arithmetic-v0"), await server.tools())
        policy = calling(
            ToolCall(name="odd_add", arguments={"a": 2}, id="1"),
            ToolCall(name="calculator", arguments={"expression": "6*7"}, id="2"),
        )
        made = (await play(EnvSession(env), policy)).trajectories[0]
        shown = [turn.observation[-1].text for turn in made.turns[1:]]
        assert shown == ["3", "42"]
        assert made.stop is Stop.TERMINATED
        await server.close()
        gym = make(AddedTools(build_env("ludus/arithmetic-v0"), await server.tools()))
        gym.reset(seed=0)
        call = ToolCall(name="odd_add", arguments={"a": 4}, id="1")
        (told,) = as_messages(gym.step(assistant("", [call]))[0])
        assert told.text == "5"
        gym.close()


async def test_an_episode_whose_server_cannot_be_had_counts_for_nothing(script: Path) -> None:
    with http_server(script) as (url, process):
        async with McpServer(url) as server:
            tools = await opened(server)
            process.kill()
            process.wait(60)
            env = AddedTools(build_env("ludus/arithmetic-v0"), list(tools.values()))
            lost = [ToolCall(name="add", arguments={"a": 1}, id="1")] * 2
            made = (await play(EnvSession(env), calling(*lost))).trajectories[0]
    assert made.stop is Stop.ENV_ERROR
    assert made.exclude_from_loss
    assert made.verdict.reward is None


def test_eval_takes_mcp_servers(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = f"{sys.executable} {script}"
    assert main(["eval", "ludus/arithmetic-v0", "--mcp", server, "--tasks", "2", "--json"]) == 0
    assert '"value":1.0' in capsys.readouterr().out


# --- our environments as servers ----------------------------------------------------------------

NOISY = '''
import time
import ludus

@ludus.register("me/noisy-v0")
class Noisy(ludus.TextEnv):
    """Print, hang or answer."""

    def reset(self, *, seed=None, options=None):
        print("this must not go to the client", flush=True)
        return "begin", {}

    def step(self, action):
        print("nor this", flush=True)
        if action == "hang":
            time.sleep(3600)
        if action == "crash":
            raise KeyError("bug")
        return "heard " + action, 0.5, action == "end", False, {}
'''


def our_command(*arguments: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["-m", "ludus", *arguments])


@pytest.fixture
def our_http() -> Iterator[Callable[..., str]]:
    """Starts `ludus mcp ... --http`; gives its address."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> str:
        command = [sys.executable, "-m", "ludus", "mcp", *arguments, "--http", "--port", "0"]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | environment
        )
        started.append(process)
        assert process.stderr is not None
        return process.stderr.readline().split()[-1]

    yield start
    for process in started:
        process.terminate()
        assert process.wait(60) == 0
        assert process.stderr is not None
        process.stderr.close()


async def play_arithmetic(client: Client) -> None:
    """One episode to reward 1, and every mistake a client can make."""
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(listed) == ["begin_episode", "calculator", "say", "end_episode"]
    assert set(listed["calculator"].input_schema["properties"]) == {"expression", "episode"}

    none = await client.call_tool("say", {"text": "4"})
    assert (none.is_error, "none is open" in str(none.content[0])) == (True, True)
    wrong = await client.call_tool("begin_episode", {"task": "test/x", "split": "test"})
    assert (wrong.is_error, "no task named" in str(wrong.content[0])) == (True, True)

    begun = await client.call_tool("begin_episode", {"task": "test/3"})
    assert begun.structured_content is not None
    episode = begun.structured_content["episode"]
    shown = str(getattr(begun.content[0], "text", ""))
    expression = shown.split("\n\n")[2]
    assert f"[episode {episode}, task test/3, at most 6 turns]" in shown
    second = await client.call_tool("begin_episode", {"seed": 5})
    assert second.structured_content is not None
    which = await client.call_tool("calculator", {"expression": "1"})
    assert (which.is_error, "2 episodes are open" in str(which.content[0])) == (True, True)

    bad = await client.call_tool("calculator", {"x": 1, "episode": episode})
    assert (bad.is_error, "invalid arguments" in str(bad.content[0])) == (True, True)
    unknown = await client.call_tool("divine", {"episode": episode})
    assert (unknown.is_error, "no tool named" in str(unknown.content[0])) == (True, True)
    worked = await client.call_tool("calculator", {"expression": expression, "episode": episode})
    answer = str(getattr(worked.content[0], "text", ""))
    over = await client.call_tool("say", {"text": answer, "episode": episode})
    assert over.structured_content is not None
    assert (over.structured_content["reward"], over.structured_content["terminated"]) == (1.0, True)
    assert "[the episode is over; reward 1]" in str(over.content[0])
    late = await client.call_tool("say", {"text": "4", "episode": episode})
    assert (late.is_error, "over" in str(late.content[0])) == (True, True)
    ended = await client.call_tool("end_episode", {"episode": second.structured_content["episode"]})
    assert not ended.is_error


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_plays_over_stdio(mode: str) -> None:
    async with Client(our_command("mcp", "ludus/arithmetic-v0"), mode=mode) as client:
        await play_arithmetic(client)


async def test_clients_play_over_http(our_http: Callable[..., str]) -> None:
    url = our_http("ludus/arithmetic-v0")
    for mode in ("auto", "legacy"):
        async with Client(url, mode=mode) as client:
            await play_arithmetic(client)


async def test_what_an_environment_prints_bugs_and_hangs_do_not_break_the_connection(
    tmp_path: Path,
) -> None:
    file = tmp_path / "noisy.py"
    file.write_text(NOISY)
    command = our_command("--import", str(file), "mcp", "me/noisy-v0", "--step-timeout-s", "1")
    async with Client(command) as client:
        await client.call_tool("begin_episode", {})
        heard = await client.call_tool("say", {"text": "hello"})
        assert getattr(heard.content[0], "text", "") == "heard hello"
        for text, said in [("crash", "no result"), ("hang", "did not answer within 1 s")]:
            failed = await client.call_tool("say", {"text": text})
            assert failed.is_error
            assert said in str(failed.content[0])
            await client.call_tool("begin_episode", {})
        over = await client.call_tool("say", {"text": "end"})
        assert over.structured_content is not None
        assert over.structured_content["return"] == 0.5


async def test_over_http_the_token_is_asked_for(our_http: Callable[..., str]) -> None:
    url = our_http("ludus/arithmetic-v0", LUDUS_TOKEN="secret")
    async with McpServer(url) as stranger:
        with pytest.raises(ServerUnreachable):
            await stranger.tools()
    async with McpServer(url, headers={"Authorization": "Bearer secret"}) as friend:
        assert len(await friend.tools()) == 4


def test_off_loopback_a_token_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "ludus/arithmetic-v0", "--http", "--host", "0.0.0.0"]) == 2
    assert "not loopback: set LUDUS_TOKEN" in capsys.readouterr().err
    late = ["--http", "--host", "127.0.0.9", "--max-episodes", "0"]
    assert main(["mcp", "ludus/arithmetic-v0", *late]) == 2
    assert "--max-episodes" in capsys.readouterr().err  # and nothing of the host


def test_an_address_without_http_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "ludus/arithmetic-v0", "--port", "9000", "--token", "k"]) == 2
    assert "--port and --token would change nothing over stdio" in capsys.readouterr().err


async def test_our_server_is_played_through_our_client() -> None:
    command = [sys.executable, "-m", "ludus", "mcp", "ludus/ledger-v0"]
    async with McpServer(command) as server:
        tools = await opened(server)
        assert list(tools) == ["begin_episode", "call_tool", "say", "end_episode"]
        assert "go" in (await tools["begin_episode"].call({"seed": 3})).content
        assert len((await tools["say"].call({"text": "n"})).content) == 2  # a write, such as b4
