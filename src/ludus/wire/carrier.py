"""Operations on their way to one server, and what is done when one does not arrive.

Concurrent operations travel together: over the server's stream, or in batches of plain HTTP where
it has none. An operation that failed for now is sent again after a while.
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
"""Added to the time of a batch, so that the reason it failed is told rather than that its time is
over.
"""


class Carrier(Generic[Asked, Answer]):
    """Carries operations of one kind to one server. Everything it carries must be safe to send
    twice; it is used on one event loop.

    Args:
        client: of the server.
        stream: to the server; None sends all over plain HTTP.
        as_type: of an answer.
        send: sends a batch over plain HTTP; returns the answer or the error of each operation in
            order, and None for one that still runs.
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
        """The answer to an operation.

        Args:
            operation: what to do.
            timeout_s: for all attempts together, where that is less than the client's own limit.

        Raises:
            LudusError: what the server met, or why it could not be asked.
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
        """Give up on batches that are out. The stream is closed by whoever opened it."""
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
