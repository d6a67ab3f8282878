"""The access log: a line of JSON for each request, and for each operation of a stream.

    {"time":"2026-11-26T18:20:01.482Z","request_id":"2132bf16-9c","principal":"researchers",
     "session":"my-1","method":"POST","route":"/v1/sessions/{sid}/step","status":200,"ms":1.31,
     "bytes":148}

Lines are written by a thread of the log's own, so a slow disk holds up no request. What does not
fit the queue is dropped and counted. A line has no header, no query and no body, and instead of the
path that of the route: a token in a path stays out of it.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ludus.errors import ConfigError

from .codec import request_id, trace_parent
from .faults import Fault
from .principals import asked_by
from .prometheus import ServerMetrics

logger = logging.getLogger(__name__)
STDOUT = "-"
MAX_QUEUED = 50_000
"""The most lines that wait to be written, about 20 MB; further ones are dropped and counted."""
MAX_TOGETHER = 1000
"""The most lines that are written at once."""
FLUSH_S = 0.5
"""The longest time that the writer waits before it looks whether the log is closed."""
GATHER_S = 0.05
"""The seconds for which lines gather: to wake up for each would cost as much as its request."""
CLOSE_S = 5.0
"""The longest time that `close` waits for the last lines."""


class AccessLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the log; fields with the default value are left out."""

    time: float = msgspec.field(default_factory=time.time)
    """The end of the request, in seconds since 1970; written as ISO 8601, UTC."""
    request_id: str = ""
    principal: str = ""
    """Who asked; empty on a server without tokens, and for strangers."""
    session: str = ""
    """The session or REPL that the request is about."""
    method: str
    """The HTTP method, or `STREAM` for an operation of a stream."""
    route: str
    """The template of the route, or the operation of a stream."""
    status: int
    ms: float
    """From the headers until the reply is ready, in milliseconds; for a stream until its end."""
    bytes: int = 0
    """The body of the reply; 0 for answers of a stream that were not encoded by a worker."""
    cause: str = ""
    """Why it was refused or failed: the cause of a 429, or the code of another fault."""
    trace: str = ""
    """The trace id of the request's `traceparent`."""


def encoded(line: AccessLine) -> bytes:
    """Encode a line, with the line end."""
    moment = datetime.fromtimestamp(line.time, UTC).isoformat(timespec="milliseconds")
    fields = msgspec.structs.asdict(line) | {
        "time": moment.replace("+00:00", "Z"),
        "ms": round(line.ms, 3),
    }
    shown = {name: value for name, value in fields.items() if value != ""}
    try:
        return msgspec.json.encode(shown) + b"\n"
    except UnicodeEncodeError:  # a path may hold bytes that are no text
        return json.dumps(shown, separators=(",", ":")).encode() + b"\n"


class AccessLog:
    """Appends lines to a file.

    Args:
        path: the file, or `-` for the standard output. Several processes may append to one file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.dropped = 0
        """How many lines were lost, since the queue or the disk was full."""
        self._queue: queue.SimpleQueue[AccessLine] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._stale = False
        self._thread: threading.Thread | None = None
        self._is_failing = self._is_torn = False
        self._file = -1

    def start(self, metrics: ServerMetrics) -> None:
        """Open the file, and start the thread that writes.

        Raises:
            ConfigError: the file cannot be opened.
        """
        try:
            self._file = self._open()
        except OSError as error:
            message = f"cannot write the access log {self.path!r}: {error.strerror}"
            raise ConfigError(message) from None
        metrics.watch(
            "access_log_dropped", "Lines lost by the access log", lambda: float(self.dropped)
        )
        self._thread = threading.Thread(target=self._run, name="ludus-access-log", daemon=True)
        self._thread.start()

    def write(self, line: AccessLine) -> None:
        """Put a line into the queue; never waits."""
        if self._queue.qsize() >= MAX_QUEUED:
            self.dropped += 1
        else:
            self._queue.put(line)

    def reopen(self) -> None:
        """Open the file again before the next line: the file may have been moved away."""
        self._stale = True

    def close(self) -> None:
        """Write what waits, for at most five seconds, and close the file."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
            self._thread = None

    def _open(self) -> int:
        if self.path == STDOUT:
            return os.dup(1)
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _run(self) -> None:
        while not (self._closing.is_set() and self._queue.empty()):
            lines: list[AccessLine] = []
            with suppress(queue.Empty):
                lines.append(self._queue.get(timeout=FLUSH_S))
                if self._queue.qsize() < MAX_TOGETHER:
                    self._closing.wait(GATHER_S)
                while len(lines) < MAX_TOGETHER:
                    lines.append(self._queue.get_nowait())
            if lines:
                self._append(lines)
        os.close(self._file)

    def _append(self, lines: list[AccessLine]) -> None:
        data = b"".join(encoded(line) for line in lines)
        # A write that was cut short left half a line, which this ends.
        data = b"\n" + data if self._is_torn else data
        try:
            if self._stale:
                file, self._file = self._file, self._open()
                self._stale = False
                os.close(file)
            written = os.write(self._file, data)
            self._is_torn = written < len(data)
            if self._is_torn:
                raise OSError(f"{written} of {len(data)} bytes were written")
        except OSError as error:
            self.dropped += len(lines)
            if not self._is_failing:
                logger.error("the access log %s loses lines: %s", self.path, error)
            self._is_failing = True
        else:
            if self._is_failing:
                logger.warning("the access log is written again; %d lines are lost", self.dropped)
            self._is_failing = False


asked: ContextVar[object] = ContextVar("ludus_asked", default=None)
"""What the request that is being answered asks: its payload, once that is read."""
faulted: ContextVar[Fault | None] = ContextVar("ludus_faulted", default=None)
"""The fault that the request was answered with."""
CLIENT_CLOSED = 499
"""The status in the log of a request whose client hung up before the reply, as nginx has it."""


def logged(log: AccessLog) -> Middleware:
    """Return a middleware that gives `log` a line for each request."""

    @web.middleware
    async def write(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource, started = request.match_info.route.resource, time.perf_counter()
        route = resource.canonical if resource is not None else ""
        return await noted(log, handler(request), request, request.match_info, route, started)

    return write


async def noted(
    log: AccessLog,
    answering: Awaitable[web.StreamResponse],
    request: web.BaseRequest,
    path: Mapping[str, str],
    route: str,
    started: float,
) -> web.StreamResponse:
    """Answer a request, and write a line to `log`.

    Args:
        log: the log.
        answering: the answer.
        request: what was asked.
        path: the parameters in its path.
        route: the template of its route; empty where no route takes it.
        started: when it was read, by `time.perf_counter`.
    """
    response = None
    try:
        response = await answering
        return response
    finally:
        fault = faulted.get()
        log.write(
            AccessLine(
                request_id=request_id.get(),
                principal=asked_by.get().name,
                session=path.get("sid", "") or session_in(asked.get()),
                method=request.method,
                route=route,
                status=CLIENT_CLOSED if response is None else response.status,
                ms=(time.perf_counter() - started) * 1000,
                bytes=(response.content_length or 0) if response is not None else 0,
                cause=cause_in(fault) if fault is not None else "",
                trace=trace_parent.get()[3:35],
            )
        )


def cause_in(fault: Fault) -> str:
    """Return what a line says of a fault: the bound that a refusal met, or else the code."""
    return fault.cause or fault.code


def session_in(asked: object) -> str:
    """Return the session or REPL that a request is about; else empty."""
    return str(getattr(asked, "session", "") or getattr(asked, "repl", ""))


def operation_in(item: object) -> str:
    """Return the `op` of an operation of a stream, which may be of any shape."""
    if isinstance(item, msgspec.Struct):
        return str(item.__struct_config__.tag or "score")
    op = item.get("op", "") if isinstance(item, dict) else ""
    return str(op)[:32]
