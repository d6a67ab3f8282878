"""The words of the scoring protocol: what clients send and servers answer."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ludus.verdict import Verdict
from ludus.wire.faults import Fault

from ..measured import KnownJudge
from ..protocol import Sample

MAX_BATCH = 1024


class Score(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="op",
    tag="score",
    forbid_unknown_fields=True,
):
    """A request to score a sample.

    The reply is a `Verdict`, also when there is no reward: a missing reward is a fact, not a
    failure of the request. Only a stream needs the tag.
    """

    verifier: str
    sample: Sample


class ScoreBatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/score_batch`."""

    items: list[Score]


class ScoreBatchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `ScoreBatchRequest` as the server reads the body: each item apart, so that a wrong item
    does not spoil the others.
    """

    items: Annotated[list[Any], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class ScoreItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to an item of a batch."""

    status: int
    """200, or the status of `error`."""
    verdict: Verdict | None = None
    error: Fault | None = None


class ScoreBatchReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answers, in the order of the items."""

    items: list[ScoreItem]


class ScoreGroupBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/score_group`: the answers of a group, scored against each other."""

    verifier: str
    samples: Annotated[list[Sample], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class ScoreGroupReply(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts of a group, in order."""

    verdicts: list[Verdict]


class VerifierCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a verifier that a server offers."""

    name: str
    description: str
    group: bool
    """Whether the verifier takes `/v1/score_group`."""
    cheap_to_repeat: bool = False
    """Whether scoring a sample twice costs little and gives the same verdict, so that a client may
    ask a second server where the first is late.
    """
    card: dict[str, Any] = {}
    """For a learned verifier: its weights by digest, its preprocessing, device and batches."""
    judges: list[KnownJudge] = []
    """The language models behind the verdicts, each with its measured error."""


class VerifierList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /v1/verifiers`."""

    instance: str
    verifiers: list[VerifierCard]
