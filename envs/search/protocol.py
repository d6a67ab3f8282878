"""Search-R1's `/retrieve`, the protocol its trainer and those after it speak.

    POST /retrieve   {"queries": ["who ...", "where ..."], "topk": 3, "return_scores": true}
    200              {"result": [[{"document": {"id": "7", "contents": "\\"Title\\"\\ntext"},
                                   "score": 4.2}, ...], ...]}

One list for each query, best first. Without `return_scores` each item is the bare document;
`topk` may be left out, null or 0, and is then the server's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import msgspec

from .documents import Hit

RETRIEVE_PATH = "/retrieve"
MOST_QUERIES = 1024
MOST_DOCUMENTS = 100
"""For one query."""
MOST_QUERY_CHARS = 10_000


class RetrieveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request."""

    queries: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=MOST_QUERY_CHARS)]],
        msgspec.Meta(max_length=MOST_QUERIES),
    ]
    topk: Annotated[int, msgspec.Meta(ge=0, le=MOST_DOCUMENTS)] | None = None
    return_scores: bool = False


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
    found = item if "document" in item else {"document": item, "score": 0.0}
    document = {**found["document"]} if isinstance(found["document"], dict) else {}
    # Servers number their documents by position or by name.
    return msgspec.convert(
        {"document": {**document, "id": str(document.get("id", ""))}, "score": found.get("score")},
        Hit,
        strict=False,
    )
