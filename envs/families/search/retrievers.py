"""Retrievers: an index in this process, or a server that speaks `/retrieve`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ludus.errors import (
    LudusError,
    Overloaded,
    RequestRejected,
    RequestTimeout,
    RewardUnavailable,
    ServerFault,
    ServerUnreachable,
)
from ludus.verdict import Verdict
from ludus.wire.async_transport import AsyncTransport
from ludus.wire.client import Client, RetryPolicy
from ludus.wire.codec import Format

from .bm25 import Bm25Index
from .documents import Hit
from .protocol import RETRIEVE_PATH, RetrieveReply, RetrieveRequest, as_hits


class LocalRetriever:
    """A retriever over an index in this process; searches run on a thread, off the event loop."""

    def __init__(self, index: Bm25Index) -> None:
        self._index = index

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Search the index, as `Retriever.retrieve` describes; an index in memory never fails."""
        return await asyncio.to_thread(self._index.search, queries, topk)

    async def close(self) -> None:
        """Do nothing: an index holds no connections."""


class RemoteRetriever:
    """A retriever over HTTP, for a server of ludus or of Search-R1.

    Args:
        url: the server's address, with or without `/retrieve`.
        timeout_s: the time limit of a call in seconds, over all attempts.
        token: the bearer token, where the server wants that.
    """

    def __init__(self, url: str, *, timeout_s: float, token: str = "") -> None:
        policy = RetryPolicy(
            timeout_s=timeout_s, attempt_timeout_s=timeout_s, first_contact_s=min(timeout_s, 5.0)
        )
        base = url.rstrip("/").removesuffix(RETRIEVE_PATH)
        self._client = Client(base, AsyncTransport(), token, policy, Format.JSON)

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Ask the server, as `Retriever.retrieve` describes.

        A server that is down, late or sends nonsense raises RewardUnavailable.
        """
        body = RetrieveRequest(queries=list(queries), topk=topk, return_scores=True)
        try:
            reply = await self._client.post(RETRIEVE_PATH, body, RetrieveReply)
            hits = [as_hits(items)[:topk] for items in reply.result]
        except (LudusError, msgspec.ValidationError) as error:
            raise RewardUnavailable(self._verdict(error)) from error
        if len(hits) != len(queries):
            problem = f"{self._server} answered {len(hits)} of {len(queries)} queries"
            raise RewardUnavailable(Verdict.error(problem))
        return hits

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._client.transport.close()

    @property
    def _server(self) -> str:
        return f"the retriever at {self._client.url}{RETRIEVE_PATH}"

    def _verdict(self, error: Exception) -> Verdict:
        server = self._server
        if isinstance(error, ServerUnreachable):
            return Verdict.unavailable(f"{server} does not answer ({error.__cause__})")
        if isinstance(error, RequestTimeout):
            return Verdict.unavailable(f"{server} is late: {error}")
        # Whether a reply came that could not be read.
        if isinstance(error, (Overloaded, ServerFault)) and not isinstance(
            error.__cause__, RequestRejected
        ):
            return Verdict.unavailable(f"{server} failed: {error}")
        return Verdict.error(f"{server} cannot be used: {error}")
