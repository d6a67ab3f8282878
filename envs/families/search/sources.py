"""The settings of the search environment, checked as a whole."""

from __future__ import annotations

import hashlib
import logging
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import urlsplit

from ludus.errors import ConfigError

from ...problem_files import ProblemSet, changed_at, check_shares
from ...tasks import SPLITS, GeneratedTasks, Task, TaskSet
from ..fiction import build_world
from .documents import place, read_rows, text_of
from .engines import RetrievingEngine, SearchEngine, SimulatedEngine
from .questions import (
    NoQuestion,
    QuestionMaker,
    QuestionShape,
    SearchQuestion,
    normalize,
    shapes_for,
)
from .retrievers import LocalRetriever, RemoteRetriever, corpus_index, fictional_index

MAX_TIMEOUT_S = 25.0
"""The longest `timeout_s`, in seconds. It is below the limit of a tool call: otherwise the policy
would see a late search as a failed call.
"""
MAX_HOPS = 8
TOKEN_VARIABLE = "LUDUS_RETRIEVER_TOKEN"
"""The environment variable with the bearer token of a retriever's server."""


class Style(StrEnum):
    """The way in which a policy searches."""

    TOOLS = "tools"
    """The policy calls a tool `search(query)`; the answer comes in `<answer>`."""
    TAGS = "tags"
    """The policy writes `<search>query</search>` in plain text, as in Search-R1."""


class Source(StrEnum):
    """The engine that answers searches; any other value is the address of a server."""

    BM25 = "bm25"
    """An index in this process."""
    SIMULATED = "simulated"
    """A model plays the search engine (ZeroSearch)."""
    SELF = "self"
    """The policy writes the results itself, in one turn (SSRL)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """The validated arguments of `Search`, where each field is described."""

    retriever: str
    style: str
    corpus: str
    questions: str
    topk: int
    hops: tuple[int, int]
    shapes: tuple[str, ...]
    reward: str
    noise: float
    format_weight: float
    world: int
    people: int
    max_turns: int
    base_url: str
    model: str
    timeout_s: float

    def __post_init__(self) -> None:
        _one_of("style", self.style, list(Style))
        _one_of("reward", self.reward, ["em", "f1"])
        for shape in self.shapes:
            _one_of("shapes", shape, list(QuestionShape))
        _within("topk", self.topk, 1, 20)
        _within("max_turns", self.max_turns, 1, 1000)
        check_noise(self.noise)
        _within("format_weight", self.format_weight, 0, 1)
        _within("timeout_s", self.timeout_s, 0.01, MAX_TIMEOUT_S)
        fewest, max_hops = self.hops
        if not 1 <= fewest <= max_hops <= MAX_HOPS:
            raise ConfigError(
                f"need 1 <= min_hops <= max_hops <= {MAX_HOPS}, got {fewest}, {max_hops}"
            )
        if not self.shapes or (fewest == 1 and QuestionShape.CHAIN not in self.shapes):
            raise ConfigError(
                f"questions with {fewest} hops are chains; shapes is {self.shapes!r}: add "
                "'chain', or set min_hops=2"
            )
        self._check_retriever()

    def _check_retriever(self) -> None:
        is_known = self.retriever in list(Source)
        if not is_known and not self.retriever.startswith(("http://", "https://")):
            raise ConfigError(
                f"retriever must be {', '.join(Source)} or a server's address such as "
                f"http://127.0.0.1:8000, got {self.retriever!r}"
            )
        if not is_known:
            url = self.retriever
            try:
                port = urlsplit(url).port
            except ValueError as error:
                raise ConfigError(f"retriever={url!r} is not a server's address: {error}") from None
            if port == 0:
                raise ConfigError(f"retriever={url!r} is not an address: servers have no port 0")
        if self.retriever == Source.SIMULATED and not (self.base_url and self.model):
            raise ConfigError("retriever='simulated' needs base_url and model, of a model's server")
        if self.retriever == Source.SELF and self.style != Style.TAGS:
            raise ConfigError("retriever='self' is written in tags: set style='tags'")
        if self.retriever != Source.BM25 and self.corpus:
            raise ConfigError(
                f"corpus={self.corpus!r} is searched by retriever='bm25' alone, got "
                f"retriever={self.retriever!r}: leave corpus out (a server is given its own: ludus "
                "retriever CORPUS)"
            )
        if self.retriever == Source.BM25 and bool(self.corpus) != bool(self.questions):
            raise ConfigError(
                "questions are about their corpus: set both corpus and questions to files, or "
                f"neither; got corpus={self.corpus!r}, questions={self.questions!r}"
            )

    @property
    def is_self_search(self) -> bool:
        """Whether the policy itself answers the searches."""
        return self.retriever == Source.SELF


def check_noise(noise: float) -> None:
    """Raise ConfigError unless `noise` is a probability."""
    _within("noise", noise, 0, 1)


def build_engine(settings: SearchSettings) -> SearchEngine | None:
    """Return the search engine; None where the policy itself answers.

    Raises:
        ConfigError: the corpus cannot be read.
        MissingExtra: BM25 is wanted and bm25s is not installed.
    """
    match settings.retriever:
        case Source.SELF:
            return None
        case Source.SIMULATED:
            return SimulatedEngine(settings.base_url, settings.model, timeout_s=settings.timeout_s)
        case Source.BM25:
            index = (
                corpus_index(settings.corpus)
                if settings.corpus
                else fictional_index(settings.world, settings.people)
            )
            return RetrievingEngine(LocalRetriever(index))
        case url:
            token = os.environ.get(TOKEN_VARIABLE, "")
            retriever = RemoteRetriever(url, timeout_s=settings.timeout_s, token=token)
            return RetrievingEngine(retriever)


def build_questions(
    settings: SearchSettings, *, seed: int, validation: float, test: float
) -> Questions:
    """Return the questions of the file in the settings, or a generator of questions."""
    if settings.questions:
        return FiledQuestions(settings.questions, seed=seed, validation=validation, test=test)
    shapes = [QuestionShape(shape) for shape in settings.shapes]
    return GeneratedQuestions(settings.world, settings.people, settings.hops, shapes)


def _one_of(name: str, value: str, choices: list[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} must be {' or '.join(choices)}, got {value!r}")


def _within(name: str, value: float, smallest: float, largest: float) -> None:
    if not smallest <= value <= largest:
        raise ConfigError(f"{name} must be from {smallest:g} to {largest:g}, got {value:g}")


logger = logging.getLogger(__name__)
_QUESTIONS = ("question", "Question", "query")
_ANSWERS = ("golden_answers", "answers", "answer", "Answer")


class Questions(Protocol):
    """A task set per split, and the question behind each task."""

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split."""
        ...

    def question(self, task: Task) -> SearchQuestion:
        """Return the question of a task."""
        ...


class _HopTasks(GeneratedTasks):
    """A task set with a question per seed; the difficulty is the number of hops."""

    def __init__(self, split: str, hops: tuple[int, int]) -> None:
        super().__init__(split)
        self._hops = hops

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty."""
        task = super().at(index)
        hops = float(random.Random(f"hops/{task.seed}").randint(*self._hops))
        return Task(id=task.id, split=task.split, seed=task.seed, difficulty=hops)


class GeneratedQuestions:
    """An endless supply of questions about a fictional world, with a separate realm for each split.

    Args:
        world: the seed of the world.
        people: the number of people in the world.
        hops: the fewest and the most hops.
        shapes: the shapes of questions.

    Raises:
        ConfigError: a split of this world has no such question.
    """

    def __init__(
        self, world: int, people: int, hops: tuple[int, int], shapes: Sequence[QuestionShape]
    ) -> None:
        self._hops = hops
        self._shapes = shapes
        self._makers = _makers(world, people)
        for split in SPLITS:
            for shape in shapes_for(hops[1], shapes):
                self._probe(split, shape)

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; no realm is in two splits."""
        return _HopTasks(split, self._hops)

    def question(self, task: Task) -> SearchQuestion:
        """Draw the question of a task from the task's seed."""
        hops = int(_HopTasks(task.split, self._hops).find(task.id).difficulty or 0)
        rng = random.Random(f"question/{task.seed}")
        shape = rng.choice(shapes_for(hops, self._shapes))
        return self._makers[task.split].draw(rng, hops=hops, shape=shape)

    def _probe(self, split: str, shape: QuestionShape) -> None:
        for hops in {max(self._hops[0], 1 + (shape is not QuestionShape.CHAIN)), self._hops[1]}:
            try:
                self._makers[split].draw(random.Random("probe"), hops=hops, shape=shape)
            except NoQuestion as error:
                raise ConfigError(f"{error}; make the world larger (people)") from None


@lru_cache(maxsize=4)
def _makers(world: int, people: int) -> dict[str, QuestionMaker]:
    world_drawn = build_world(world, people)
    return {split: QuestionMaker(world_drawn, split) for split in SPLITS}


@dataclass(frozen=True, slots=True)
class _Filed:
    """A question of a file."""

    id: str
    question: SearchQuestion
    difficulty: float | None = None


class FiledQuestions:
    """The questions of a file, each once, split by digest.

    Args:
        source: a file or a hub's data set, as for a corpus, of rows {question, answer}; `answer`
            may be a list of alternatives (`golden_answers`). A row may also have `searches`, the
            queries that a good searcher makes in order, which the demonstrator follows; without
            them it searches for the question.
        seed: seeds the split.
        validation: the share for validation.
        test: the share for test.

    Raises:
        ConfigError: no row has a question and an answer, or the shares are out of range.
    """

    def __init__(self, source: str, *, seed: int, validation: float, test: float) -> None:
        check_shares(validation, test)
        self._problems = _problems(source, seed, validation, test, changed_at(source))

    def tasks(self, split: str) -> TaskSet:
        """Return the questions of a split, shuffled."""
        return self._problems.tasks(split)

    def question(self, task: Task) -> SearchQuestion:
        """Return the question of a task."""
        return self._problems.problem(task).question


@lru_cache(maxsize=8)
def _problems(
    source: str, seed: int, validation: float, test: float, changed: int
) -> ProblemSet[_Filed]:
    filed: dict[str, _Filed] = {}
    left_out: list[int] = []
    for row in read_rows(source):
        read = _read(row.values)
        if read is None:
            left_out.append(row.number)
        else:
            filed.setdefault(read.id, read)
    if not filed:
        raise ConfigError(
            f"no row of {source!r} has a question and an answer: rows need 'question' and 'answer' "
            "(or 'golden_answers', a list)"
        )
    if left_out:
        logger.warning(
            "%s: %d questions; left out %d rows without a question or an answer that can be "
            "compared, the first at %s",
            source, len(filed), len(left_out), place(source, left_out[0]),
        )  # fmt: skip
    return ProblemSet(list(filed.values()), seed=seed, validation=validation, test=test)


def _read(row: Mapping[str, Any]) -> _Filed | None:
    question = text_of(row, _QUESTIONS)
    golds = next((golds for name in _ANSWERS if (golds := _golds(row.get(name)))), ())
    if not question or not golds:
        return None
    identity = hashlib.blake2b(" ".join(question.split()).encode(), digest_size=8).hexdigest()
    given_searches = row.get("searches")
    searches = (_golds(given_searches) if isinstance(given_searches, list) else ()) or (question,)
    # each search should find what the next one asks for, and the last the answer
    evidence = (*searches[1:], golds[0])
    return _Filed(identity, SearchQuestion(question, golds, searches=searches, evidence=evidence))


def _golds(raw_golds: object) -> tuple[str, ...]:
    """Return the answers that can be compared: an answer that is empty once normalised cannot."""
    gold_list = raw_golds if isinstance(raw_golds, list) else [raw_golds]
    texts = [str(gold).strip() for gold in gold_list if isinstance(gold, (str, int, float))]
    return tuple(text for text in texts if normalize(text))
