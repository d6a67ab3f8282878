"""Reports with citations about a fictional world, whose truth is known exactly.

A sentence is about the first name in it. It states a fact if it is about the fact's subject and
names the fact's value, or the other way round. Any other name or number in it is a false claim,
unless it is true of what the sentence is about. What is true of things that nobody asked about
costs as much: else a report that pastes every page which was found would be a perfect one.

    user       Write a short report on what is known about Tisenmar Mills and the founder of
               Tisenmar Mills.
    assistant  search(query="Tisenmar Mills")
    tool       Doc 1(Title: "Tisenmar Mills") Tisenmar Mills is a company. This company was ...
    ...
    assistant  Tisenmar Mills was founded by Runa Larley [Tisenmar Mills]. ...      reward 0.83

The world is fictional and its facts are known, so that a report's true score is exact and the error
of whoever judges reports can be measured.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from ludus.errors import ConfigError, ToolError
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict

from ..protocol import Briefing, Info, TextEnv
from ..tools import tool
from .fiction import OUTGOING, Entity, EntityKind, World, build_world
from .search.documents import shown
from .search.retrievers import fictional_index

FEWEST_FACTS = 3
"""Least number of facts on the first page of a topic."""

_NUMBERS = {
    EntityKind.PERSON: "the year of birth of {}",
    EntityKind.TOWN: "the population of {}",
    EntityKind.COMPANY: "the founding year of {}",
    EntityKind.SCHOOL: "the opening year of {}",
    EntityKind.BOOK: "the year of publication of {}",
}


@dataclass(frozen=True, slots=True)
class TopicFact:
    """A true fact: `value` stands on the page of `subject`."""

    subject: str
    about: str
    """The relation in words, for people."""
    value: str


@dataclass(frozen=True, slots=True)
class Topic:
    """A question that takes a report to answer."""

    question: str
    pages: tuple[str, ...]
    """Titles of the pages that hold the facts, in the order in which an expert finds them."""
    facts: tuple[TopicFact, ...]


def facts_of(entity: Entity) -> list[TopicFact]:
    """Return the facts that the page of an entity states of the entity itself."""
    facts = [
        TopicFact(entity.name, relation.phrase.format(entity.name), entity.links[relation.name])
        for relation in OUTGOING[entity.kind]
        if relation.name in entity.links
    ]
    if entity.number is not None:
        subject = _NUMBERS[entity.kind].format(entity.name)
        facts.append(TopicFact(entity.name, subject, str(entity.number)))
    return facts


def draw_topic(world: World, split: str, rng: random.Random, *, pages: int) -> Topic:
    """Draw a topic of a split.

    Args:
        world: the world whose facts are asked for.
        split: the split whose realm the topic comes from.
        rng: draws the entity and the way from page to page.
        pages: most pages of the topic: the entity's own page, and pages that lead from one to the
            next; a way that ends early gives fewer.
    """
    realm = [entity for entity in world.realm(split) if len(facts_of(entity)) >= FEWEST_FACTS]
    current = rng.choice(realm)
    phrase, phrases, titles = current.name, [current.name], [current.name]
    facts = facts_of(current)
    while len(titles) < pages:
        ways = [
            relation
            for relation in OUTGOING[current.kind]
            if relation.name in current.links and current.links[relation.name] not in titles
        ]
        if not ways:
            break
        link = rng.choice(ways)
        current = world.entities[current.links[link.name]]
        # The question describes a later page by the way to it and does not name it, so that a
        # policy has to follow the way.
        phrase = link.phrase.format(phrase)
        phrases.append(phrase)
        titles.append(current.name)
        facts += facts_of(current)
    phrase_list = (
        phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
    )
    return Topic(
        question=f"Write a short report on what is known about {phrase_list}.",
        pages=tuple(titles),
        facts=tuple(facts),
    )


MAX_REPORT_CHARS = 20_000
MAX_CITATIONS = 3
"""Citations of one sentence that count."""
_SENTENCES = re.compile(r"(?<=[.!?\]])\s+|\n+")
_CITED = re.compile(r"\[([^\[\]\n]{1,80})\]")
_NUMBER = re.compile(r"\b\d{3,6}\b")


@dataclass(frozen=True, slots=True)
class ReportReading:
    """The counts of a report's facts, false claims and citations, which give the true score.

    `truth` is the share of facts stated less the number of false claims over the number of facts,
    at least 0, times (1 - w + w c), where c is the share of stated facts whose sentence cites the
    page that says so and w is the weight of citing.
    """

    stated: int
    facts: int
    false: int
    """False claims, and true ones about things of which none is in the topic."""
    cited: int

    def truth(self, cite_weight: float) -> float:
        """Return the true score, in [0, 1]."""
        share = max(0.0, (self.stated - self.false) / self.facts)
        citing = self.cited / self.stated if self.stated else 0.0
        return share * (1 - cite_weight + cite_weight * citing)


def read_report(text: str, topic: Topic, world: World) -> ReportReading:
    """Compare a report with the truth. Text beyond 20,000 characters counts for nothing."""
    names, true_values = _true_values(
        world.seed, sum(entity.kind == "person" for entity in world.entities.values())
    )
    topic_facts = {(fact.subject, fact.value) for fact in topic.facts}
    stated_facts, cited, false = (
        set[tuple[str, str]](),
        set[tuple[str, str]](),
        set[tuple[str, str]](),
    )
    for sentence in _SENTENCES.split(text[:MAX_REPORT_CHARS]):
        citations = [title.strip() for title in _CITED.findall(sentence)][:MAX_CITATIONS]
        words = _CITED.sub(" ", sentence)
        named_names = names.findall(words)
        if not named_names:
            continue
        about = named_names[0]
        for value in {*named_names[1:], *_NUMBER.findall(words)} - {about}:
            forwards = {(name, value) for name in (about, *citations)}
            true = {
                (name, other)
                for name, other in {*forwards, (value, about)}
                if other in true_values.get(name, ())
            }
            # A page is no subject: a pasted "This person was born in ..." says of whom by its
            # citation alone, and is no sentence of a report.
            stated = {pair for pair in true & topic_facts if about in pair}
            stated_facts |= stated
            cited |= {pair for pair in stated if pair[0] in citations}
            if not any(name in topic.pages for pair in true for name in pair):
                false.add((about, value))
    return ReportReading(len(stated_facts), len(topic.facts), len(false), len(cited))


@lru_cache(maxsize=4)
def _true_values(seed: int, people: int) -> tuple[re.Pattern[str], Mapping[str, frozenset[str]]]:
    """Return a pattern of all names of a world, and the values that are true of each name."""
    world = build_world(seed, people)
    longest_first = sorted(world.entities, key=len, reverse=True)
    names = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")
    true_values = {
        name: frozenset(fact.value for fact in facts_of(entity))
        for name, entity in world.entities.items()
    }
    return names, true_values


MAX_QUERY_CHARS = 1_000
MAX_DOCUMENT_CHARS = 2_000
EMPTY = "Write the report, or search."


class Research(TextEnv):
    """Search a fictional world and write a short report with citations.

    Args:
        pages: pages whose facts a report should state (1 to 4); each leads to the next.
        reward: "truth" pays the true score; "none" pays 0 and leaves the reward to verifiers of the
            run, such as a rubric judge. The verdict's metrics tell the true score in both cases.
        cite_weight: share of the true score that hangs on citing.
        topk: documents that a search shows.
        world: seed of the fictional world.
        people: size of the world.
        max_turns: turns until the episode is truncated.
        demo_fault_rate: share of the facts that `demonstrate` gets wrong, for warm starts that
            leave something to learn: half of them are left out, half are stated with another value.

    Raises:
        ConfigError: an argument is out of range.
    """

    system_prompt = (
        "Write reports. Search for what you need; names alone make good queries. Then write the "
        "report: short sentences, each with the page it rests on in brackets, such as "
        "'Ada Lund was born in Merow [Ada Lund].' Say only what was asked for, and name whom it is "
        "about in every sentence. A message without a search is the report."
    )

    def __init__(
        self,
        *,
        pages: int = 2,
        reward: str = "truth",
        cite_weight: float = 0.2,
        topk: int = 3,
        world: int = 0,
        people: int = 240,
        max_turns: int = 8,
        demo_fault_rate: float = 0.0,
    ) -> None:
        if not 1 <= pages <= 4:
            raise ConfigError(f"pages must be 1 to 4, got {pages}")
        if reward not in ("truth", "none"):
            raise ConfigError(f"reward must be 'truth' or 'none', got {reward!r}")
        if not 0 <= cite_weight <= 1:
            raise ConfigError(f"cite_weight must be from 0 to 1, got {cite_weight}")
        if not 1 <= topk <= 20 or max_turns < 1:
            raise ConfigError(f"need 1 <= topk <= 20 and max_turns >= 1, got {topk}, {max_turns}")
        if not 0 <= demo_fault_rate <= 1:
            raise ConfigError(f"demo_fault_rate must be from 0 to 1, got {demo_fault_rate}")
        self.pages = pages
        self.reward = reward
        self.cite_weight = cite_weight
        self.topk = topk
        self.turns = max_turns
        self.demo_fault_rate = demo_fault_rate
        self.world = build_world(world, people)
        self.index = fictional_index(world, people)
        self.topic = Topic("", (), ())
        self._searched = 0

    def briefing(self) -> Briefing:
        """Return the class's briefing with the number of turns of this environment."""
        return msgspec.structs.replace(super().briefing(), max_turns=self.turns)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Draw the topic of the task's split and show the question."""
        self._searched = 0
        self.topic = draw_topic(self.world, self.task.split, self.task.rng(), pages=self.pages)
        return self.topic.question, {}

    @tool
    def search(self, query: str) -> str:
        """Search for pages.

        Args:
            query: what to look for; a name works best
        """
        if not query.strip():
            raise ToolError("the query is empty")
        if len(query) > MAX_QUERY_CHARS:
            raise ToolError(
                f"the query has {len(query)} characters; at most {MAX_QUERY_CHARS} are read"
            )
        self._searched += 1
        hits = self.index.search([query], self.topk)[0]
        return shown(hits, MAX_DOCUMENT_CHARS) or "Nothing was found."

    def step(self, action: str | Message) -> tuple[str, float | Verdict, bool, bool, Info]:
        """Score the report, which ends the episode; an empty message does not."""
        text = action if isinstance(action, str) else action.text
        if not text.strip():
            return EMPTY, 0.0, False, False, {}
        read = read_report(text, self.topic, self.world)
        truth = read.truth(self.cite_weight)
        metrics = {
            "truth": truth, "stated": read.stated / read.facts, "false_claims": float(read.false),
            "cited": read.cited / read.stated if read.stated else 0.0,
            "searches": float(self._searched),
        }  # fmt: skip
        detail = (
            f"{read.stated} of {read.facts} facts stated, {read.cited} of them cited; "
            f"{read.false} claims are false"
        )
        paid = truth if self.reward == "truth" else 0.0
        return "", Verdict.of(paid, detail, metrics=metrics), True, False, {}

    def gold(self) -> dict[str, Any]:
        """Return the facts as a rubric, with the criteria that a judge who knew the truth would
        ask.
        """
        items = [
            {"id": f"fact-{n}", "text": f'The response names "{f.value}" as {f.about}.'}
            for n, f in enumerate(self.topic.facts, start=1)
        ]
        return {"items": items, "aggregation": "positive_normalised"}

    def demonstrate(self) -> str | Message:
        """Search each page, then state the facts of all pages with citations; a share
        `demo_fault_rate` of the facts is left out or wrong.
        """
        if self._searched < len(self.topic.pages):
            query = {"query": self.topic.pages[self._searched]}
            return assistant("", [ToolCall(name="search", arguments=query)])
        rng = random.Random(f"fault/{self.task.seed}")
        sentences: list[str] = []
        for fact in self.topic.facts:
            luck = rng.random()
            if luck < self.demo_fault_rate / 2:
                continue
            value = self._mistaken(fact, rng) if luck < self.demo_fault_rate else fact.value
            sentences.append(
                f"{fact.about[:1].upper()}{fact.about[1:]} is {value} [{fact.subject}]."
            )
        return " ".join(sentences) or f"Nothing is known of {self.topic.pages[0]}."

    def _mistaken(self, fact: TopicFact, rng: random.Random) -> str:
        """Return another value of the same kind as the fact's."""
        if fact.value.isdigit():
            return str(int(fact.value) + rng.randint(1, 9))
        kind = self.world.entities[fact.value].kind
        names = [
            entity.name
            for entity in self.world.realm(self.task.split)
            if entity.kind is kind and entity.name not in (fact.value, fact.subject)
        ]
        return rng.choice(names) if names else fact.value
