"""Search-R1's tags: `<search>` and `<answer>` in plain text, results in `<information>`.

    user       Who is the mayor of the town where the founder of Tisenmar Mills was born?
    assistant  search(query="Tisenmar Mills")
    tool       Doc 1(Title: "Tisenmar Mills") Tisenmar Mills is a company. This company was ...
    ...
    assistant  <answer>Runa Larley</answer>              reward 1

By default the questions are about a fictional world that nobody has read about, and the corpus is
that world's pages; each split has a realm of the world that nothing connects to the others. A
retriever that is down, late or sends nonsense ends the episode without a reward.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from ludus.errors import RewardUnavailable, ToolError
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict

from ...protocol import Briefing, Info, TextEnv
from ...tasks import TaskSet
from ...tools import Tool, tool
from .documents import shown
from .engines import SearchSession
from .questions import (
    MAX_ANSWER_CHARS,
    QuestionShape,
    SearchQuestion,
    exact_match,
    f1,
    notes_of,
    read_answer,
)
from .sources import SearchSettings, Source, Style, build_engine, build_questions, check_noise

RETRY = (
    "That was neither a search nor an answer. To search, write the query between <search> and "
    "</search>; to answer, write the answer between <answer> and </answer>."
)
_TAG = re.compile(r"<(/?)(think|search|information|answer)>")
_ANY_TAG = re.compile(r"<(?=/?(?:think|search|information|answer)>)")


@dataclass(frozen=True, slots=True)
class TagAction:
    """The action that the first closed tag asks for."""

    name: str
    """`search` or `answer`; empty where the text has neither tag."""
    content: str = ""


def read_action(text: str) -> TagAction:
    """Return the first closed `<search>` or `<answer>`.

    >>> read_action("I need more. <search>capital of Kilria</search> <answer>no</answer>")
    TagAction(name='search', content='capital of Kilria')
    """
    tags = [
        (begin, name, text[begin + len(name) + 2 : end].strip())
        for name in ("search", "answer")
        if (begin := text.find(f"<{name}>")) >= 0 and (end := text.find(f"</{name}>", begin)) >= 0
    ]
    if not tags:
        return TagAction("")
    _, name, content = min(tags)
    return TagAction(name, content)


def as_information(documents: str) -> str:
    """Format search results as an observation.

    Tags inside the documents are escaped, so that no document can answer for the policy.
    """
    return f"\n\n<information>{_ANY_TAG.sub('&lt;', documents)}</information>\n\n"


def is_well_formed(text: str) -> bool:
    """Return whether a whole self-search (SSRL, arXiv 2508.10874) keeps to the format.

    All tags are closed and not nested, each search is followed by its information, and there is
    exactly one answer, at the end.
    """
    order = _tags(text)
    if order is None or order.count("answer") != 1 or order[-1] != "answer":
        return False
    acts = [name for name in order[:-1] if name != "think"]
    pairs = list(zip(acts[::2], acts[1::2], strict=False))
    return len(acts) % 2 == 0 and all(pair == ("search", "information") for pair in pairs)


def _tags(text: str) -> list[str] | None:
    """Return the tags in order; None where a tag is not closed, or another begins inside."""
    order: list[str] = []
    inside = ""
    for match in _TAG.finditer(text):
        closes, name = bool(match[1]), match[2]
        if (closes and inside != name) or (not closes and inside):
            return None
        inside = "" if closes else name
        if not closes:
            order.append(name)
    return None if inside else order


MAX_QUERY_CHARS = 1_000
MAX_TEXT_CHARS = 2_000
"""The most characters of a title or a text that a search shows."""
NOTHING_FOUND = "Nothing was found."
NO_ANSWER = "Give the final answer between <answer> and </answer>, or search for more."

_TAGS_PROMPT = (
    "Answer the question. To search, write the query between <search> and </search>; what is "
    "found comes back between <information> and </information>. Search as often as you need to, "
    "for one fact at a time."
)
_SELF_PROMPT = (
    "Answer the question. Search in your own memory: write a query between <search> and "
    "</search>, and after it, between <information> and </information>, what a search engine "
    "would find. Search as often as you need to, for one fact at a time."
)

Stepped = tuple[str, float | Verdict, bool, bool, Info]


class Search(TextEnv):
    """An environment of multi-hop questions over a corpus that BM25, a server or a model searches.

    Args:
        retriever: `bm25`, the address of a server that speaks Search-R1's `/retrieve`,
            `simulated` (a model plays the search engine), or `self` (the policy does).
        style: `tools`, or `tags` for `<search>` in plain text.
        corpus: a file of {title, text} or {id, contents}; empty is the fictional world.
        questions: a file of {question, answer}; empty generates questions about that world.
        topk: how many documents a search shows.
        min_hops: the fewest pages that an answer takes.
        max_hops: the most pages that an answer takes.
        shapes: the shapes of generated questions; see `QuestionShape`.
        reward: `em` (exact match) or `f1`, after SQuAD.
        noise: the probability that a search finds nothing of use; also a reset option.
        format_weight: the share of the reward that is for keeping to the format; SSRL has 0.2.
        world: the seed of the fictional world.
        people: the number of people in the fictional world.
        seed: seeds the split of a questions file.
        validation: the share of a questions file for validation.
        test: the share of a questions file for test.
        max_turns: after how many turns the episode is truncated.
        base_url: the address of the model's server for `simulated`, up to and with `/v1`.
        model: the model's name on that server.
        timeout_s: the time limit of a search by a server or model, in seconds.
    """

    system_prompt = (
        "Answer the question. Search for what you need to know, one fact at a time; names alone "
        "make good queries."
    )
    answer_format = "Give the final answer, as short as it can be, between <answer> and </answer>."
    reset_options: ClassVar[Mapping[str, type]] = {"noise": float}

    def __init__(
        self,
        *,
        retriever: str = Source.BM25,
        style: str = Style.TOOLS,
        corpus: str = "",
        questions: str = "",
        topk: int = 3,
        min_hops: int = 1,
        max_hops: int = 3,
        shapes: Sequence[str] = tuple(QuestionShape),
        reward: str = "em",
        noise: float = 0.0,
        format_weight: float = 0.0,
        world: int = 0,
        people: int = 240,
        seed: int = 0,
        validation: float = 0.05,
        test: float = 0.1,
        max_turns: int = 10,
        base_url: str = "",
        model: str = "",
        timeout_s: float = 10.0,
    ) -> None:
        self.settings = SearchSettings(
            retriever=retriever, style=style, corpus=corpus, questions=questions, topk=topk,
            hops=(min_hops, max_hops), shapes=tuple(shapes), reward=reward, noise=noise,
            format_weight=format_weight, world=world, people=people, max_turns=max_turns,
            base_url=base_url, model=model, timeout_s=timeout_s,
        )  # fmt: skip
        self.deterministic = retriever != Source.SIMULATED
        self.questions = build_questions(self.settings, seed=seed, validation=validation, test=test)
        self.engine = build_engine(self.settings)
        self.question = SearchQuestion("", ())
        self._noise = noise
        self._begin()

    def _begin(self) -> None:
        self._searches = self._noisy = self._faults = self._shown = 0
        self._repeated = 0  # searches up to which the expert has made one again
        self._found: list[tuple[str, str]] = []
        """The queries that were searched for, and what each was shown, in order."""

    @property
    def tools(self) -> dict[str, Tool]:
        """The tool `search`, in the style `tools`; no tool in the style `tags`."""
        return super().tools if self.settings.style == Style.TOOLS else {}

    def briefing(self) -> Briefing:
        """Return the briefing of the style."""
        if self.settings.style == Style.TOOLS:
            return msgspec.structs.replace(super().briefing(), max_turns=self.settings.max_turns)
        is_own = self.settings.is_self_search
        return Briefing(
            system_prompt=_SELF_PROMPT if is_own else _TAGS_PROMPT,
            answer_format=self.answer_format,
            max_turns=1 if is_own else self.settings.max_turns,
        )

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set for generated questions, else the questions of the file."""
        return self.questions.tasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the question.

        Raises:
            ConfigError: the option `noise` is not a probability.
        """
        self._noise = (options or {}).get("noise", self.settings.noise)
        check_noise(self._noise)
        self._begin()
        self.question = self.questions.question(self.task)
        return self.question.text, {}

    @tool
    async def search(self, query: str) -> str:
        """Search for documents.

        Args:
            query: what to look for; a name works best
        """
        if not query.strip():
            raise ToolError("the query is empty")
        if len(query) > MAX_QUERY_CHARS:
            raise ToolError(
                f"the query has {len(query)} characters; at most {MAX_QUERY_CHARS} are read"
            )
        if self.engine is None:
            raise RewardUnavailable(Verdict.error("this episode has no search engine"))
        noisy = self.rng.random() < self._noise
        request = SearchSession(
            query=query, topk=self.settings.topk, question=self.question, noisy=noisy,
            seed=self.rng.getrandbits(31),
        )  # fmt: skip
        search_result = await self.engine.find(request)
        self._searches += 1
        self._noisy += noisy
        result = shown(search_result, MAX_TEXT_CHARS) or NOTHING_FOUND
        self._found.append((query, result))
        return result

    async def step(self, action: str | Message) -> Stepped:
        """Score an answer, which ends the episode; in the style `tags`, also run a search."""
        text = action if isinstance(action, str) else action.text
        if self.settings.style == Style.TAGS and not self.settings.is_self_search:
            return await self._step_by_tag(text)
        answer = read_answer(text)
        if self.settings.is_self_search:
            self._faults = int(not is_well_formed(text))
            return "", self._verdict(answer or ""), True, False, {}
        if answer is None:
            self._faults += 1
            return NO_ANSWER, 0.0, False, False, {}
        return "", self._verdict(answer), True, False, {}

    async def _step_by_tag(self, text: str) -> Stepped:
        action = read_action(text)
        if action.name == "answer":
            return "", self._verdict(action.content), True, False, {}
        if action.name == "search":
            try:
                return as_information(await self.search(action.content)), 0.0, False, False, {}
            except ToolError as error:
                self._faults += 1
                return as_information(str(error)), 0.0, False, False, {}
        self._faults += 1
        return RETRY, 0.0, False, False, {}

    def _verdict(self, answer: str) -> Verdict:
        """Weigh the outcome and the format: (1 - w) outcome + w format."""
        answer_text = answer[: MAX_ANSWER_CHARS + 1]
        golds = self.question.golds
        scores = {"em": exact_match(answer_text, golds), "f1": f1(answer_text, golds)}
        if len(answer_text) > MAX_ANSWER_CHARS:
            scores = dict.fromkeys(scores, 0.0)
        outcome, weight = scores[self.settings.reward], self.settings.format_weight
        parts = {self.settings.reward: (outcome, 1 - weight)}
        followed_format = float(not self._faults)
        if weight:
            parts["format"] = (followed_format, weight)
        counts = {"searches": float(self._searches), "noisy_searches": float(self._noisy)}
        return Verdict.of(
            (1 - weight) * outcome + weight * followed_format,
            "right" if outcome == 1 else f"answered {answer_text[:80]!r}",
            parts=parts,
            metrics={**scores, **counts},
        )

    async def close(self) -> None:
        """Close the search engine's connections."""
        if self.engine is not None:
            await self.engine.close()

    def gold(self) -> str | list[str]:
        """Return the answer, or a list of acceptable answers."""
        golds = self.question.golds
        return golds[0] if len(golds) == 1 else list(golds)

    def demonstrate(self) -> str | Message:
        """Search for each page on the way, then answer."""
        answer = f"<answer>{self.question.golds[0]}</answer>"
        if self.settings.is_self_search:
            # Write what a policy that knew every page by heart would write.
            pairs = zip(self.question.searches, self.question.evidence, strict=True)
            return (
                "".join(
                    f"<search>{query}</search><information>{information}</information>"
                    for query, information in pairs
                )
                + answer
            )
        if self._shown == len(self.question.searches):
            return answer
        query = self.question.searches[self._shown]
        self._shown += 1
        if self.settings.style == Style.TAGS:
            return f"<search>{query}</search>"
        return assistant("", [ToolCall(name="search", arguments={"query": query})])

    def demonstrate_summary(self, *, newest: bool) -> str:
        """Say what each search has found of the way to the answer, and what comes next.

        A search whose result the window does not show is left out and made again, but once: where
        the result is carried into the next window instead, the expert has to get on.
        """
        searches, searched = self._found, self._shown
        if not newest and searches:
            searches, searched = searches[:-1], max(0, searched - 1)
            if self._repeated < searched + 1:
                self._repeated = searched + 1
                self._found, self._shown = searches, searched
        return notes_of(self.question, searches, searched)
