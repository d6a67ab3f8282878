"""Servers and clients of the older MCP SDK, in an interpreter of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.envs.tools.mcp_client import McpServer

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
import asyncio, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        begun = await session.call_tool("begin_episode", {"task": "train/3"})
        said = await session.call_tool("say", {"text": "nothing"})
        print(tools, begun.content[0].text, said.content[0].text, sep="|")

asyncio.run(main())
"""


async def test_a_server_of_the_older_sdk_gives_its_tools(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    async with McpServer([OLD, str(file)]) as server:
        (tool,) = await server.tools()
        assert (tool.spec.name, (await tool.call({"a": 1, "b": 2})).content) == ("add", "3")


def test_a_client_of_the_older_sdk_plays_an_environment(tmp_path: Path) -> None:
    file = tmp_path / "client.py"
    file.write_text(CLIENT)
    ludus = [str(Path(sys.executable).with_name("ludus")), "mcp", "ludus/arithmetic-v0"]
    ran = subprocess.run(
        [OLD, str(file), *ludus], capture_output=True, text=True, timeout=120, check=True
    )
    tools, begun, said = ran.stdout.split("|")
    assert "begin_episode" in tools
    assert "Work out the expression" in begun
    assert said.strip()
