"""Serves `/retrieve` over HTTP: any corpus behind the protocol that Search-R1's clients speak."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from ludus.wire.admission import Admission
from ludus.wire.faults import Refused
from ludus.wire.routes import Context, Load, Path, Route, post

from .bm25 import Bm25Index
from .documents import Hit
from .protocol import (
    RETRIEVE_PATH,
    RetrievalRequest,
    RetrieveBody,
    RetrieveReply,
    RetrieveRequest,
    as_result,
    read_request,
)

SEARCH_TIMEOUT_S = 60.0
QUERIES_AT_ONCE = 64
"""After so many queries a search checks its time limit."""
_KEY = "retrieve"


class RetrieverService:
    """A service that searches a single index.

    Args:
        index: the index of the corpus.
        topk: how many documents a query gets that does not say.
        max_queue: the most requests in flight; a further request is refused with 503.
        threads: how many threads search at once.
        timeout_s: the time limit of a request in seconds, including its time in the queue.
    """

    name = "retriever"

    def __init__(
        self,
        index: Bm25Index,
        *,
        topk: int = 3,
        max_queue: int = 1024,
        threads: int = 4,
        timeout_s: float = SEARCH_TIMEOUT_S,
    ) -> None:
        self._index = index
        self._topk = topk
        self._timeout_s = timeout_s
        self._admission = Admission(max_queue)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ludus-retriever")

    def routes(self) -> list[Route]:
        """Return the service's only route.

        Clients of this protocol send no header and do not repeat a 429, so a token may be in the
        path, and a full queue is answered with 503.
        """
        route = post(
            RETRIEVE_PATH, self.retrieve, RetrieveBody, RetrieveReply,
            "Find documents, in Search-R1's protocol", documented=RetrieveRequest,
        )  # fmt: skip
        unavailable = int(HTTPStatus.SERVICE_UNAVAILABLE)
        return [
            dataclasses.replace(route, token_in_path=True, dialect=True, retry_status=unavailable)
        ]

    async def start(self, context: Context) -> None:
        """Do nothing: the index was built before."""

    async def stop(self) -> None:
        """Drop the waiting requests; running searches end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def load(self) -> Load:
        """Return the length of the queue; a full queue makes the service unready."""
        depth, limit = self._admission.depth, self._admission.limit
        full = depth >= limit
        return Load(queue_depth=depth, limit=limit, problem="the queue is full" if full else "")

    async def retrieve(self, path: Path, body: RetrieveBody) -> RetrieveReply:
        """Answer a request to `POST /retrieve`."""
        request = read_request(body, self._topk)
        self._admission.enter(_KEY)
        began = time.monotonic()
        try:
            loop = asyncio.get_running_loop()
            deadline = began + self._timeout_s
            return await loop.run_in_executor(self._threads, self._search, request, deadline)
        finally:
            self._admission.leave(_KEY, time.monotonic() - began)

    def _search(self, request: RetrievalRequest, deadline: float) -> RetrieveReply:
        hits: list[list[Hit]] = []
        for first in range(0, len(request.queries), QUERIES_AT_ONCE):
            if time.monotonic() >= deadline:
                raise Refused(
                    f"{len(hits)} of {len(request.queries)} queries were searched for within "
                    f"{self._timeout_s:g} s; send fewer at once, or give the server more --threads",
                    "step_timeout",
                )
            queries = request.queries[first : first + QUERIES_AT_ONCE]
            hits += self._index.search(queries, request.topk)
        return as_result(hits, scores=request.return_scores)
