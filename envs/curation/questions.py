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
from dataclasses import dataclass
from typing import Any

from ludus.errors import ConfigError
from ludus.messages import user

from ..families.maths import MathsProblem, digest
from ..families.search.documents import Document, load_corpus
from ..families.search.questions import exact_match, normalize, read_answer
from ..families.search.retrievers import Bm25Index, corpus_index
from .collection import CandidateTasks, LeftOut, clusters_of
from .models import TOO_LONG, TaskModel, ask_for, at_once

MAX_PAGE_CHARS = 4_000
MAX_ANSWER_WORDS = 8
TRIES = 3
"""Attempts at a step whose text does not pass its checks."""


@dataclass(frozen=True, kw_only=True)
class WriteSettings:
    """How a model writes tasks, and which of them are kept."""

    count: int = 100
    """How many tasks are begun: pages of a corpus, or designs of files."""
    hops: int = 2
    """The most pages that a question takes."""
    samples: int = 4
    """Answers by which a task is verified."""
    grounded: float = 0.75
    """The least share of readers of the pages who give the answer of a question."""
    known: float = 0.25
    """The highest share of answers without the pages that are right."""
    topk: int = 5
    """How many pages a search finds."""
    max_tokens: int = 1024
    """The most tokens of what the model writes at a time."""
    temperature: float = 0.8
    """The temperature at which it writes."""
    concurrency: int = 16
    """The most tasks that are written at the same time."""

    def __post_init__(self) -> None:
        if min(self.count, self.hops, self.samples, self.topk, self.concurrency) < 1:
            raise ConfigError(
                "need count, hops, samples, topk and concurrency >= 1, got "
                f"{self.count}, {self.hops}, {self.samples}, {self.topk}, {self.concurrency}"
            )
        if not (0 <= self.grounded <= 1 and 0 <= self.known <= 1):
            raise ConfigError(
                f"grounded and known are shares from 0 to 1, got {self.grounded:g}, {self.known:g}"
            )


@dataclass(frozen=True)
class WrittenQuestion:
    """A question with the pages it takes, from the first that has to be found to the answer's."""

    question: str
    answer: str
    pages: tuple[Document, ...]
    known: float = 0.0
    """The share of answers without the pages that were right."""


class Unwritten(Exception):
    """A question that is not kept; the first argument is the reason, the second a detail."""


async def write_questions(
    corpus: str, model: TaskModel, settings: WriteSettings, *, seed: int
) -> tuple[CandidateTasks, dict[str, dict[str, Any]], dict[str, Any]]:
    """Write questions over a corpus.

    Args:
        corpus: a file of documents; see `load_corpus`.
        model: writes, and answers with and without the pages.
        settings: how many, and what is kept.
        seed: decides which pages are begun with.

    Returns:
        The questions, in clusters that share a page; the columns `searches`, `pages`, `hops` and
        `known` of each, by id; and what is told on the card.

    Raises:
        ConfigError: the corpus cannot be read.
        MissingExtra: bm25s is not installed.
        LudusError: the model could not answer.
    """
    documents, index = load_corpus(corpus), corpus_index(corpus)
    rng = random.Random(f"questions/{seed}")
    numbers = rng.sample(range(len(documents)), min(settings.count, len(documents)))
    writer = QuestionWriter(model, index, settings, seed=seed)

    async def begun(number: int) -> WrittenQuestion | Unwritten:
        try:
            return await writer.write(documents[number])
        except Unwritten as refusal:
            return refusal
        except TOO_LONG:
            return Unwritten("too long for the model", documents[number].title)

    written = await at_once(numbers, begun, settings.concurrency)
    kept: dict[str, tuple[int, WrittenQuestion]] = {}
    left_out: list[LeftOut] = []
    for number, result in zip(numbers, written, strict=True):
        row = number + 1
        if isinstance(result, Unwritten):
            left_out.append(LeftOut(row, str(result.args[0]), str(result.args[1])))
        elif (name := digest(result.question)) in kept:
            left_out.append(LeftOut(row, "repeated", f"row {kept[name][0]}"))
        else:
            kept[name] = (row, result)
    problems = [
        (row, MathsProblem(id=name, question=each.question, gold=each.answer))
        for name, (row, each) in kept.items()
    ]
    labels = clusters_of([[page.id for page in each.pages] for _, each in kept.values()])
    columns = {name: _columns(each) for name, (_, each) in kept.items()}
    hops = Counter(len(each.pages) for _, each in kept.values())
    told = {"model": model.name, "hops": {str(n): hops[n] for n in sorted(hops)}}
    told["known"] = {"samples": settings.samples, "most": settings.known}
    return CandidateTasks(corpus, len(numbers), problems, labels, left_out), columns, told


def _columns(written: WrittenQuestion) -> dict[str, Any]:
    titles = [page.title for page in written.pages]
    return {"searches": titles, "pages": [page.id for page in written.pages],
            "hops": len(titles), "known": written.known}  # fmt: skip


class QuestionWriter:
    """Writes a question from a page on.

    Args:
        model: writes and answers.
        index: finds pages.
        settings: see `WriteSettings`.
        seed: the seed of what the model writes.
    """

    def __init__(
        self, model: TaskModel, index: Bm25Index, settings: WriteSettings, *, seed: int
    ) -> None:
        self.model, self.index, self.settings, self.seed = model, index, settings, seed

    async def write(self, page: Document) -> WrittenQuestion:
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
        return await self._verified(WrittenQuestion(question, answer, tuple(pages)))

    async def _draft(self, page: Document) -> tuple[str, str]:
        prompt = (
            f"Here is a page as JSON:\n\n{_shown(page)}\n\nWrite a question about it that has one "
            f"answer, of at most {MAX_ANSWER_WORDS} words, which stands on the page word for word. "
            f"The question names {page.title!r}, does not hold the answer, and can be understood "
            "without the page."
        )
        fault = "no JSON object"
        for attempt in range(TRIES):
            row = await self._asked(prompt, attempt, "question", "answer")
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
                f"{_shown(other)}\n\nRewrite the question so that it does not name {name!r} any "
                f"more, but says who or what that is by what the page tells, and names "
                f"{other.title!r}. The description must fit nothing else, and the answer must "
                "stay the same."
            )
            row = await self._asked(prompt, attempt, "question")
            if row and not injection_fault(row["question"], name, other.title, answer):
                return row["question"], [other, *pages]
        return None

    async def _verified(self, written: WrittenQuestion) -> WrittenQuestion:
        (hits,) = self.index.search([written.question], self.settings.topk)
        own = {page.id for page in written.pages}
        near = [hit.document for hit in hits if hit.document.id not in own]
        pages = [*written.pages, *near]
        random.Random(written.question).shuffle(pages)
        shown = "\n".join(map(_shown, pages))
        read = await self._right(written, f"Here are pages as JSON:\n\n{shown}\n\n")
        if read < self.settings.grounded:
            raise Unwritten("not answered from its pages", f"{read:.2f} of the answers are right")
        known = await self._right(written, "")
        if known > self.settings.known:
            raise Unwritten("known without searching", f"{known:.2f} of the answers are right")
        return WrittenQuestion(written.question, written.answer, written.pages, known)

    async def _right(self, written: WrittenQuestion, before: str) -> float:
        """Return the share of answers that are right."""
        asked = (
            f"{before}Answer the question, as shortly as can be, between <answer> and </answer>.\n"
            f"\n{written.question}"
        )
        right = 0.0
        for number in range(self.settings.samples):
            text, _ = await self.model.write(
                [user(asked)],
                max_tokens=self.settings.max_tokens,
                temperature=self.settings.temperature,
                seed=self.seed + number,
            )
            right += exact_match(read_answer(text) or "", [written.answer])
        return right / self.settings.samples

    async def _asked(self, prompt: str, attempt: int, *fields: str) -> dict[str, str] | None:
        return await ask_for(
            self.model,
            prompt,
            *fields,
            max_tokens=self.settings.max_tokens,
            temperature=self.settings.temperature,
            seed=self.seed + attempt,
        )


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


def _shown(page: Document) -> str:
    return json.dumps({"title": page.title, "text": page.text[:MAX_PAGE_CHARS]}, ensure_ascii=False)
