"""Offers the tools of an MCP server (stdio or streamable HTTP) as tools of an environment.

    async with McpServer("python weather.py") as server:
        env = AddedTools(build_env("ludus/maths-v0"), await server.tools())

The connection lives on the background loop, so that the tools can be called from any loop. A server
that dies in the middle of a call costs that call: the policy is told, and the next call starts the
server again. A server that cannot be reached at all is not the policy's fault: the episode ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import logging
import os
import shlex
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self, TextIO

import msgspec

from ludus.background import on_background
from ludus.errors import ConfigError, MissingExtra, ServerUnreachable
from ludus.secret import without_credentials

from .function import Tool
from .spec import DEFAULT_TIMEOUT_S, ToolFault, ToolResult, ToolSpec

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams
    from mcp.types import CallToolResult

logger = logging.getLogger(__name__)

OLDEST_SDK = 2
"""The first major version of the SDK with `Client` and `MCPServer`."""
CONNECT_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 5.0
"""Seconds that a late server has to show that the server still answers."""
MAX_TOOLS = 1000
_TOLD_CHARS = 2000


def require_mcp(needed_for: str) -> None:
    """Check that the SDK is here, in a version that has both eras of the protocol.

    Raises:
        MissingExtra: it is not; the message names the extra.
    """
    if importlib.util.find_spec("mcp") is None:
        raise MissingExtra.of("mcp", needed_for=needed_for)
    here = version("mcp")
    if int(here.partition(".")[0]) < OLDEST_SDK:
        raise MissingExtra(
            f"{needed_for} needs mcp {OLDEST_SDK} or newer, which speaks to servers and clients of "
            f"both eras; {here} is installed: pip install --upgrade 'ludus-rl[mcp]'"
        )


class McpServer:
    """A connection to an MCP server, opened when first needed.

    Args:
        server: a command to start, as a line or in parts, or the address of a running server
            (`http://127.0.0.1:8000/mcp`).
        timeout_s: the time limit of a call, in seconds.
        environment: variables for the command, beside the few that are passed on (PATH, HOME).
        headers: headers of each HTTP request, such as `Authorization`.
        prefix: put before the names of the tools, to tell several servers apart.

    Raises:
        ConfigError: there is no command, or variables or headers are for the other kind of server.
        MissingExtra: the SDK is not installed.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        prefix: str = "",
    ) -> None:
        require_mcp("an MCP server")
        is_url = isinstance(server, str) and server.startswith(("http://", "https://"))
        self.command: list[str] = []
        if not is_url:
            try:
                self.command = shlex.split(server) if isinstance(server, str) else list(server)
            except ValueError as error:
                raise ConfigError(f"{server!r} is not a command: {error}") from None
            if not self.command:
                raise ConfigError(
                    "an MCP server is a command, or an address such as http://host:8000/mcp"
                )
        self.url = server if is_url and isinstance(server, str) else ""
        if (is_url and environment) or (headers and not is_url):
            raise ConfigError("environment is for commands, headers for addresses")
        self.timeout_s = timeout_s
        self.prefix = prefix
        self._environment = dict(environment or {})
        self._headers = dict(headers or {})
        self._link: _Link | None = None
        self._opening: asyncio.Task[_Link] | None = None
        """A running attempt to connect, which outlives the calls that wait for the connection."""
        self._probe: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The server's command or address, without credentials."""
        return without_credentials(self.url or shlex.join(self.command))

    async def tools(self) -> list[Tool]:
        """Return the server's tools, each with the schema that the server gives.

        Raises:
            ServerUnreachable: the server cannot be started or reached.
        """
        return [self._tool(spec) for spec in await on_background(self._specs())]

    async def close(self) -> None:
        """Close the connection, and end the process if this object started the server."""
        await on_background(self._end())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _tool(self, spec: ToolSpec) -> Tool:
        prefixed_spec = msgspec.structs.replace(spec, name=f"{self.prefix}{spec.name}")

        async def call(**arguments: Any) -> ToolResult:
            return await on_background(self._call(spec.name, arguments))

        return Tool.of_spec(prefixed_spec, call, timeout_s=self.timeout_s)

    async def _specs(self) -> list[ToolSpec]:
        link = await self._connected()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                specs: list[ToolSpec] = []
                cursor: str | None = None
                while len(specs) < MAX_TOOLS:
                    page = await link.client.list_tools(cursor=cursor, cache_mode="refresh")
                    specs += [
                        ToolSpec(
                            name=tool.name,
                            description=tool.description or tool.title or tool.name,
                            parameters=dict(tool.input_schema),
                        )
                        for tool in page.tools
                    ]
                    cursor = page.next_cursor
                    if not cursor:
                        break
                return specs
        except Exception as error:  # errors of the SDK, anyio and the HTTP client
            await self._drop()
            raise ServerUnreachable(f"{self.name} does not list its tools: {error}") from error

    async def _call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        from mcp import MCPError

        link = await self._connected()
        try:
            return as_result(await link.client.call_tool(name, arguments))
        except asyncio.CancelledError:  # the call was late: find out whether the server is alive
            # In a task of its own, since this call must end now.
            if self._probe is None or self._probe.done():
                self._probe = asyncio.create_task(self._examine(link))
            raise
        except MCPError as error:
            # An error of the protocol is a refusal, unless the connection is dead.
            from mcp.types import CONNECTION_CLOSED

            is_gone = getattr(error, "code", 0) == CONNECTION_CLOSED or not await link.is_alive()
            if is_gone:
                await self._drop(link)
            if not is_gone:
                return ToolResult.failed(ToolFault.REFUSED, f"{name}: {error}")
            reason = f"its server went away in the middle of the call ({error})"
        except Exception as error:  # errors of anyio and the HTTP client, or an unreadable result
            await self._drop(link)
            reason = f"its server failed ({type(error).__name__}: {error})"
        logger.warning("MCP server %s: %s: %s", self.name, name, reason)
        return ToolResult.failed(ToolFault.CRASHED, f"{name}: {reason}")

    async def _connected(self) -> _Link:
        """Return the connection; open a new connection if none is alive."""
        while self._probe is not None and not self._probe.done():
            await asyncio.wait({self._probe})  # has a timeout of its own
        if self._link is not None:
            return self._link
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_mark_retrieved)
        return await asyncio.shield(self._opening)  # a cancelled call must not cancel the attempt

    async def _open(self) -> _Link:
        try:
            self._link = await _Link.open(self)
            return self._link
        finally:
            self._opening = None

    async def _end(self) -> None:
        if self._opening is not None:
            opening = self._opening
            opening.cancel()
            await asyncio.wait({opening})  # has a timeout of its own
        await self._drop()

    async def _examine(self, link: _Link) -> None:
        """Drop a late server that shows no life; the next call starts the server again."""
        if not await link.is_alive():
            logger.warning("MCP server %s hangs; it is given up", self.name)
            await self._drop(link)

    async def _drop(self, link: _Link | None = None) -> None:
        """Close the connection, if that is `link` or no link is given."""
        old_link = self._link
        if old_link is not None and link in (None, old_link):
            self._link = None
            await old_link.close()

    @contextlib.asynccontextmanager
    async def transport(self, log: TextIO) -> AsyncGenerator[TransportStreams]:
        """Open the SDK's transport; a command's standard error goes to `log`."""
        if not self.url:
            from mcp import StdioServerParameters
            from mcp.client.stdio import stdio_client

            command, *arguments = self.command
            parameters = StdioServerParameters(
                command=command, args=arguments, env=self._environment
            )
            async with stdio_client(parameters, errlog=log) as streams:
                yield streams
            return

        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        # A tool may take `timeout_s` between two parts of its answer; connecting has its own limit.
        timeout = httpx2.Timeout(CONNECT_TIMEOUT_S, read=self.timeout_s + CONNECT_TIMEOUT_S)
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=timeout) as client,
            streamable_http_client(self.url, http_client=client) as streams,
        ):
            yield streams


class _Link:
    """A connection held by a task: the SDK wants the same task to open and close a connection."""

    def __init__(self, client: Client, closing: asyncio.Event, task: asyncio.Task[None]) -> None:
        self.client = client
        self._closing, self._task = closing, task

    @classmethod
    async def open(cls, server: McpServer) -> _Link:
        """Connect to a server.

        Raises:
            ServerUnreachable: no connection could be made; the message has the server's last words.
        """
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        closing = asyncio.Event()
        with io.TextIOWrapper(tempfile.TemporaryFile(), "utf-8", "replace") as log:
            task = asyncio.create_task(_hold(server, log, ready, closing))
            try:
                # `wait_for` cancels what it waits for at its limit. The shield keeps `ready` for
                # `_hold`, which sets its result or error in any case.
                client = await asyncio.wait_for(asyncio.shield(ready), CONNECT_TIMEOUT_S)
            except BaseException as error:
                await _await_end(task)
                _mark_retrieved(ready)
                if not isinstance(error, Exception):
                    raise
                last_words = _last_words(log)
                raise ServerUnreachable(
                    f"cannot use the MCP server {server.name}: {_reason(error)}{last_words}"
                ) from error
        return cls(client, closing, task)

    async def is_alive(self) -> bool:
        """Whether the server still answers."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self.client.list_tools(cache_mode="bypass")
        except Exception:  # whatever the error, there is no answer
            return False
        return True

    async def close(self) -> None:
        """Close the connection; if the server does not exit, the SDK kills the process."""
        self._closing.set()
        await _await_end(self._task, grace_s=15.0)


async def _hold(
    server: McpServer, log: TextIO, ready: asyncio.Future[Client], closing: asyncio.Event
) -> None:
    """Keep a connection open until `closing` is set."""
    from mcp import Client

    try:
        # `open` closes the log; the process has its own copy of the descriptor.
        async with Client(server.transport(log)) as client:
            ready.set_result(client)
            await closing.wait()
    except BaseException as error:
        if not ready.done():
            ready.set_exception(error if isinstance(error, Exception) else OSError("cancelled"))
            return
        if not isinstance(error, Exception):
            raise
        logger.info("MCP server %s: %s", server.name, _reason(error))


def _mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Read a future's exception. asyncio logs an exception that nobody reads, and whoever waited
    for this one may have given up.
    """
    if future.done() and not future.cancelled():
        future.exception()


async def _await_end(task: asyncio.Task[None], *, grace_s: float = 0.0) -> None:
    """Wait up to `grace_s` for `task`, then cancel `task` and wait a bounded time for its end."""
    await asyncio.wait({task}, timeout=grace_s or 0.01)
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=15.0)


def as_result(result: CallToolResult) -> ToolResult:
    """Convert a server's answer to text; other content becomes a line of description."""
    parts = [_text_of(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [msgspec.json.encode(result.structured_content).decode()]
    content = "\n".join(parts)
    if result.is_error:
        return ToolResult.failed(ToolFault.REFUSED, content or "the tool failed and says no more")
    return ToolResult(content=content)


def _text_of(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and getattr(block.resource, "text", None):
        return str(block.resource.text)
    address = getattr(block, "uri", None) or getattr(getattr(block, "resource", None), "uri", "")
    kind = getattr(block, "mime_type", None) or block.type
    size = len(getattr(block, "data", "") or "")
    place = f" at {address}" if address else ""
    return f"[{kind}{place}{f', {size} bytes in base64' if size else ''}]"


def _reason(error: BaseException) -> str:
    """Describe the first cause inside the exception groups that task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {CONNECT_TIMEOUT_S:g} s"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _last_words(log: TextIO) -> str:
    """Return the end of what a command wrote to standard error."""
    with contextlib.suppress(OSError, ValueError):
        log.flush()
        end = log.seek(0, os.SEEK_END)
        log.seek(max(0, end - _TOLD_CHARS))
        text = log.read().strip()
        return f"; it said: {text}" if text else ""
    return ""
