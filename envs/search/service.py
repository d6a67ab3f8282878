"""`/retrieve` over HTTP: any corpus behind the protocol that Search-R1's clients speak."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from ludus.wire.admission import Admission
from ludus.wire.faults import Refused
from ludus.wire.routes import Context, Load, Path, Route, post

from .bm25 import Bm25Index
from .protocol import (
    MOST_DOCUMENTS,
    RETRIEVE_PATH,
    RetrieveReply,
    RetrieveRequest,
    as_result,
)

SEARCH_TIMEOUT_S = 60.0
_KEY = "retrieve"


class RetrieverService:
    """Serves one index.

    Args:
        index: of the corpus.
        topk: documents for a query that does not say.
        max_queue: requests in flight; past it 429.
        threads: that search at once.
    """

    name = "retriever"

    def __init__(
        self, index: Bm25Index, *, topk: int = 3, max_queue: int = 1024, threads: int = 4
    ) -> None:
        self._index = index
        self._topk = topk
        self._admission = Admission(max_queue)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ludus-retriever")

    def routes(self) -> list[Route]:
        """The one route."""
        return [
            post(
                RETRIEVE_PATH, self.retrieve, RetrieveRequest, RetrieveReply,
                "Find documents, in Search-R1's protocol",
            )
        ]  # fmt: skip

    async def start(self, context: Context) -> None:
        """The index was built before."""

    async def stop(self) -> None:
        """Drop what waits; what runs ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def load(self) -> Load:
        """Not ready for more once the queue is taken."""
        depth, limit = self._admission.depth, self._admission.limit
        full = depth >= limit
        return Load(queue_depth=depth, limit=limit, problem="the queue is full" if full else "")

    async def retrieve(self, path: Path, body: RetrieveRequest) -> RetrieveReply:
        """`POST /retrieve`."""
        self._admission.enter(_KEY)
        began = time.monotonic()
        try:
            return await self._within_time(body)
        finally:
            self._admission.leave(_KEY, time.monotonic() - began)

    async def _within_time(self, body: RetrieveRequest) -> RetrieveReply:
        loop = asyncio.get_running_loop()
        searching = loop.run_in_executor(self._threads, self._search, body)
        try:
            return await asyncio.wait_for(searching, SEARCH_TIMEOUT_S)
        except TimeoutError:
            raise Refused(
                f"no result for {len(body.queries)} queries within {SEARCH_TIMEOUT_S:g} s; send "
                "fewer at once",
                "step_timeout",
            ) from None

    def _search(self, body: RetrieveRequest) -> RetrieveReply:
        topk = min(body.topk or self._topk, MOST_DOCUMENTS)
        return as_result(self._index.search(body.queries, topk), scores=body.return_scores)
