"""BM25 search over a corpus, by the library bm25s (Lù, arXiv 2407.03618).

The index uses Lucene's variant with k1 = 1.5 and b = 0.75, and lower-cased words of two letters and
more without English stop words.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import msgspec

from ludus.errors import (
    LudusError,
    MissingExtra,
    Overloaded,
    RequestRejected,
    RequestTimeout,
    RewardUnavailable,
    ServerFault,
    ServerUnreachable,
)
from ludus.verdict import Verdict
from ludus.wire.admission import Admission
from ludus.wire.client import AsyncTransport, Client, RetryPolicy
from ludus.wire.codec import Format
from ludus.wire.faults import Refused
from ludus.wire.routes import Context, Load, Path, Route, post

from ...problem_files import changed_at
from .documents import Document, Hit, fictional_corpus, load_corpus
from .protocol import (
    RETRIEVE_PATH,
    RetrievalRequest,
    RetrieveBody,
    RetrieveReply,
    RetrieveRequest,
    as_hits,
    as_result,
    read_request,
)


class Bm25Index:
    """A thread-safe index in memory; the same query always has the same result."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        try:
            library = importlib.import_module("bm25s")
        except ImportError:
            raise MissingExtra.of("search", needed_for="BM25 search") from None
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # the library sets DEBUG by itself
        self._library = library
        self._index: Any = self._library.BM25()
        words = self._words([document.contents for document in documents])
        # A corpus of stop words alone has no vocabulary, and bm25s cannot index it.
        self._is_empty = not any(words)
        if not self._is_empty:
            self._index.index(words, show_progress=False)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return, for each query, at most `topk` documents, best first.

        A document that shares no word with the query is not found. Where scores are equal, the
        order of the corpus decides.
        """
        if self._is_empty or topk < 1:
            return [[] for _ in queries]
        return [self._top_hits(words, topk) for words in self._words(queries)]

    def _top_hits(self, words: list[str], topk: int) -> list[Hit]:
        word_ids = self._index.get_tokens_ids(words)
        if not word_ids:
            return []
        scores = self._index.get_scores(word_ids)
        # The documents with the `topk` highest scores above 0; ties are in corpus order.
        positions = scores.nonzero()[0]
        if len(positions) > topk:
            values = scores[positions]
            values.partition(len(values) - topk)
            positions = positions[scores[positions] >= values[-topk]]
        order = (-scores[positions]).argsort(kind="stable")
        best: list[int] = positions[order][:topk].tolist()
        return [Hit(document=self.documents[n], score=float(scores[n])) for n in best]

    def _words(self, texts: Sequence[str]) -> list[list[str]]:
        if not texts:
            return []
        words: list[list[str]] = self._library.tokenize(
            list(texts), stopwords="en", return_ids=False, show_progress=False
        )
        return words


_building = threading.Lock()


def corpus_index(source: str) -> Bm25Index:
    """Return the index of a file's documents, built once for all environments of the process.

    Raises:
        ConfigError: `load_corpus` refuses the file.
        MissingExtra: bm25s is not installed.
    """
    with _building:
        return _corpus_index(source, changed_at(source))


def fictional_index(world: int, people: int) -> Bm25Index:
    """Return the index of a fictional world, built once for all environments of the process."""
    with _building:
        return _fictional_index(world, people)


@lru_cache(maxsize=4)
def _corpus_index(source: str, changed: int) -> Bm25Index:
    return Bm25Index(load_corpus(source))


@lru_cache(maxsize=4)
def _fictional_index(world: int, people: int) -> Bm25Index:
    return Bm25Index(fictional_corpus(world, people))


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
        principal = self._admission.enter(_KEY)
        began = time.monotonic()
        try:
            loop = asyncio.get_running_loop()
            deadline = began + self._timeout_s
            return await loop.run_in_executor(self._threads, self._search, request, deadline)
        finally:
            self._admission.leave(_KEY, time.monotonic() - began, principal)

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
