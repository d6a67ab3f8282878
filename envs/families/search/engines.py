"""Search engines for episodes: a retriever, with noise or without, or a model instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from ludus.errors import LudusError, RequestRejected, RewardUnavailable, Unauthorized
from ludus.llm.client import ChatClient
from ludus.messages import user
from ludus.thoughts import apart
from ludus.verdict import Verdict
from ludus.wire.client import RetryPolicy

from .documents import Document, Hit, document
from .protocol import MAX_DOCUMENTS, Retriever
from .questions import SearchQuestion, normalize

SPARE = 20
"""How many further documents are retrieved in the search for documents that do not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSession:
    """A search that the policy makes in an episode."""

    query: str
    topk: int
    question: SearchQuestion
    """The question that the policy is to answer."""
    noisy: bool = False
    """Whether the results must be of no use for the answer."""
    seed: int = 0
    """The seed for engines that sample."""


class SearchEngine(Protocol):
    """Answers the searches of an episode."""

    async def find(self, search: SearchSession) -> list[Hit]:
        """Return at most `search.topk` documents, best first.

        Raises:
            RewardUnavailable: the engine failed; the episode counts for nothing.
        """
        ...

    async def close(self) -> None:
        """Close the connections of the engine."""
        ...


class RetrievingEngine:
    """A search engine over a retriever.

    Noisy results are the best documents that neither are a page on the way to the answer nor
    contain the answer: on the topic, but of no use.
    """

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever

    async def find(self, search: SearchSession) -> list[Hit]:
        """Retrieve documents, as `SearchEngine.find` describes."""
        if not search.noisy:
            (hits,) = await self._retriever.retrieve([search.query], search.topk)
            return hits
        hit_count = min(search.topk + SPARE, MAX_DOCUMENTS)
        (hits,) = await self._retriever.retrieve([search.query], hit_count)
        kept_hits = [hit for hit in hits if not _helps(hit.document, search.question)]
        return kept_hits[: search.topk]

    async def close(self) -> None:
        """Close the connections of the retriever."""
        await self._retriever.close()


def _helps(candidate: Document, question: SearchQuestion) -> bool:
    if candidate.title in question.pages:
        return True
    words = f" {normalize(candidate.contents)} "
    return any(f" {normalize(gold)} " in words for gold in question.golds)


_USEFUL = (
    "Among them, the documents must say what the query asks for, in passing, the way an "
    "encyclopedia does. Do not mention the question."
)
_NOISY = (
    "None of the documents may help: each is about something close to the query, and none says "
    "or implies what the query asks for or the answer to the question."
)
_PROMPT = """\
Play a search engine. Write the {topk} documents it finds for a query, each about 30 words, each \
on a line of its own that begins with 'Doc 1(Title: "...")', 'Doc 2(Title: "...")' and so on. \
Write nothing else.
{how}

The query: {query}
Whoever searches wants to answer: {question}
The answer is: {answer}"""


class SimulatedEngine:
    """A model that plays the search engine (ZeroSearch, arXiv 2505.04588).

    The model is told the question and its answer, and whether its documents have to help.

    Args:
        base_url: the address of an OpenAI-compatible server, up to and with `/v1`.
        model: the model's name on that server.
        timeout_s: the time limit of a search in seconds, over all attempts.
    """

    def __init__(self, base_url: str, model: str, *, timeout_s: float) -> None:
        patience = RetryPolicy(timeout_s=timeout_s, attempt_timeout_s=timeout_s)
        self._client = ChatClient(base_url, model, patience=patience)

    async def find(self, search: SearchSession) -> list[Hit]:
        """Let the model write documents, as `SearchEngine.find` describes."""
        prompt = _PROMPT.format(
            topk=search.topk, how=_NOISY if search.noisy else _USEFUL, query=search.query,
            question=search.question.text, answer=search.question.golds[0],
        )  # fmt: skip
        try:
            completion = await self._client.complete(
                [user(prompt)], seed=search.seed, max_tokens=2048
            )
        except LudusError as error:
            message = f"the simulated search engine: {error}"
            is_ours = isinstance(error, (RequestRejected, Unauthorized))
            raise RewardUnavailable(
                Verdict.error(message) if is_ours else Verdict.unavailable(message)
            ) from error
        documents = read_documents(apart(completion.message).text)[: search.topk]
        if not documents:
            raise RewardUnavailable(Verdict.unavailable("the simulated search engine said nothing"))
        return [Hit(document=written, score=0.0) for written in documents]

    async def close(self) -> None:
        """Close the connections to the model's server."""
        await self._client.close()


_DOCUMENT = re.compile(r'^Doc (\d+) ?\(Title: ?"?([^"\n]*?)"?\) ?(.*)$', re.MULTILINE)


def read_documents(text: str) -> list[Document]:
    """Read the search results that a model wrote; text in another form becomes a single document.

    >>> [one.title for one in read_documents('Doc 1(Title: "Thebes") A town.')]
    ['Thebes']
    """
    documents = [
        document(number, title, contents) for number, title, contents in _DOCUMENT.findall(text)
    ]
    return documents or ([document("1", "", text.strip())] if text.strip() else [])
