"""A verifier on a server, usable wherever a local one is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from ludus.errors import LudusError, RemoteError, RequestRejected, Unauthorized
from ludus.verdict import Verdict
from ludus.wire.client import Client, nonsense
from ludus.wire.coalesce import Coalescer
from ludus.wire.faults import error_of
from ludus.wire.stream_client import Streams, UseHttp

from .protocol import Sample
from .wire import (
    Score,
    ScoreBatchReply,
    ScoreBatchRequest,
    ScoreBody,
    ScoreGroupBody,
    ScoreGroupReply,
    ScoreItem,
)


class RemoteVerifier:
    """Scores on a server; concurrent calls travel together.

    What keeps the server from answering becomes an `unavailable` verdict. Only what no retry and no
    other sample can help raises: a wrong token, an unknown verifier.

    Args:
        name: of the verifier over there.
        choose: the client to use next.
        streams: the streams to the servers; None uses batches of plain HTTP.
    """

    def __init__(
        self, name: str, choose: Callable[[], Client], streams: Streams | None = None
    ) -> None:
        self.name = name
        self._choose = choose
        self._streams = streams
        self._coalescers: dict[str, Coalescer[Sample, Verdict]] = {}

    async def score(self, sample: Sample, /) -> Verdict:
        """Judge `sample`.

        Raises:
            UnknownVerifier: not served; the message names the near miss.
            Unauthorized: the token is missing or wrong.
        """
        client = self._choose()

        stream = self._streams.of(client) if self._streams is not None else None

        async def attempt(timeout_s: float) -> Verdict:
            if stream is not None and stream.offered:
                with contextlib.suppress(UseHttp):
                    score = Score(verifier=self.name, sample=sample)
                    verdict: Verdict = await stream.submit(score, Verdict, timeout_s)
                    client.traffic.operations += 1
                    return verdict
            # The request retries what befalls all of it; here it is one item that was refused.
            return await self._coalescer(client).submit(sample)

        try:
            return await client.insist(attempt)
        except RemoteError as error:
            return verdict_of(error)

    async def close(self) -> None:
        """Give up on requests that are out."""
        coalescers, self._coalescers = self._coalescers, {}
        for coalescer in coalescers.values():
            await coalescer.close()

    def _coalescer(self, client: Client) -> Coalescer[Sample, Verdict]:
        if client.url not in self._coalescers:
            send = partial(score_batch, client, self.name)
            self._coalescers[client.url] = Coalescer(send)
        return self._coalescers[client.url]


class RemoteGroupVerifier(RemoteVerifier):
    """Also compares the answers of a group."""

    async def score_group(self, samples: Sequence[Sample], /) -> Sequence[Verdict]:
        """Judge all `samples` of one task together; one verdict each, in order."""
        client = self._choose()
        client.traffic.operations += len(samples)
        body = ScoreGroupBody(verifier=self.name, samples=list(samples))
        try:
            reply = await client.post("/v1/score_group", body, ScoreGroupReply)
        except RemoteError as error:
            return [verdict_of(error)] * len(samples)
        return reply.verdicts


async def score_batch(
    client: Client, verifier: str, samples: Sequence[Sample]
) -> list[Verdict | LudusError]:
    """One request; a verdict or an error for each sample, in order."""
    client.traffic.operations += len(samples)
    body = ScoreBatchRequest(
        items=[ScoreBody(verifier=verifier, sample=sample) for sample in samples]
    )
    reply = await client.post("/v1/score_batch", body, ScoreBatchReply)
    if len(reply.items) != len(samples):
        raise nonsense(f"{client.url} answered {len(reply.items)} of {len(samples)} samples")
    return [_answer(item) for item in reply.items]


def verdict_of(error: RemoteError) -> Verdict:
    """What a failed call means for the sample.

    Raises:
        RemoteError: it would fail for every sample.
    """
    if isinstance(error, Unauthorized):
        raise error
    if isinstance(error, RequestRejected):
        return Verdict.invalid(str(error))
    return Verdict.unavailable(f"{type(error).__name__}: {error}")


def _answer(item: ScoreItem) -> Verdict | LudusError:
    if item.error is not None:
        return error_of(item.error, item.status)
    return item.verdict or nonsense(f"an item with status {item.status} and nothing in it")
