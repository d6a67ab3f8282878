"""Reports with citations about a fictional world, whose truth is known exactly.

A sentence is about the page that it cites and names, or else about the first name in it. It states
a fact if it is about the fact's subject, names the fact's value and says how the two are related,
or the other way round. Any other name or number in it is a false claim, unless it is true of what
the sentence is about, and so is a value that is said to be related in another way. What is true of
things that nobody asked about costs as much: else a report that pastes every page which was found
would be a perfect one.

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
from bisect import bisect_left
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
from .fiction import (
    ATTRIBUTES,
    NUMBERS,
    OUTGOING,
    RELATIONS,
    Entity,
    EntityKind,
    World,
    build_world,
)
from .search.documents import shown
from .search.retrievers import fictional_index

FEWEST_FACTS = 3
"""Least number of facts on the first page of a topic."""

_NUMBER_PHRASES = {
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
    relation: str
    """The name of the relation, or of the attribute whose number is the value."""


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
        TopicFact(
            entity.name,
            relation.phrase.format(entity.name),
            entity.links[relation.name],
            relation.name,
        )
        for relation in OUTGOING[entity.kind]
        if relation.name in entity.links
    ]
    if entity.number is not None:
        subject = _NUMBER_PHRASES[entity.kind].format(entity.name)
        attribute = NUMBERS[entity.kind].name
        facts.append(TopicFact(entity.name, subject, str(entity.number), attribute))
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
    people = sum(entity.kind is EntityKind.PERSON for entity in world.entities.values())
    names, known_facts = _known(world.seed, people)
    topic_facts = {(fact.subject, fact.value, fact.relation) for fact in topic.facts}
    stated_facts, cited = set[tuple[str, str, str]](), set[tuple[str, str, str]]()
    false = set[tuple[str, str]]()
    for sentence in _SENTENCES.split(text[:MAX_REPORT_CHARS]):
        citations = [title.strip() for title in _CITED.findall(sentence)][:MAX_CITATIONS]
        claim = ReportClaim(_CITED.sub(" ", sentence), names, world)
        if not claim.named:
            continue
        about = next((title for title in citations if title in claim.named), claim.named[0])
        for value in claim.values - {about}:
            pairs = {(name, value) for name in (about, *citations)} | {(value, about)}
            true = {pair: known_facts[pair] for pair in pairs if pair in known_facts}
            # A page is no subject: a pasted "This person was born in ..." says of whom by its
            # citation alone, and is no sentence of a report.
            said = {pair: claim.relations(*pair) for pair in true if about in pair}
            right = {
                (*pair, relation)
                for pair, relations in said.items()
                for relation in relations.intersection(true[pair])
            }
            stated = right & topic_facts
            stated_facts |= stated
            cited |= {fact for fact in stated if fact[0] in citations}
            says_else = any(said.values()) and not right
            if says_else or not any(name in topic.pages for pair in true for name in pair):
                false.add((about, value))
    return ReportReading(len(stated_facts), len(topic.facts), len(false), len(cited))


@lru_cache(maxsize=4)
def _known(seed: int, people: int) -> tuple[re.Pattern[str], Mapping[tuple[str, str], list[str]]]:
    """Return a pattern of all names of a world, and the relations that hold of a name and a
    value.
    """
    world = build_world(seed, people)
    longest_first = sorted(world.entities, key=len, reverse=True)
    names = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")
    known_facts: dict[tuple[str, str], list[str]] = {}
    for entity in world.entities.values():
        for fact in facts_of(entity):
            known_facts.setdefault((fact.subject, fact.value), []).append(fact.relation)
    return names, known_facts


_FOUNDED = r"found|establish|start|creat|set up|since|dat(?:es|ing)|began|begun|launch|form"
_WORDS_OF = {
    "born_in": r"born|birth|native|hail|com(?:es|ing) from|came from|is from|origin|home\s?town",
    "employer": r"work|employ|job|staff|hire|serv|compan",
    "spouse": r"spouse|marri|marry|husband|wife|wed|partner",
    "mentor": r"mentor|taught|teach|tutor|pupil|student of|disciple|prot[eé]g|train|guid|under",
    "studied_at": r"stud|degree|graduat|alumn|attend|educat|school|universit|enrol|train",
    "born": r"born|birth|b\.|year",
    "lies_in": r"lie|lying|locat|situat|region|part of|belong|sit|(?:town|city|place) (?:in|of)",
    "mayor": r"mayor|led|lead|head|govern|run",
    "population": r"populat|people|inhabit|resident|home|citizen|live|soul|hous",
    "capital": r"capital|govern|administ|rul",
    "seat": r"seat|run from|based|headquarter|locat|situat|operat|offic|sit",
    "founder": r"found|establish|start|creat|set up|launch|form",
    "founded": rf"{_FOUNDED}|business|exist|year",
    "campus": r"campus|teach|locat|situat|based|sit|lie|found in",
    "rector": r"rector|head|led|lead|run|govern",
    "opened": rf"open|door|{_FOUNDED}|year",
    "author": r"author|writ|wrote|pen|(?:book|novel|work) by\b",
    "publisher": r"publish|brought out|bring|brings|print|issu|releas",
    "published": r"publish|appear|came out|come|releas|print|issu|brought out|writ|year|dat",
}
"""The beginnings of words that say how a subject and a value are related, by relation."""
_SAYS = {name: re.compile(rf"(?<!\w)(?:{words})", re.I) for name, words in _WORDS_OF.items()}
_TARGETS: dict[str, EntityKind | None] = {
    **{relation.name: relation.target for relation in RELATIONS},
    **{attribute.name: None for attribute in ATTRIBUTES},
}
"""The kind of the values of each relation; None for numbers."""
_PLACED = frozenset({"lies_in", "capital", "seat", "campus"})
"""Relations that a preposition before the value says as well, as in `a school in Merow`."""
_REACH = 8
"""How many words before a value it may go with; bounds the cost of a long sentence."""
_PREPOSITION = re.compile(r"\b(?:in|at|of|from)\s+(?:the\s+)?$", re.I)


class ReportClaim:
    """A sentence that says how names and numbers are related.

    A value goes with the word next before it, as in `founded by Runa Larley in 1893`. A word that
    cannot go with a value of this kind, and has another, is passed over: in `studied under Runa
    Larley at Bemford College` the college goes with `studied`. Where no word is left before, the
    value goes with the next one behind.

    Args:
        words: the sentence without its citations.
        names: a pattern of all names of the world.
        world: the world, which knows of what kind a name is.
    """

    def __init__(self, words: str, names: re.Pattern[str], world: World) -> None:
        self._world = world
        self.named = names.findall(words)
        # Names are made of words such as Academy, which relate nothing.
        self._masked = names.sub(lambda name: "_" * len(name[0]), words)
        matches = [*names.finditer(words), *_NUMBER.finditer(self._masked)]
        self._values = sorted((value.start(), value[0]) for value in matches)
        self.values = {value for _, value in self._values}

    def relations(self, subject: str, value: str) -> set[str]:
        """Return the relations that the sentence says `value` has to `subject`, of those that
        something may have to a thing of this kind.
        """
        kind = self._world.entities[subject].kind
        words, with_value, said = self._words_about(kind), set[int](), set[str]()
        for place, other in self._values:
            if other == subject:
                continue
            goes_with = self._word_of(words, with_value, place, other)
            if other == value:
                said |= goes_with
                if _PREPOSITION.search(self._masked[:place]):
                    said |= _PLACED & {relation.name for relation in OUTGOING[kind]}
        return said

    def _words_about(self, kind: EntityKind) -> dict[int, set[str]]:
        """Return the relations that each relating word may mean, by its place, in order."""
        words: dict[int, set[str]] = {}
        relations = [relation.name for relation in OUTGOING[kind]]
        for relation in [*relations, *([NUMBERS[kind].name] if kind in NUMBERS else [])]:
            for match in _SAYS[relation].finditer(self._masked):
                words.setdefault(match.start(), set()).add(relation)
        return dict(sorted(words.items()))

    def _word_of(
        self, words: Mapping[int, set[str]], with_value: set[int], place: int, value: str
    ) -> set[str]:
        """Return the relations of the word that the value at `place` goes with, which is added to
        `with_value` if it can go with such a value; empty without a word.
        """
        kind = None if value.isdigit() else self._world.entities[value].kind
        starts = list(words)
        behind = bisect_left(starts, place)
        for start in reversed(starts[max(0, behind - _REACH) : behind]):
            fitting = {relation for relation in words[start] if _TARGETS[relation] == kind}
            if fitting or start not in with_value:
                with_value.update([start] if fitting else [])
                return fitting or words[start]
        with_value.update(starts[behind : behind + 1])
        return words[starts[behind]] if behind < len(starts) else set()


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
