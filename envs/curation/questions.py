"""Questions that a model writes over a corpus, and that are verified before they are kept.

After ASearcher (arXiv 2508.07976, section 3): a question about a page is made harder by
*injection*: the name that it mentions is replaced by what another page says of it. Here every page
is found by BM25 and named, and a question is kept where a reader of its pages gives the answer, and
a model without them does not.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..families.search.documents import Document, load_corpus
from ..families.search.questions import exact_match, normalize, read_answer
from ..families.search.retrievers import Bm25Index, corpus_index
from .collection import CandidateTasks, clusters_of
from .models import TaskAuthor, Unwritten, WrittenTask, write_tasks

MAX_PAGE_CHARS = 4_000
MAX_ANSWER_WORDS = 8
TRIES = 3
"""Attempts at a step whose text does not pass its checks."""


async def write_questions(corpus: str, author: TaskAuthor) -> CandidateTasks:
    """Write questions over a corpus.

    Args:
        corpus: a file of documents; see `load_corpus`.
        author: writes, and answers with and without the pages; its seed decides which pages are
            begun with.

    Returns:
        The questions, in clusters that share a page, with the columns `searches`, `pages`, `hops`
        and `known`.

    Raises:
        ConfigError: the corpus cannot be read.
        MissingExtra: bm25s is not installed.
        LudusError: the model could not answer.
    """
    documents, settings = load_corpus(corpus), author.settings
    rng = random.Random(f"questions/{author.seed}")
    numbers = rng.sample(range(len(documents)), min(settings.count, len(documents)))
    candidates = await write_tasks(
        corpus,
        [(number + 1, documents[number]) for number in numbers],
        QuestionWriter(author, corpus_index(corpus)).write,
        lambda tasks: clusters_of([task.columns["pages"] for task in tasks]),
        most=settings.concurrency,
    )
    hops = Counter(row["hops"] for row in candidates.columns.values())
    card: dict[str, Any] = {
        "model": author.model.name,
        "hops": {str(n): hops[n] for n in sorted(hops)},
    }
    card["known"] = {"samples": settings.samples, "most": settings.known}
    return replace(candidates, measured=card)


class QuestionWriter:
    """Writes a question from a page on.

    Args:
        author: writes and answers.
        index: finds pages.
    """

    def __init__(self, author: TaskAuthor, index: Bm25Index) -> None:
        self.author, self.index, self.settings = author, index, author.settings

    async def write(self, page: Document) -> WrittenTask:
        """Write a question that begins with a page, and verify it.

        Raises:
            Unwritten: no text passed the checks, or the question did not stand its tests.
            LudusError: the model could not answer.
        """
        question, answer = await self._draft(page)
        pages = [page]
        while len(pages) < self.settings.hops:
            injected = await self._injected(question, answer, pages)
            if injected is None:
                break
            question, pages = injected
        (hits,) = self.index.search([question], self.settings.topk)
        own = [page.id for page in pages]
        shown = [*pages, *(hit.document for hit in hits if hit.document.id not in own)]
        random.Random(question).shuffle(shown)
        listing = "\n".join(map(as_json, shown))
        read = await self._right(question, answer, f"Here are pages as JSON:\n\n{listing}\n\n")
        if read < self.settings.grounded:
            raise Unwritten("not answered from its pages", f"{read:.2f} of the answers are right")
        known = await self._right(question, answer, "")
        if known > self.settings.known:
            raise Unwritten("known without searching", f"{known:.2f} of the answers are right")
        columns: dict[str, Any] = {"searches": [page.title for page in pages], "pages": own}
        return WrittenTask(question, answer, columns | {"hops": len(own), "known": known})

    async def _draft(self, page: Document) -> tuple[str, str]:
        prompt = (
            f"Here is a page as JSON:\n\n{as_json(page)}\n\nWrite a question about it that has one "
            f"answer, of at most {MAX_ANSWER_WORDS} words, which stands on the page word for word. "
            f"The question names {page.title!r}, does not hold the answer, and can be understood "
            "without the page."
        )
        fault = "no JSON object"
        for attempt in range(TRIES):
            row = await self.author.fill(prompt, attempt, "question", "answer")
            if row is None:
                continue
            fault = draft_fault(row["question"], row["answer"], page)
            if not fault:
                return row["question"], row["answer"]
        raise Unwritten("no question was written", fault)

    async def _injected(
        self, question: str, answer: str, pages: Sequence[Document]
    ) -> tuple[str, list[Document]] | None:
        """Replace the name of the first page by what another page says; None where none does."""
        name = pages[0].title
        (hits,) = self.index.search([name], self.settings.topk + len(pages))
        used = {page.id for page in pages}
        telling = [
            hit.document
            for hit in hits
            if hit.document.id not in used
            and normalize(name) in normalize(hit.document.text)
            and normalize(hit.document.title) not in normalize(question)
        ]
        for attempt, other in enumerate(telling[:TRIES]):
            prompt = (
                f"Here is a question:\n\n{json.dumps(question)}\n\nand a page as JSON:\n\n"
                f"{as_json(other)}\n\nRewrite the question so that it does not name {name!r} any "
                f"more, but says who or what that is by what the page tells, and names "
                f"{other.title!r}. The description must fit nothing else, and the answer must "
                "stay the same."
            )
            row = await self.author.fill(prompt, attempt, "question")
            if row and not injection_fault(row["question"], name, other.title, answer):
                return row["question"], [other, *pages]
        return None

    async def _right(self, question: str, answer: str, before: str) -> float:
        """Return the share of answers that are right."""
        asked = (
            f"{before}Answer the question, as shortly as can be, between <answer> and </answer>.\n"
            f"\n{question}"
        )
        right = 0.0
        for number in range(self.settings.samples):
            text, _ = await self.author.write(asked, number)
            right += exact_match(read_answer(text) or "", [answer])
        return right / self.settings.samples


def draft_fault(question: str, answer: str, page: Document) -> str:
    """Return what is wrong with a first question; empty for one that may stay."""
    words = normalize(answer)
    if not words or len(words.split()) > MAX_ANSWER_WORDS:
        return f"the answer has no words, or more than {MAX_ANSWER_WORDS}"
    if f" {words} " not in f" {normalize(page.text)} ":
        return "the answer does not stand on the page"
    return named_fault(question, page.title, answer)


def injection_fault(question: str, name: str, title: str, answer: str) -> str:
    """Return what is wrong with a rewritten question; empty for one that may stay."""
    if normalize(name) in normalize(question):
        return f"the question still names {name!r}"
    return named_fault(question, title, answer)


def named_fault(question: str, title: str, answer: str) -> str:
    """Return what is wrong with how a question names its page and its answer."""
    words = f" {normalize(question)} "
    if f" {normalize(answer)} " in words:
        return "the question holds its answer"
    if f" {normalize(title)} " not in words:
        return f"the question does not name {title!r}"
    return ""


def as_json(page: Document) -> str:
    """Return a page as models are shown it, cut at `MAX_PAGE_CHARS`."""
    return json.dumps({"title": page.title, "text": page.text[:MAX_PAGE_CHARS]}, ensure_ascii=False)
