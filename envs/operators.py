"""How operations of remote sessions travel: one by one, or many in one request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote

from ludus.errors import LudusError, RequestTimeout
from ludus.wire.client import Client, nonsense
from ludus.wire.coalesce import Coalescer
from ludus.wire.faults import error_of
from ludus.wire.stream_client import Streams, UseHttp

from .wire import (
    BatchItem,
    BatchReply,
    BatchRequest,
    Create,
    CreateBody,
    Created,
    Delete,
    Operation,
    Released,
    Reply,
    Reset,
    ResetBody,
    ResetReply,
    Step,
    StepBody,
    StepReply,
)

HOLD_S = 10.0
CLOSE_TIMEOUT_S = 3.0
"""For telling a server that a session is released; if it cannot be told, the lease ends."""
GRACE_S = 1.0
"""So that the reason a request failed is told rather than that its time is over."""
PENDING = 202
_BEGUN: Any = Created | ResetReply


class Operator(Protocol):
    """Carries operations to the server a session lives on."""

    async def perform(self, operation: Operation) -> Reply:
        """The reply of an operation.

        Raises:
            LudusError: what the server met.
        """
        ...

    def client(self, key: str, /) -> Client:
        """The client of the server that `key` lives on."""
        ...


class OneByOne:
    """Sends each operation in its own request."""

    def __init__(self, choose: Callable[[str], Client]) -> None:
        self.client = choose

    async def perform(self, operation: Operation) -> Reply:
        """Send it to its route."""
        client = self.client(operation.session)
        client.traffic.operations += 1
        if isinstance(operation, Delete):
            client = client.within(CLOSE_TIMEOUT_S)
        session = f"/v1/sessions/{quote(operation.session, safe='')}"
        match operation:
            case Create():
                path = f"/v1/envs/{quote(operation.env, safe='')}/sessions"
                create = CreateBody(session=operation.session, reset=operation.reset)
                begun: Reply = await client.post(path, create, _BEGUN)
                return begun
            case Reset():
                reset = ResetBody(
                    seq=operation.seq,
                    seed=operation.seed,
                    options=operation.options,
                    instance=operation.instance,
                )
                return await client.post(f"{session}/reset", reset, ResetReply)
            case Step():
                client.traffic.steps += 1
                step = StepBody(
                    seq=operation.seq, action=operation.action, instance=operation.instance
                )
                return await client.post(f"{session}/step", step, StepReply)
            case Delete():
                return await client.delete(session, Released)


class Batched:
    """Sends concurrent operations together, over a stream where the server has one, else in batches
    of plain HTTP; made and used on one event loop.

    Args:
        choose: the client of the server that a session lives on.
        streams: the streams, by client; None uses none.
    """

    def __init__(self, choose: Callable[[str], Client], streams: Streams | None = None) -> None:
        self.client = choose
        self._streams = streams
        self._coalescers: dict[str, Coalescer[Operation, Reply]] = {}

    async def perform(self, operation: Operation) -> Reply:
        """Send it. An operation that was refused for now is sent again after a while."""
        client = self.client(operation.session)
        client.traffic.operations += 1
        client.traffic.steps += isinstance(operation, Step)
        stream = self._streams.of(client) if self._streams is not None else None
        insisting = client.within(CLOSE_TIMEOUT_S) if isinstance(operation, Delete) else client

        async def attempt(timeout_s: float) -> Reply:
            if stream is not None and stream.offered:
                with contextlib.suppress(UseHttp):
                    reply: Reply = await stream.submit(operation, Reply, timeout_s)
                    return reply
            # The request retries what befalls all of it; here it is one item that was refused.
            return await self._by_batch(client, operation, insisting.policy.timeout_s + GRACE_S)

        return await insisting.insist(attempt)

    async def _by_batch(self, client: Client, operation: Operation, timeout_s: float) -> Reply:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._coalescer(client).submit(operation)
        except RequestTimeout:  # also a TimeoutError, and says more
            raise
        except TimeoutError:
            raise RequestTimeout(
                f"{client.url}: no answer for session {operation.session!r} within {timeout_s:g} s"
            ) from None

    async def close(self) -> None:
        """Give up on requests that are out."""
        coalescers, self._coalescers = self._coalescers, {}
        for coalescer in coalescers.values():
            await coalescer.close()

    def _coalescer(self, client: Client) -> Coalescer[Operation, Reply]:
        if client.url not in self._coalescers:
            self._coalescers[client.url] = Coalescer(partial(_send, client))
        return self._coalescers[client.url]


async def _send(
    client: Client, operations: Sequence[Operation]
) -> Sequence[Reply | LudusError | None]:
    body = BatchRequest(items=list(operations), hold_s=HOLD_S)
    reply = await client.post("/v1/step_batch", body, BatchReply)
    if len(reply.items) != len(operations):
        raise nonsense(f"{client.url} answered {len(reply.items)} of {len(operations)} operations")
    return [_answer(item) for item in reply.items]


def _answer(item: BatchItem) -> Reply | LudusError | None:
    if item.status == PENDING:
        return None
    if item.error is not None:
        return error_of(item.error, item.status)
    return item.reply or nonsense(f"an item with status {item.status} and nothing in it")
