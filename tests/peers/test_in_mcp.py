"""Clients of both eras of the MCP SDK, and a server of the older, in an interpreter of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.envs.tools.mcp_client import McpServer

from . import games

pytest.importorskip("mcp", reason="needs the extra 'mcp'")
from mcp import Client, StdioServerParameters

OLD = os.environ.get("LUDUS_OLD_MCP_PYTHON", "")
pytestmark = pytest.mark.skipif(not OLD, reason="scripts/peers_in.sh makes the interpreter")
SERVER = '''
from mcp.server.fastmcp import FastMCP
server = FastMCP("old")

@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)

server.run("stdio")
'''
CLIENT = """
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        episodes = []
        for calls in json.load(sys.stdin):
            results = [await session.call_tool(name, arguments) for name, arguments in calls]
            shown = [result.content[0].text for result in results]
            episodes.append([shown, [one.structuredContent for one in results]])
        tools = [tool.name for tool in (await session.list_tools()).tools]
        print(json.dumps([tools, episodes]))

asyncio.run(main())
"""
COMMAND = [
    *(str(Path(sys.executable).with_name("ludus")), "--import", str(Path(games.__file__))),
    *("mcp", "peers/sums-v0"),
]


async def test_a_server_of_the_older_sdk_gives_its_tools(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    async with McpServer([OLD, str(file)]) as server:
        (tool,) = await server.tools()
        assert (tool.spec.name, (await tool.call({"a": 1, "b": 2})).content) == ("add", "3")


def calls_of(script: games.Script) -> list[tuple[str, dict[str, Any]]]:
    """The calls that a client makes for an episode."""
    add = [("add", {"first": 1, "second": 2})] if script.calls else []
    return [("begin_episode", {"task": script.task}), *add, ("say", {"text": script.said})]


async def played_by_the_newer_sdk(asked: list[Any]) -> tuple[list[str], list[Any]]:
    """The tools that the client is shown, and the texts and facts of each episode's results."""
    server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])
    episodes = []
    async with Client(server) as client:
        for calls in asked:
            results = [await client.call_tool(name, arguments) for name, arguments in calls]
            shown = [str(getattr(result.content[0], "text", "")) for result in results]
            episodes.append([shown, [result.structured_content for result in results]])
        tools = [tool.name for tool in (await client.list_tools()).tools]
    return tools, episodes


async def played_by_the_older_sdk(asked: list[Any], file: Path) -> tuple[list[str], list[Any]]:
    file.write_text(CLIENT)
    ran = await asyncio.to_thread(
        subprocess.run, [OLD, str(file), *COMMAND], input=json.dumps(asked),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    tools, episodes = json.loads(ran.stdout)
    return tools, episodes


@pytest.mark.parametrize("era", ["older", "newer"])
async def test_a_hundred_episodes_have_the_rewards_of_direct_play(era: str, tmp_path: Path) -> None:
    scripts = games.scripts()
    asked = [calls_of(script) for script in scripts]
    if era == "older":
        tools, episodes = await played_by_the_older_sdk(asked, tmp_path / "client.py")
    else:
        tools, episodes = await played_by_the_newer_sdk(asked)
    assert tools == ["begin_episode", "add", "submit", "say", "end_episode"]
    for script, (shown, facts) in zip(scripts, episodes, strict=True):
        assert script.question in shown[0]
        assert facts[-1]["terminated"]
        assert sum(told["reward"] for told in facts[1:]) == script.reward
