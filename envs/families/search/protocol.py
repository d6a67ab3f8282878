r"""Search-R1's `/retrieve` protocol, which Search-R1 and many later trainers speak.

    POST /retrieve   {"queries": ["who ...", "where ..."], "topk": 3, "return_scores": true}
    200              {"result": [[{"document": {"id": "7", "contents": "\"Title\"\ntext"},
                                   "score": 4.2}, ...], ...]}

The result has a list for each query, best first. Without `return_scores` each item is the bare
document; `topk` may be left out, null or 0, and the server's default then applies. SkyRL's client
asks a single query at a time, `{"query": "who ..."}`, and gets a list with a single element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ludus.wire.faults import Refused

from .documents import Hit

RETRIEVE_PATH = "/retrieve"
MAX_QUERIES = 16_384
"""The most queries of a request. Search-R1 sends all searches of a step at once: 512 questions with
5 rollouts each.
"""
MAX_DOCUMENTS = 100
"""The most documents for a single query."""
MAX_RESULTS = 100_000
"""The most documents for all queries of a request."""
MAX_QUERY_CHARS = 10_000
"""How many characters of a query are searched for.

The rest is ignored, so that a rollout that babbles does not cost the whole batch.
"""


class RetrieveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request in the form that ludus sends."""

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


class RetrieveBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request in any form that the server accepts, which includes SkyRL's single
    `query`.
    """

    queries: list[str] | None = None
    query: str | None = None
    topk: int | None = None
    return_scores: bool | None = None


@dataclass(frozen=True, slots=True)
class RetrievalRequest:
    """A request after validation, with defaults filled in."""

    queries: list[str]
    topk: int
    return_scores: bool


def read_request(body: RetrieveBody, own_topk: int) -> RetrievalRequest:
    """Validate a request.

    Args:
        body: the body as it came.
        own_topk: the server's default for `topk`.

    Raises:
        Refused: the request has no queries, or asks for too much.
    """
    queries = [body.query] if body.queries is None and body.query is not None else body.queries
    if queries is None:
        raise Refused('no queries: send {"queries": ["..."]}, or {"query": "..."}', "invalid")
    if not 0 <= (body.topk or 0) <= MAX_DOCUMENTS:
        raise Refused(
            f"topk is {body.topk}; it must be from 1 to {MAX_DOCUMENTS}, or 0 or null for this "
            f"server's own, {own_topk}",
            "invalid",
        )
    topk = body.topk or own_topk
    max_queries = min(MAX_QUERIES, MAX_RESULTS // topk)
    if len(queries) > max_queries:
        raise Refused(
            f"{len(queries)} queries with topk {topk}; at most {max_queries} at once, send several "
            "requests",
            "invalid",
        )
    return RetrievalRequest(
        [query[:MAX_QUERY_CHARS] for query in queries], topk, bool(body.return_scores)
    )


class RetrieveReply(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a reply: for each query, the hits or bare documents."""

    result: list[list[dict[str, Any]]]


class Retriever(Protocol):
    """Finds the best documents for queries."""

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return at most `topk` documents for each query, best first.

        Raises:
            RewardUnavailable: the retriever failed; the episode counts for nothing.
        """
        ...

    async def close(self) -> None:
        """Close the connections of the retriever."""
        ...


def as_result(hit_lists: Sequence[Sequence[Hit]], *, scores: bool) -> RetrieveReply:
    """Encode hits as the body of a reply, with or without scores."""
    return RetrieveReply(
        result=[
            [msgspec.to_builtins(hit if scores else hit.document) for hit in hits]
            for hits in hit_lists
        ]
    )


def as_hits(items: Sequence[dict[str, Any]]) -> list[Hit]:
    """Decode a server's answer to a single query, with scores or without.

    Raises:
        msgspec.ValidationError: an item is neither a hit nor a document.
    """
    return [_hit(item) for item in items]


def _hit(item: dict[str, Any]) -> Hit:
    row = item if "document" in item else {"document": item}
    document = {**row["document"]} if isinstance(row["document"], dict) else {}
    # Servers number their documents by position, by name or not at all; those that ask the web
    # (Search-R1's for Google and SerpAPI) have no scores.
    identity, score = document.get("id"), row.get("score")
    return msgspec.convert(
        {
            "document": {**document, "id": "" if identity is None else str(identity)},
            "score": 0.0 if score is None else score,
        },
        Hit,
        strict=False,
    )
