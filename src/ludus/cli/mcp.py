"""`ludus mcp`: serve an environment as an MCP server, over stdio or HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import tyro

from ludus.envs.serving.mcp_server import LIMITS, McpEnv
from ludus.errors import ConfigError
from ludus.secret import NO_SECRET
from ludus.wire.address import is_loopback
from ludus.wire.server import DEFAULT_PORT, HttpServer

from .arguments import Flag, Token, VerbHelp, parse
from .sessions import named
from .signals import listening

PATH = "/mcp"
MAX_BODY_BYTES = 4 << 20
"""The most bytes of a client's message, as in the MCP SDK."""


@dataclass(frozen=True, kw_only=True)
class McpOptions:
    """The options of `ludus mcp`: the environment, the address, and the bounds."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """The environment's id; constructor arguments as in 'ludus/arithmetic-v0?max_operations=2'."""
    http: Flag = False
    """Serve streamable HTTP; without it the client starts this command and speaks over stdio."""
    host: str = "127.0.0.1"
    """The address to bind, with --http. Off loopback a token is required."""
    port: int = DEFAULT_PORT
    """The port to bind, with --http; 0 picks a free one."""
    token: Token = NO_SECRET
    """The bearer token that clients must send, with --http; best given as LUDUS_TOKEN or env:NAME,
    which `ps` does not show.
    """
    max_episodes: int = LIMITS.max_sessions
    """The most episodes open at the same time."""
    step_timeout_s: float = LIMITS.step_timeout_s
    """Seconds that the beginning of an episode or a tool call may take."""
    lease_s: float = LIMITS.lease_s
    """Seconds after which an episode that nobody plays is released."""


def main(arguments: Sequence[str]) -> int:
    """Serve until the client goes, or until SIGINT or SIGTERM; returns 0."""
    options = parse(
        McpOptions,
        arguments,
        VerbHelp(
            verb="mcp",
            about="Serve an environment to MCP clients: begin_episode, its tools, say.",
            example="ludus mcp ludus/arithmetic-v0",
        ),
    )
    refuse_unheard(options)
    token = options.token.reveal() or os.environ.get("LUDUS_TOKEN", "")
    if options.http and not is_loopback(options.host) and not token:
        raise ConfigError(
            f"--host {options.host} is not loopback: set LUDUS_TOKEN to what clients must send"
        )
    if not 0 <= options.port <= 65535:
        raise ConfigError(f"ports are 0 to 65535, got {options.port}")
    if options.max_episodes < 1 or not options.step_timeout_s > 0 or not options.lease_s > 0:
        raise ConfigError("--max-episodes, --step-timeout-s and --lease-s must be more than 0")
    limits = msgspec.structs.replace(
        LIMITS,
        max_sessions=options.max_episodes,
        step_timeout_s=options.step_timeout_s,
        lease_s=options.lease_s,
    )
    env = McpEnv(named(options.env, ""), limits=limits)
    asyncio.run(_serve(env, options))
    return 0


def refuse_unheard(options: McpOptions) -> None:
    """Refuse an address or a token for a server that speaks over stdio.

    Raises:
        ConfigError: the message names the options.
    """
    address = {"--host": options.host != McpOptions.host, "--port": options.port != DEFAULT_PORT}
    unheard = [name for name, given in {**address, "--token": bool(options.token)}.items() if given]
    if unheard and not options.http:
        raise ConfigError(
            f"{' and '.join(unheard)} would change nothing over stdio; add --http, or leave "
            f"{'them' if unheard[1:] else 'it'} out"
        )


async def _serve(env: McpEnv, options: McpOptions) -> None:
    from mcp.server.stdio import stdio_server

    await env.start()
    try:
        if options.http:
            await _over_http(env, options)
        else:
            server = env.server()
            async with stdio_server() as (read, write):
                await server.run(read, write, server.create_initialization_options())
    finally:
        await env.stop()


async def _over_http(env: McpEnv, options: McpOptions) -> None:
    app = env.server().streamable_http_app(streamable_http_path=PATH, host=options.host)
    server = HttpServer(
        [],
        host=options.host,
        port=options.port,
        token=options.token or os.environ.get("LUDUS_TOKEN", ""),
        max_body_bytes=MAX_BODY_BYTES,
        mounted={PATH: app},
    )
    async with (
        app.router.lifespan_context(app),
        listening(server, options.host, options.port) as stop,
    ):
        print(f"serving {env.id} at {server.url}{PATH}", file=sys.stderr, flush=True)
        await stop.wait()
