"""Delivery of operations to a server, with another attempt for each that failed for now.

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
from .coalesce import Coalescer
from .stream_client import ClientStream, UseHttp

Asked = TypeVar("Asked", bound=msgspec.Struct)
Answer = TypeVar("Answer")
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
