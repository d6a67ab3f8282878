"""The settings of the search environment, checked as a whole."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from ludus.errors import ConfigError

from .bm25 import corpus_index, fictional_index
from .engines import RetrievingEngine, SearchEngine, SimulatedEngine
from .questions import QuestionShape
from .retrievers import LocalRetriever, RemoteRetriever
from .sources import FiledQuestions, GeneratedQuestions, Questions

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
