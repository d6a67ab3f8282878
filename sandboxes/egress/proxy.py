"""The one way out of a sandbox with a network: an HTTP proxy that runs in the driver.

The run hands over a listening socket of its own, otherwise empty network (`inside/way_out.py`);
here its connections are accepted, read as a proxy's, decided and passed on. Nothing the program
does can go another way, and when the run ends so does everything here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

from ..inside.way_out import NAME
from .policy import Decision, NetworkPolicy, Refused
from .requests import BadRequest, Wanted, parse
from .resolver import Resolver, SystemResolver

_log = logging.getLogger(__name__)

_HEAD_BYTES = 32 << 10
_HEAD_TIMEOUT_S = 30.0
_READ_BYTES = 1 << 16
_FLUSH_TIMEOUT_S = 1.0
_LOOKUPS = 4
"""Names one run looks up at once."""

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class EgressProxy:
    """Makes a way out for each run.

    Args:
        resolve: looks names up; the system's resolver if left out.
    """

    def __init__(self, policy: NetworkPolicy, *, resolve: Resolver | None = None) -> None:
        self._policy = policy
        self._system = SystemResolver()
        self._decision = Decision(policy, resolve or self._system)

    def close(self) -> None:
        """Let go of what it holds between runs. Idempotent."""
        self._system.close()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[tuple[str, int]]:
        """A way out for one run: yields the descriptor to hand to it, which whoever takes it
        closes. At the end all its connections are cut.
        """
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.setblocking(False)
        serving = asyncio.ensure_future(_Way(self._decision, self._policy).serve(here))
        try:
            yield NAME, there.detach()
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            here.close()


class _Way:
    """The connections of one run."""

    def __init__(self, decision: Decision, policy: NetworkPolicy) -> None:
        self._decision = decision
        self._policy = policy
        self._left = policy.total_bytes
        self._going: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(policy.connections)
        self._lookups = asyncio.Semaphore(_LOOKUPS)

    async def serve(self, line: socket.socket) -> None:
        """Answer the run's connections until this is cancelled."""
        try:
            if listener := await _receive_listener(line):
                with listener:
                    await self._accept(listener)
        except OSError:  # the run goes on without a network, and its program is told by its sockets
            _log.exception("a run's way out failed")
        finally:
            for task in self._going:
                task.cancel()
            await asyncio.gather(*self._going, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await self._free.acquire()  # more of them wait in the socket's own queue
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            task = asyncio.ensure_future(self._answer(connection))
            self._going.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._free.release()
        self._going.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("a proxied connection failed", exc_info=error)

    async def _answer(self, connection: socket.socket) -> None:
        program = await asyncio.open_connection(sock=connection, limit=_HEAD_BYTES)
        with suppress(OSError, EOFError, asyncio.LimitOverrunError):  # one of them has hung up
            async with _closing(program):
                await self._pass_on(program)

    async def _pass_on(self, program: _Streams) -> None:
        reader, writer = program
        async with asyncio.timeout(_HEAD_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            wanted = parse(head)
            host = await self._connect(wanted)
        except (BadRequest, Refused, OSError) as error:
            writer.write(_answer_of(error))
            await writer.drain()
            return
        async with _closing(host):
            (writer if wanted.is_tunnel else host[1]).write(wanted.opening or _ESTABLISHED)
            await self._join(program, host)

    async def _connect(self, wanted: Wanted) -> _Streams:
        """A connection to the host.

        Raises:
            Refused: it may not be reached. OSError: it cannot be, or not in time.
        """
        async with self._lookups:
            addresses = await self._decision.addresses(wanted.host, wanted.port)
        failure: OSError = OSError(f"{wanted.host!r} has no address")
        for address in addresses:
            try:
                async with asyncio.timeout(self._policy.connect_timeout_s):
                    return await asyncio.open_connection(address, wanted.port)
            except OSError as error:  # the next address may do
                failure = error
        raise failure

    async def _join(self, program: _Streams, host: _Streams) -> None:
        """Carry bytes both ways until both have said all they have, or one is cut off."""
        ways = [(program[0], host[1]), (host[0], program[1])]
        carrying = [asyncio.ensure_future(self._carry(*way)) for way in ways]
        try:
            await asyncio.wait(carrying, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in carrying:
                task.cancel()
            await asyncio.gather(*carrying, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_BYTES):
            self._left -= len(data)
            if self._left < 0:
                raise ConnectionAbortedError("the run has used up the bytes it may move")
            writer.write(data)
            await writer.drain()
        writer.write_eof()


_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

_STATUS: Sequence[tuple[type[Exception], str]] = (
    (BadRequest, "400 Bad Request"),
    (Refused, "403 Forbidden"),
    (TimeoutError, "504 Gateway Timeout"),
    (OSError, "502 Bad Gateway"),
)


def _answer_of(error: Exception) -> bytes:
    """The answer that tells the program why it goes no further."""
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    body = f"{error or 'no answer in time'}\n".encode("utf-8", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def _receive_listener(line: socket.socket) -> socket.socket | None:
    """The listening socket the run sends before its program starts; None if it sends none."""
    await _readable(line)
    data, descriptors, _, _ = socket.recv_fds(line, 16, 1)
    if not data or not descriptors:
        return None
    os.set_inheritable(descriptors[0], False)
    listener = socket.socket(fileno=descriptors[0])
    listener.setblocking(False)
    return listener


async def _readable(line: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(line, ready.set)
    try:
        await ready.wait()  # ends at the latest with the run, which cancels this
    finally:
        loop.remove_reader(line)


@asynccontextmanager
async def _closing(streams: _Streams) -> AsyncGenerator[None]:
    """Close at the end, after what was written has gone out; cut off on any failure."""
    writer = streams[1]
    try:
        yield
        writer.close()
        async with asyncio.timeout(_FLUSH_TIMEOUT_S):
            await writer.wait_closed()
    except BaseException:
        writer.transport.abort()
        raise
