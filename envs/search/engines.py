"""What answers a search: a retriever, at times with documents that do not help, or a model that
plays one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from ludus.errors import LudusError, RequestRejected, RewardUnavailable, Unauthorized
from ludus.llm import ChatClient
from ludus.messages import user
from ludus.verdict import Verdict
from ludus.wire.client import RetryPolicy

from .answers import normalize
from .documents import Document, Hit, document
from .protocol import MOST_DOCUMENTS, Retriever
from .questions import Question

SPARE = 20
"""Further documents looked at for some that do not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One search of an episode."""

    query: str
    topk: int
    question: Question
    """What the policy is to answer."""
    noisy: bool = False
    """Whether what is found must not help."""
    seed: int = 0
    """For engines that sample."""


class SearchEngine(Protocol):
    """Answers searches."""

    async def find(self, search: Search) -> list[Hit]:
        """At most `search.topk` documents, best first.

        Raises:
            RewardUnavailable: it cannot say; the episode counts for nothing.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class RetrievingEngine:
    """Searches a corpus. Noisy results are the best documents that neither are one of the pages
    that hold the way to the answer nor contain the answer: on the topic, and of no use.
    """

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever

    async def find(self, search: Search) -> list[Hit]:
        """See `SearchEngine.find`."""
        if not search.noisy:
            (found,) = await self._retriever.retrieve([search.query], search.topk)
            return found
        wanted = min(search.topk + SPARE, MOST_DOCUMENTS)
        (found,) = await self._retriever.retrieve([search.query], wanted)
        kept = [hit for hit in found if not _helps(hit.document, search.question)]
        return kept[: search.topk]

    async def close(self) -> None:
        """Close the retriever."""
        await self._retriever.close()


def _helps(found: Document, question: Question) -> bool:
    if found.title in question.pages:
        return True
    words = f" {normalize(found.contents)} "
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
    """A model plays the search engine (ZeroSearch, arXiv 2505.04588): it is told the
    question and its answer, and whether its documents have to help.

    Args:
        base_url: of an OpenAI-compatible server, up to and with `/v1`.
        model: as the server calls it.
        timeout_s: for one search, all attempts together.
    """

    def __init__(self, base_url: str, model: str, *, timeout_s: float) -> None:
        patience = RetryPolicy(timeout_s=timeout_s, attempt_timeout_s=timeout_s)
        self._client = ChatClient(base_url, model, patience=patience)

    async def find(self, search: Search) -> list[Hit]:
        """See `SearchEngine.find`."""
        prompt = _PROMPT.format(
            topk=search.topk, how=_NOISY if search.noisy else _USEFUL, query=search.query,
            question=search.question.text, answer=search.question.golds[0],
        )  # fmt: skip
        try:
            said = await self._client.complete([user(prompt)], seed=search.seed, max_tokens=2048)
        except LudusError as error:
            raise RewardUnavailable(_verdict(error)) from error
        found = read_documents(said.message.text)[: search.topk]
        if not found:
            raise RewardUnavailable(Verdict.unavailable("the simulated search engine said nothing"))
        return [Hit(document=one, score=0.0) for one in found]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _verdict(error: LudusError) -> Verdict:
    said = f"the simulated search engine: {error}"
    ours = isinstance(error, (RequestRejected, Unauthorized))
    return Verdict.error(said) if ours else Verdict.unavailable(said)


_DOCUMENT = re.compile(r'^Doc (\d+) ?\(Title: ?"?([^"\n]*?)"?\) ?(.*)$', re.MULTILINE)


def read_documents(text: str) -> list[Document]:
    """What a model wrote as search results; text of another form is one document.

    >>> [one.title for one in read_documents('Doc 1(Title: "Thebes") A town.')]
    ['Thebes']
    """
    found = [document(number, title, said) for number, title, said in _DOCUMENT.findall(text)]
    return found or ([document("1", "", text.strip())] if text.strip() else [])
