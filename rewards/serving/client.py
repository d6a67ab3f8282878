"""A verifier on a server, with the interface of a local verifier."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from ludus.errors import LudusError, RemoteError, RequestRejected, Unauthorized
from ludus.verdict import Verdict
from ludus.wire.carrier import OperationKind
from ludus.wire.client import Client, protocol_error
from ludus.wire.codec import encode
from ludus.wire.faults import error_of
from ludus.wire.replicas import Replicas

from ..protocol import Sample
from .reward_wire import (
    MAX_BATCH,
    Score,
    ScoreBatchReply,
    ScoreGroupBody,
    ScoreGroupReply,
    ScoreItem,
    VerifierList,
)

MAX_BATCH_BYTES = 8 << 20
"""The most bytes of samples in one request: half of what a server takes by default."""


async def send_one(client: Client, score: Score, timeout_s: float) -> Verdict:
    """Send a sample once by itself, and return the verdict."""
    body = {"verifier": score.verifier, "sample": score.sample}
    return await client.attempt(client.build("POST", "/v1/score", body), Verdict, timeout_s)


async def send_scores(client: Client, scores: Sequence[Score]) -> list[Verdict | LudusError]:
    """Send samples in a single plain HTTP request, once; return a verdict or an error for each
    sample, in order.
    """
    reply = await client.once("POST", "/v1/score_batch", batch_of(scores), ScoreBatchReply)
    return answers_of(reply, scores)


def batch_of(scores: Sequence[Score]) -> dict[str, object]:
    """Build the body of `/v1/score_batch`."""
    return {"items": [{"verifier": score.verifier, "sample": score.sample} for score in scores]}


def batches_of(scores: Sequence[Score]) -> Iterator[Sequence[Score]]:
    """Yield `scores` in order, in batches that a server takes: at most `MAX_BATCH` of them, and at
    most `MAX_BATCH_BYTES` together where each is smaller.
    """
    first = size = 0
    for place, score in enumerate(scores):
        own = len(encode(score)[0])
        if place - first == MAX_BATCH or (place > first and size + own > MAX_BATCH_BYTES):
            yield scores[first:place]
            first, size = place, 0
        size += own
    if first < len(scores):
        yield scores[first:]


def answers_of(reply: ScoreBatchReply, scores: Sequence[Score]) -> list[Verdict | LudusError]:
    """Return the answer to each of the scores that were asked in a batch.

    Raises:
        ServerFault: there are fewer answers, or more.
    """
    _require_all(reply.items, scores)
    return [_answer(item) for item in reply.items]


def _require_all(answers: Sequence[object], asked: Sequence[object]) -> None:
    if len(answers) != len(asked):
        raise protocol_error(f"a server answered {len(answers)} of {len(asked)} samples")


SCORES: OperationKind[Score, Verdict] = OperationKind(Verdict, send_scores, send_one)
"""Samples and verdicts, as they travel."""


class RemoteVerifier:
    """Scores on servers; concurrent calls travel together, each to the least loaded server.

    What keeps every server from answering becomes an `unavailable` verdict. Only what no retry and
    no other sample can help raises: a wrong token, an unknown verifier. A verifier that is cheap to
    repeat is asked a second time where the first server is late.

    Args:
        name: the verifier's name on the servers.
        replicas: the servers that offer it.
    """

    def __init__(self, name: str, replicas: Replicas) -> None:
        self.name = name
        self._replicas = replicas
        only = replicas.only
        self._carrier = only.carrier(SCORES) if only is not None else None
        """To the only server, where there will be no other."""
        self._card: asyncio.Task[bool | None] | None = None
        """Asks whether a second call is harmless; needed only where there are several servers."""

    async def score(self, sample: Sample, /) -> Verdict:
        """Judge `sample`.

        Raises:
            UnknownVerifier: not served; the message names the near miss.
            Unauthorized: the token is missing or wrong.
        """
        score = Score(verifier=self.name, sample=sample)
        try:
            if self._carrier is not None:
                return await self._carrier.perform(score)
            return await self._replicas.perform(SCORES, score, hedged=self._is_hedged())
        except RemoteError as error:
            return verdict_of(error)

    def _is_hedged(self) -> bool:
        if self._replicas.sole:
            return False
        card = self._card
        if card is None or card.cancelled() or (card.done() and card.result() is None):
            card = self._card = asyncio.create_task(self._is_cheap_to_repeat())
        return card.done() and bool(card.result())

    async def _is_cheap_to_repeat(self) -> bool | None:
        """Ask the servers; None where no server answers, and the next score asks again."""
        try:
            verifiers = await self._replicas.call("GET", "/v1/verifiers", None, VerifierList)
        except RemoteError:
            return None
        return any(card.name == self.name and card.cheap_to_repeat for card in verifiers.verifiers)


class RemoteGroupVerifier(RemoteVerifier):
    """Also compares the answers of a group."""

    async def score_group(self, samples: Sequence[Sample], /) -> Sequence[Verdict]:
        """Score all `samples` of a task together; the result has a verdict for each sample, in
        order.
        """
        body = ScoreGroupBody(verifier=self.name, samples=list(samples))
        try:
            reply = await self._replicas.call("POST", "/v1/score_group", body, ScoreGroupReply)
            _require_all(reply.verdicts, samples)
        except RemoteError as error:
            return [verdict_of(error)] * len(samples)
        return reply.verdicts


def verdict_of(error: RemoteError) -> Verdict:
    """Return the verdict on a sample whose call failed.

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
    return item.verdict or protocol_error(f"an item with status {item.status} and nothing in it")
