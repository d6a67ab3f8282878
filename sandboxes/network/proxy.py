"""The only way out of a sandbox with a network: an HTTP proxy in the driver process.

The run hands over a listening socket in its own, otherwise empty network namespace
(`guest/jail/egress.py`). The driver accepts the connections of that socket, reads each as a proxy's
request, decides, and passes the data on. Nothing the program does can go another way, and the end
of the run ends all its connections.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..guest.jail.egress import NAME
from .policy import EgressDecision, EgressRefused, NetworkPolicy, Resolver, SystemResolver

_DROPPED = (b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection")
_HTTP_PORT = 80


class BadRequest(Exception):
    """The request is not a proxy request."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """The host and port a program wants to connect to, and the first bytes to send."""

    host: str
    port: int
    opening: bytes
    """The bytes that the host is sent first; empty for a tunnel, where the program is told about
    the connection instead.
    """

    @property
    def is_tunnel(self) -> bool:
        """Whether the program asked for `CONNECT`."""
        return not self.opening


def parse(head: bytes, origin: str = "") -> ProxyRequest:
    r"""Parse the head of a request, up to and with the empty line.

    A request for a path alone, as to a server, is for `origin`, where there is one.

    A plain request is sent on with `Connection: close`, so that the next request, which may be for
    another host, comes to the proxy again.

    Raises:
        BadRequest: the head has neither form; the message says what is wrong.

    >>> parse(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n")
    ProxyRequest(host='example.org', port=443, opening=b'')
    """
    line, *headers = head.split(b"\r\n")[:-2]
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise BadRequest("not an HTTP/1 request line")
    method, target, version = words
    try:
        url = urlsplit((b"//" + target if method == b"CONNECT" else target).decode("ascii"))
        host, port = url.hostname, url.port
    except ValueError as error:
        raise BadRequest(f"not an address: {target[:80]!r}") from error
    if method == b"CONNECT":
        if not host or port is None or url.path or url.query:
            raise BadRequest("CONNECT takes host:port")
        return ProxyRequest(host, port, b"")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    if origin and target.startswith(b"/"):
        host, _, digits = origin.rpartition(":")
        port, path = int(digits), target.decode("ascii")
    elif url.scheme != "http" or not host:
        raise BadRequest("a proxy is asked for http://host/path or by CONNECT host:port")
    assert host is not None
    kept_headers = [
        header for header in headers if header.partition(b":")[0].strip().lower() not in _DROPPED
    ]
    first = b" ".join((method, path.encode(), version))
    opening = b"\r\n".join([first, *kept_headers, b"Connection: close", b"", b""])
    return ProxyRequest(host, port or _HTTP_PORT, opening)


_log = logging.getLogger(__name__)

_HEAD_BYTES = 32 << 10
_HEAD_TIMEOUT_S = 30.0
_READ_BYTES = 1 << 16
_FLUSH_TIMEOUT_S = 1.0
_LOOKUPS = 4
"""The most names that a run may look up at the same time."""

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class EgressProxy:
    """Opens a network connection for each run.

    Args:
        policy: what programs may reach.
        resolve: looks names up; by default the system's resolver.
    """

    def __init__(self, policy: NetworkPolicy, *, resolve: Resolver | None = None) -> None:
        self._policy = policy
        self._system = SystemResolver()
        self._decision = EgressDecision(policy, resolve or self._system)

    def close(self) -> None:
        """Release what is held between runs. Idempotent."""
        self._system.close()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[tuple[str, int]]:
        """Serve a run for as long as the context is open; at the end all connections are cut.

        Yields a name and the descriptor to hand to the run; whoever takes the descriptor closes it.
        """
        our_end, guest_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        our_end.setblocking(False)
        serving = asyncio.ensure_future(_Way(self._decision, self._policy).serve(our_end))
        try:
            yield NAME, guest_end.detach()
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            our_end.close()


class _Way:
    """The connections of a run."""

    def __init__(self, decision: EgressDecision, policy: NetworkPolicy) -> None:
        self._decision = decision
        self._policy = policy
        self._left = policy.total_bytes
        self._going: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(policy.connections)
        self._lookups = asyncio.Semaphore(_LOOKUPS)

    async def serve(self, line: socket.socket) -> None:
        """Answer the run's connections until this task is cancelled."""
        try:
            if listener := await _receive_listener(line):
                with listener:
                    while True:
                        await self._free.acquire()  # further connections wait in the socket's queue
                        connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                        task = asyncio.ensure_future(self._answer(connection))
                        self._going.add(task)
                        task.add_done_callback(self._end)
        except OSError:  # the run goes on without a network; its program sees failing sockets
            _log.exception("a run's way out failed")
        finally:
            for task in self._going:
                task.cancel()
            await asyncio.gather(*self._going, return_exceptions=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._free.release()
        self._going.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("a proxied connection failed", exc_info=error)

    async def _answer(self, connection: socket.socket) -> None:
        program = await asyncio.open_connection(sock=connection, limit=_HEAD_BYTES)
        reader, writer = program
        with suppress(OSError, EOFError, asyncio.LimitOverrunError):  # either end has hung up
            async with _closing(program):
                async with asyncio.timeout(_HEAD_TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                self._spend(len(head))
                try:
                    request = parse(head, self._policy.origin)
                    host = await self._connect(request)
                except (BadRequest, EgressRefused, OSError) as error:
                    # An HTTP response tells the program why the connection was refused.
                    status = next(status for kind, status in _STATUS if isinstance(error, kind))
                    body = f"{str(error) or 'no answer in time'}\n".encode("utf-8", "replace")
                    headers = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    headers += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                    writer.write(headers.encode() + body)
                    await writer.drain()
                    return
                async with _closing(host):
                    # For a tunnel, the program is told that it is open; otherwise the host gets
                    # the request.
                    opening = request.opening or _ESTABLISHED
                    (writer if request.is_tunnel else host[1]).write(opening)
                    await self._join(program, host)

    async def _connect(self, request: ProxyRequest) -> _Streams:
        """Connect to the host.

        Raises:
            EgressRefused: the host may not be reached.
            OSError: no connection could be made, or not in time.
        """
        async with self._lookups:
            addresses = await self._decision.addresses(request.host, request.port)
        failure: OSError = OSError(f"{request.host!r} has no address")
        for address in addresses:
            try:
                async with asyncio.timeout(self._policy.connect_timeout_s):
                    return await asyncio.open_connection(address, request.port)
            except OSError as error:  # the next address may work
                failure = error
        raise failure

    async def _join(self, program: _Streams, host: _Streams) -> None:
        """Carry bytes in both directions until both ends have finished, or either fails."""
        ways = [(program[0], host[1]), (host[0], program[1])]
        carrying = [asyncio.ensure_future(self._carry(*streams)) for streams in ways]
        try:
            await asyncio.wait(carrying, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in carrying:
                task.cancel()
            await asyncio.gather(*carrying, return_exceptions=True)

    def _spend(self, count: int) -> None:
        """Take bytes from the budget, which counts all connections of the run in both directions,
        heads of requests too.

        Raises:
            ConnectionAbortedError: it is used up.
        """
        self._left -= count
        if self._left < 0:
            raise ConnectionAbortedError("the run has used up the bytes it may move")

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_BYTES):
            self._spend(len(data))
            writer.write(data)
            await writer.drain()
        writer.write_eof()


_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

_STATUS: Sequence[tuple[type[Exception], str]] = (
    (BadRequest, "400 Bad Request"),
    (EgressRefused, "403 Forbidden"),
    (TimeoutError, "504 Gateway Timeout"),
    (OSError, "502 Bad Gateway"),
)


async def _receive_listener(line: socket.socket) -> socket.socket | None:
    """Receive the listening socket that the run sends before the program starts, or None."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(line, ready.set)
    try:
        await ready.wait()  # at the latest, the end of the run cancels this
    finally:
        loop.remove_reader(line)
    data, descriptors, _, _ = socket.recv_fds(line, 16, 1)
    if not data or not descriptors:
        return None
    os.set_inheritable(descriptors[0], False)
    listener = socket.socket(fileno=descriptors[0])
    listener.setblocking(False)
    return listener


@asynccontextmanager
async def _closing(streams: _Streams) -> AsyncGenerator[None]:
    """Close the streams at the end, after written data has gone out; on failure abort."""
    writer = streams[1]
    try:
        yield
        writer.close()
        async with asyncio.timeout(_FLUSH_TIMEOUT_S):
            await writer.wait_closed()
    except BaseException:
        writer.transport.abort()
        raise
