"""Batching of many concurrent calls into few requests.

Calls made in the same turn of the event loop (a batch of generations coming back) leave together.
While several requests are out, later calls gather until a request is answered, for a few
milliseconds at most. An item that the server answers with "still running" goes into the next
request, and a request that is too large for the server is sent again in two halves.

Concurrent operations travel together: over the server's stream, or in batches of plain HTTP where
there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from ludus.errors import LudusError, RequestTimeout

from .client import Client
from .faults import is_too_large
from .stream_client import ClientStream, UseHttp

Item = TypeVar("Item")
Answer = TypeVar("Answer")

GATHER_S = 0.002
"""The most seconds for which calls gather."""
FREE_REQUESTS = 4
"""How many requests may be under way before later calls gather. With fewer requests there are few
calls to gather, and a single session would wait for nobody (decision 0201).
"""


class Coalescer(Generic[Item, Answer]):
    """Sends items in batches, and hands each caller the matching answer.

    Args:
        send: sends one request; returns an answer for each item in order, None for an item that
            still runs. An exception goes to every caller of the batch.
        max_items: the most items in one request.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | LudusError | None]]],
        *,
        max_items: int = 256,
    ) -> None:
        self._send = send
        self._max_items = max_items
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._departure: asyncio.Handle | None = None
        self._requests: set[asyncio.Task[None]] = set()

    async def submit(self, item: Item) -> Answer:
        """Send `item` with whatever else is being sent, and return the answer.

        Raises:
            Exception: the error of this item, or of the whole request.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._enqueue([(item, future)])
        return await future

    async def close(self) -> None:
        """Give up on the requests that are out, and cancel the calls that still wait to be sent."""
        if self._departure is not None:
            self._departure.cancel()
            self._departure = None
        waiting, self._waiting = self._waiting, []
        _fail(waiting, asyncio.CancelledError())
        for request in list(self._requests):
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)

    def _enqueue(self, entries: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        self._waiting.extend(entries)
        if self._departure is not None:
            return
        loop = asyncio.get_running_loop()
        if len(self._requests) < FREE_REQUESTS:
            self._departure = loop.call_soon(self._depart)
        else:
            self._departure = loop.call_later(GATHER_S, self._depart)

    def _depart(self) -> None:
        self._departure = None
        waiting = [entry for entry in self._waiting if not entry[1].done()]
        self._waiting = []
        for start in range(0, len(waiting), self._max_items):
            self._start(waiting[start : start + self._max_items])

    def _start(self, entries: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        request = asyncio.create_task(self._request(entries))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def _request(self, entries: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            try:
                answers = await self._send([item for item, _ in entries])
            finally:
                # However the request ended, it counts as answered now and not when this task ends,
                # and the calls that gathered meanwhile are sent at once.
                task = asyncio.current_task()
                assert task is not None
                self._requests.discard(task)
                if self._departure is not None and self._waiting:
                    self._departure.cancel()
                    self._departure = asyncio.get_running_loop().call_soon(self._depart)
        except (LudusError, asyncio.CancelledError) as error:
            if len(entries) > 1 and is_too_large(error):
                middle = len(entries) // 2
                self._start(entries[:middle])
                self._start(entries[middle:])
            else:
                _fail(entries, error)
            return
        except Exception as error:
            _fail(entries, error)
            raise
        running: list[tuple[Item, asyncio.Future[Answer]]] = []
        for entry, answer in zip(entries, answers, strict=True):
            _, future = entry
            if answer is None:
                running.append(entry)
            elif future.done():  # the caller has given up
                continue
            elif isinstance(answer, LudusError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        if running:
            self._enqueue(running)


def _fail(entries: Sequence[tuple[Item, asyncio.Future[Answer]]], error: BaseException) -> None:
    for _, future in entries:
        if future.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            future.cancel()
        else:
            future.set_exception(error)


Asked = TypeVar("Asked", bound=msgspec.Struct)
GRACE_S = 1.0
"""Seconds added to the time limit of a batch: the request inside it meets its own limit first, and
its error says more than that the time is over.
"""


class Carrier(Generic[Asked, Answer]):
    """Carries operations of a kind to a server, over a stream or in batches of plain HTTP.

    Every operation must be safe to send twice. A carrier is used on one event loop.

    Args:
        client: the client of the server.
        stream: the stream to the server; None sends everything over plain HTTP.
        as_type: the type of an answer.
        send: sends a batch over plain HTTP; returns the answer or the error of each operation in
            order, and None for an operation that still runs.
    """

    def __init__(
        self,
        client: Client,
        stream: ClientStream | None,
        as_type: Any,
        send: Callable[[Client, Sequence[Asked]], Awaitable[Sequence[Answer | LudusError | None]]],
    ) -> None:
        self.client = client
        self._stream = stream
        self._as_type = as_type
        self._batches: Coalescer[Asked, Answer] = Coalescer(partial(send, client))

    async def perform(self, operation: Asked, *, timeout_s: float = math.inf) -> Answer:
        """Send an operation and return the answer, with retries where another attempt may help.

        Args:
            operation: the operation; safe to send twice.
            timeout_s: the time for all attempts together, in seconds, where that is less than the
                client's own limit.

        Raises:
            LudusError: what went wrong at the server, or why the server could not be asked.
        """
        self.client.traffic.operations += 1
        started = time.monotonic()
        try:
            attempt_s = min(timeout_s, self.client.policy.attempt_timeout_s)
            return await self._attempt(operation, attempt_s)
        except LudusError as error:
            patient = self.client.within(timeout_s)
            again = partial(self._attempt, operation)
            return await patient.keep_trying(again, failed=error, started=started)

    async def close(self) -> None:
        """Give up on the batches under way. The stream stays open for other users."""
        await self._batches.close()

    async def _attempt(self, operation: Asked, timeout_s: float) -> Answer:
        if self._stream is not None and self._stream.offered:
            with contextlib.suppress(UseHttp):
                answer: Answer = await self._stream.submit(operation, self._as_type, timeout_s)
                return answer
        # The request is sent again by itself; what fails here is one operation in it.
        limit_s = self.client.policy.timeout_s + GRACE_S
        try:
            async with asyncio.timeout(limit_s):
                return await self._batches.submit(operation)
        except RequestTimeout:  # also a TimeoutError, and says more
            raise
        except TimeoutError:
            said = f"{self.client.url}: no answer within {limit_s:g} s"
            raise RequestTimeout(said) from None
