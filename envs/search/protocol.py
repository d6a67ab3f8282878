"""Search-R1's `/retrieve`, the protocol its trainer and those after it speak.

    POST /retrieve   {"queries": ["who ...", "where ..."], "topk": 3, "return_scores": true}
    200              {"result": [[{"document": {"id": "7", "contents": "\\"Title\\"\\ntext"},
                                   "score": 4.2}, ...], ...]}

One list for each query, best first. Without `return_scores` each item is the bare document;
`topk` may be left out, null or 0, and is then the server's own. SkyRL's client asks one thing at
a time, `{"query": "who ..."}`, and is answered with a list of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ludus.wire.faults import Refused

from .documents import Hit

RETRIEVE_PATH = "/retrieve"
MOST_QUERIES = 16_384
"""Search-R1 sends all searches of a step at once: 512 questions, 5 rollouts each."""
MOST_DOCUMENTS = 100
"""For one query."""
MOST_RESULTS = 100_000
"""For all queries of a request."""
MOST_QUERY_CHARS = 10_000
"""What stands behind is not searched for: one rollout that babbles must not cost a batch."""


class RetrieveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request."""

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


class RetrieveBody(msgspec.Struct, frozen=True, kw_only=True):
    """A `RetrieveRequest`, or SkyRL's with one `query`."""

    queries: list[str] | None = None
    query: str | None = None
    topk: int | None = None
    return_scores: bool | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request comes down to."""

    queries: list[str]
    topk: int
    return_scores: bool


def read_request(body: RetrieveBody, own_topk: int) -> Asked:
    """A request within bounds.

    Args:
        body: as it came.
        own_topk: of the server.

    Raises:
        Refused: it asks nothing, or for too much.
    """
    queries = [body.query] if body.queries is None and body.query is not None else body.queries
    if queries is None:
        raise Refused('no queries: send {"queries": ["..."]}, or {"query": "..."}', "invalid")
    if not 0 <= (body.topk or 0) <= MOST_DOCUMENTS:
        raise Refused(
            f"topk is {body.topk}; it must be from 1 to {MOST_DOCUMENTS}, or 0 or null for this "
            f"server's own, {own_topk}",
            "invalid",
        )
    topk = body.topk or own_topk
    most = min(MOST_QUERIES, MOST_RESULTS // topk)
    if len(queries) > most:
        raise Refused(
            f"{len(queries)} queries with topk {topk}; at most {most} at once, send several "
            "requests",
            "invalid",
        )
    return Asked([one[:MOST_QUERY_CHARS] for one in queries], topk, bool(body.return_scores))


class RetrieveReply(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a reply: of each query, its hits or bare documents."""

    result: list[list[dict[str, Any]]]


class Retriever(Protocol):
    """Finds documents."""

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """For each query at most `topk` documents, best first.

        Raises:
            RewardUnavailable: it cannot say; the episode counts for nothing.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


def as_result(found: Sequence[Sequence[Hit]], *, scores: bool) -> RetrieveReply:
    """Hits as they travel."""
    return RetrieveReply(
        result=[
            [msgspec.to_builtins(hit if scores else hit.document) for hit in hits] for hits in found
        ]
    )


def as_hits(items: Sequence[dict[str, Any]]) -> list[Hit]:
    """What a server answered to one query, with scores or without.

    Raises:
        msgspec.ValidationError: neither hits nor documents.
    """
    return [_hit(item) for item in items]


def _hit(item: dict[str, Any]) -> Hit:
    found = item if "document" in item else {"document": item}
    document = {**found["document"]} if isinstance(found["document"], dict) else {}
    # Servers number their documents by position, by name or not at all; those that ask the web
    # (Search-R1's for Google and SerpAPI) have no scores.
    identity, score = document.get("id"), found.get("score")
    return msgspec.convert(
        {
            "document": {**document, "id": "" if identity is None else str(identity)},
            "score": 0.0 if score is None else score,
        },
        Hit,
        strict=False,
    )
