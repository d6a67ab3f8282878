"""Compares short answers as SQuAD does (Rajpurkar et al., arXiv 1606.05250).

chain      Who is the mayor of the town where the founder of Tisenmar Mills was born?
compare    What is the school where the older of Runa Larley and Zeren Gornley studied?
intersect  Who is the mentor of the rector of the school where the person who works for Larley Mills
           and was born in Bemford studied?

The hops of a question are the pages that have to be read: a chain of h relations has h, a
comparison has the two pages it compares, then one for each relation after the first.
"""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..fiction import NUMBERS, OUTGOING, Entity, EntityKind, Pages, Relation, World

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_OPENING, _CLOSING = "<answer>", "</answer>"
MAX_ANSWER_CHARS = 1_000
"""The most characters of an answer; a longer answer counts as wrong, without a comparison."""


def normalize(text: str) -> str:
    """Normalise an answer: lower case, no ASCII punctuation, no articles, single spaces.

    >>> normalize("The  Cat's hat.")
    'cats hat'
    """
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if `answer` equals an element of `golds` after normalisation, else 0."""
    return float(normalize(answer) in {normalize(gold) for gold in golds})


def f1(answer: str, golds: Sequence[str]) -> float:
    """Return the best F1 score over `golds`: the harmonic mean of word precision and recall.

    >>> round(f1("the cat sat", ["cat sat down"]), 3)  # 2 of 2 words, 2 of 3: 2 * 1 * 2/3 / (5/3)
    0.8
    """
    return max(
        (_f1(normalize(answer).split(), normalize(gold).split()) for gold in golds), default=0
    )


def _f1(answer_words: list[str], gold: list[str]) -> float:
    if not answer_words or not gold:
        return float(answer_words == gold)
    common = (Counter(answer_words) & Counter(gold)).total()
    return 2 * common / (len(answer_words) + len(gold))


def read_answer(text: str) -> str | None:
    """Return the content of the last closed `<answer>`, or None.

    An opening tag is paired with the first closing tag after it, as in Search-R1.

    >>> read_answer("<answer>no</answer> or <answer>yes</answer></answer>")
    'yes'
    """
    answer: str | None = None
    begin = text.find(_OPENING)
    while begin >= 0 and (end := text.find(_CLOSING, begin)) >= 0:
        answer = text[begin + len(_OPENING) : end].strip()
        begin = text.find(_OPENING, end)
    return answer


MAX_DRAWS = 2_000
_CLAUSES = {"employer": "works for {}", "born_in": "was born in {}", "studied_at": "studied at {}"}
"""The clause that identifies a person, for each relation."""


class QuestionShape(StrEnum):
    """The shape of a question."""

    CHAIN = "chain"
    """A chain of relations."""
    COMPARE = "compare"
    """A chain from the entity with the smaller or larger of two numbers; at least two hops."""
    INTERSECT = "intersect"
    """A chain that begins at the only person for whom two facts are true; at least two hops."""


class NoQuestion(LookupError):
    """No question of the shape was found in many draws: the world is too small."""


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A question, the answers, and how to find the answers."""

    text: str
    golds: tuple[str, ...]
    """The answers; each counts as right."""
    searches: tuple[str, ...] = ()
    """The queries of a good searcher, in order."""
    pages: tuple[str, ...] = ()
    """The titles of the pages that hold the answer's facts, in order."""
    evidence: tuple[str, ...] = ()
    """The titles that each search should find."""


@dataclass(frozen=True, slots=True)
class _Path:
    """A question in the making: a noun phrase, and the entity that the phrase means."""

    phrase: str
    at: Entity
    visited: tuple[str, ...]
    """Names that the question or the way to the answer has used up."""
    searches: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    """The pages read so far; the page of `at` may be among them."""
    relations: tuple[Relation, ...] = ()
    other: str = ""
    """The other entity of a comparison, which is not the answer."""

    @property
    def hops(self) -> int:
        """The number of pages read, once the page of `at` is read."""
        return len(self.pages) + (self.at.name not in self.pages)

    def read(self) -> _Path:
        """Return the path after looking up the page of `at` by name."""
        name = self.at.name
        if name in self.pages:
            return self
        return replace(self, searches=(*self.searches, name), pages=(*self.pages, name))


class QuestionMaker:
    """Draws questions about a realm of a world."""

    def __init__(self, world: World, split: str) -> None:
        self._world = world
        self._split = split
        self._pages = Pages(world)
        self._by_kind: dict[EntityKind, list[Entity]] = {}
        self._people_by_fact: dict[tuple[str, str], set[str]] = {}
        for entity in world.realm(split):
            self._by_kind.setdefault(entity.kind, []).append(entity)
            if entity.kind is EntityKind.PERSON:
                for fact in entity.links.items():
                    self._people_by_fact.setdefault(fact, set()).add(entity.name)
        self._begin: dict[QuestionShape, Callable[[random.Random], _Path | None]] = {
            QuestionShape.CHAIN: self._anyone,
            QuestionShape.COMPARE: self._better_of_two,
            QuestionShape.INTERSECT: self._one_of_both,
        }

    def draw(self, rng: random.Random, *, hops: int, shape: QuestionShape) -> SearchQuestion:
        """Draw a question.

        Raises:
            NoQuestion: no question was found.
        """
        for _ in range(MAX_DRAWS):
            path = self._begin[shape](rng)
            while path is not None and path.hops < hops:
                path = self._follow(path, rng)
            question = None if path is None or path.hops > hops else self._finish(path, rng)
            if question is not None:
                return question
        raise NoQuestion(f"no question of shape {shape} with {hops} hops in split {self._split!r}")

    # --- beginnings ---

    def _anyone(self, rng: random.Random) -> _Path:
        entity = rng.choice(self._by_kind[rng.choice(list(self._by_kind))])
        return _Path(entity.name, entity, (entity.name,))

    def _better_of_two(self, rng: random.Random) -> _Path | None:
        attribute = NUMBERS[rng.choice(list(NUMBERS))]
        first, second = rng.sample(self._by_kind[attribute.source], 2)
        assert first.number is not None  # entities of these kinds have a number
        assert second.number is not None
        if first.number == second.number:
            return None
        adjective = attribute.more if first.number > second.number else attribute.less
        names = (first.name, second.name)
        names_asked = rng.sample(names, 2)
        return _Path(
            f"the {adjective} of {names_asked[0]} and {names_asked[1]}",
            first,
            names,
            searches=tuple(names_asked),
            pages=tuple(names_asked),
            other=second.name,
        )

    def _one_of_both(self, rng: random.Random) -> _Path | None:
        person = rng.choice(self._by_kind[EntityKind.PERSON])
        facts = [(name, person.links[name]) for name in rng.sample(list(_CLAUSES), 2)]
        people = self._people_by_fact[facts[0]] & self._people_by_fact[facts[1]]
        if people != {person.name}:
            return None
        clauses = [_CLAUSES[relation].format(target) for relation, target in facts]
        phrase = f"the person who {clauses[0]} and {clauses[1]}"
        targets = tuple(target for _, target in facts)
        return _Path(
            phrase,
            person,
            (person.name, *targets),
            searches=(f"person {' '.join(clauses)}",),
            pages=(person.name,),
        )

    # --- on the way ---

    def _follow(self, path: _Path, rng: random.Random) -> _Path | None:
        """Follow a random relation; None if that leads back to where the question has been."""
        choices = [link for link in OUTGOING[path.at.kind] if link.name in path.at.links]
        relation = rng.choice(choices) if choices else None
        target = None if relation is None else path.at.links[relation.name]
        if relation is None or target is None or target in path.visited:
            return None
        return replace(
            path.read(),
            phrase=relation.phrase.format(path.phrase),
            at=self._world.entities[target],
            visited=(*path.visited, target),
            relations=(*path.relations, relation),
        )

    def _finish(self, path: _Path, rng: random.Random) -> SearchQuestion | None:
        """Ask for a number of the entity at the path's end, or for what another relation leads
        to.
        """
        attribute = NUMBERS.get(path.at.kind)
        if attribute is not None and rng.random() < 1 / (1 + len(path.at.links)):
            text = attribute.question.format(path.phrase)
            return self._question(path.read(), text, str(path.at.number))
        last = self._follow(path, rng)
        if last is None:
            return None
        asks = "Who" if last.at.kind is EntityKind.PERSON else "What"
        return self._question(last, f"{asks} is {last.phrase}?", last.at.name)

    def _question(self, path: _Path, text: str, answer: str) -> SearchQuestion | None:
        gives_away = normalize(answer) in normalize(text)
        shortcut = len(path.pages) > 1 and answer in self._pages.mentioned(path.pages[0])
        either = path.other and self._world.follow(path.other, path.relations) == answer
        if gives_away or shortcut or either:
            return None
        evidence = tuple(self._pages.text(page) for page in path.pages)
        return SearchQuestion(text, (answer,), path.searches, path.pages, evidence)


def shapes_for(hops: int, wanted_shapes: Sequence[QuestionShape]) -> list[QuestionShape]:
    """Return the shapes in `wanted_shapes` that are possible with so many hops."""
    return [shape for shape in wanted_shapes if hops > 1 or shape is QuestionShape.CHAIN]


def notes_of(question: SearchQuestion, searches: Sequence[tuple[str, str]], searched: int) -> str:
    """Return what a good searcher notes down when a context window is full.

    Each search is noted with the names on the way to the answer that its result showed, and, where
    a question starts from more than one name, with the numbers that may be compared. Then follows
    the next search, or the answer.

    Args:
        question: the question.
        searches: each query so far with the result it was shown.
        searched: how many of the question's searches were made.

    >>> question = SearchQuestion("Where was the founder of Ab born?", ("Oldham",), ("Ab", "Cy"))
    >>> notes_of(question, [("Ab", "Ab is a company. It was founded by Cy.")], 1)
    'Found Ab: Cy. Next: Cy.'
    """
    wanted = (*question.searches, *question.golds)
    compares = sum(name in question.text for name in question.searches) > 1
    facts: list[str] = []
    for query, shown in searches:
        names = [name for name in dict.fromkeys(wanted) if name != query and name in shown]
        numbers = re.findall(r"\b\d{2,}\b", shown) if compares else []
        facts.append(f"{query}: {', '.join([*names, *numbers]) or 'nothing'}")
    noted = f"Found {'; '.join(facts)}. " if facts else ""
    left = question.searches[searched:]
    return noted + (f"Next: {left[0]}." if left else f"Answer: {question.golds[0]}.")
