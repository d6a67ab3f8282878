"""A verifier on a server, with the interface of a local verifier."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ludus.errors import LudusError, RemoteError, RequestRejected, Unauthorized
from ludus.verdict import Verdict
from ludus.wire.carrier import Carrier
from ludus.wire.client import Client, protocol_error
from ludus.wire.faults import error_of

from ..protocol import Sample
from .reward_wire import Score, ScoreBatchReply, ScoreGroupBody, ScoreGroupReply, ScoreItem


class RemoteVerifier:
    """Scores on a server; concurrent calls travel together.

    What keeps the server from answering becomes an `unavailable` verdict. Only what no retry and no
    other sample can help raises: a wrong token, an unknown verifier.

    Args:
        name: the verifier's name on the server.
        carriers: connections to the servers that offer it, which take turns.
    """

    def __init__(self, name: str, carriers: Sequence[Carrier[Score, Verdict]]) -> None:
        self.name = name
        self._turns = itertools.cycle(carriers)

    async def score(self, sample: Sample, /) -> Verdict:
        """Judge `sample`.

        Raises:
            UnknownVerifier: not served; the message names the near miss.
            Unauthorized: the token is missing or wrong.
        """
        try:
            return await next(self._turns).perform(Score(verifier=self.name, sample=sample))
        except RemoteError as error:
            return verdict_of(error)


class RemoteGroupVerifier(RemoteVerifier):
    """Also compares the answers of a group."""

    async def score_group(self, samples: Sequence[Sample], /) -> Sequence[Verdict]:
        """Score all `samples` of a task together; the result has a verdict for each sample, in
        order.
        """
        client = next(self._turns).client
        client.traffic.operations += len(samples)
        body = ScoreGroupBody(verifier=self.name, samples=list(samples))
        try:
            reply = await client.post("/v1/score_group", body, ScoreGroupReply)
        except RemoteError as error:
            return [verdict_of(error)] * len(samples)
        return reply.verdicts


async def send_scores(client: Client, scores: Sequence[Score]) -> list[Verdict | LudusError]:
    """Send samples in a single plain HTTP request; return a verdict or an error for each sample, in
    order.
    """
    items = [{"verifier": score.verifier, "sample": score.sample} for score in scores]
    reply = await client.post("/v1/score_batch", {"items": items}, ScoreBatchReply)
    if len(reply.items) != len(items):
        raise protocol_error(f"{client.url} answered {len(reply.items)} of {len(items)} samples")
    return [_answer(item) for item in reply.items]


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
