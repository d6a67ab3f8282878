"""How operations of remote sessions travel over plain HTTP: singly, or many in a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from ludus.errors import LudusError
from ludus.wire.client import Client, protocol_error
from ludus.wire.faults import error_of

from .env_wire import (
    BatchItem,
    BatchReply,
    BatchRequest,
    Create,
    Created,
    Delete,
    Operation,
    Released,
    Reply,
    Reset,
    ResetReply,
    Step,
    StepReply,
)

HOLD_S = 10.0
"""The most seconds for which the server may hold a batch before it answers."""
PENDING = 202
"""The status of an operation in a batch that still runs, and is to be sent again."""
_BEGUN: Any = Created | ResetReply


class Operator(Protocol):
    """Carries operations to the server that holds a session: a `Carrier`, or `OneByOne`."""

    client: Client

    async def perform(self, operation: Operation, *, timeout_s: float = ...) -> Reply:
        """Send an operation and return the reply.

        Args:
            operation: the operation to carry out.
            timeout_s: the limit in seconds for all attempts together, where that is less than the
                client's own limit.

        Raises:
            LudusError: the error that the server answered with, or that kept it from answering.
        """
        ...


class OneByOne:
    """Sends each operation in a separate request.

    Args:
        client: the connection to the server.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    async def perform(self, operation: Operation, *, timeout_s: float = float("inf")) -> Reply:
        """Send an operation to the route for operations of this type and return the reply."""
        client = self.client.within(timeout_s)
        client.traffic.operations += 1
        session = f"/v1/sessions/{quote(operation.session, safe='')}"
        match operation:
            case Create():
                path = f"/v1/envs/{quote(operation.env, safe='')}/sessions"
                body = _without(operation, "env")
                reply: Reply = await client.post(path, body, _BEGUN)
                return reply
            case Reset():
                return await client.post(
                    f"{session}/reset", _without(operation, "session"), ResetReply
                )
            case Step():
                body = _without(operation, "session")
                return await client.post(f"{session}/step", body, StepReply)
            case Delete():
                return await client.delete(session, Released)


async def send_batch(
    client: Client, operations: Sequence[Operation]
) -> Sequence[Reply | LudusError | None]:
    """Send operations in a single request.

    Returns:
        The reply or error of each operation, in order; None for an operation that still runs.
    """
    body = BatchRequest(items=list(operations), hold_s=HOLD_S)
    reply = await client.post("/v1/step_batch", body, BatchReply)
    if len(reply.items) != len(operations):
        raise protocol_error(
            f"{client.url} answered {len(reply.items)} of {len(operations)} operations"
        )
    return [_answer(item) for item in reply.items]


def _without(operation: msgspec.Struct, name: str) -> dict[str, Any]:
    """Build the body of a request: the fields of an operation except `name`, which the path
    holds.
    """
    fields = operation.__struct_fields__
    return {field: getattr(operation, field) for field in fields if field != name}


def _answer(item: BatchItem) -> Reply | LudusError | None:
    if item.status == PENDING:
        return None
    if item.error is not None:
        return error_of(item.error, item.status)
    return item.reply or protocol_error(
        f"an item of a batch has status {item.status}, and neither a reply nor an error"
    )
