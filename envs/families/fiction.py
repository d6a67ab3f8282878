"""Fictional worlds: invented people, towns, companies, schools and books.

Names of a world are unique, and share their parts on purpose: surnames recur, towns come as `Old`
and `New`, companies are named after towns. So a search for a part of a name finds several pages.

Every relation is a function: an entity has at most one birthplace, one employer, one mayor. So a
chain of relations has a single answer, and a question made of such a chain is never ambiguous.

Whatever a policy learns by heart about the training realm says nothing about the test realm. All
pages are in one corpus, so that one search engine serves every split.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from ludus.errors import ConfigError

from ..tasks import SPLITS

_ONSETS = ("b", "br", "c", "d", "dr", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "r", "s", "st",
           "t", "th", "tr", "v", "w", "z")  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "ae", "ei", "ou")
_CODAS = ("l", "n", "r", "s", "th", "m", "nd", "rn", "ll", "sk")
_GIVEN_ENDS = ("a", "o", "en", "is", "ia", "or", "el", "une")
_SURNAME_ENDS = ("ack", "over", "ins", "mar", "ley", "quist", "ard", "ent", "ow", "esk")
_TOWN_ENDS = ("ham", "ford", "stead", "wick", "mouth", "holm", "bury", "gate")
_REGION_ENDS = ("land", "mark", "shire", "ria", "vale", "reach")
_SECTORS = ("Glassworks", "Shipping", "Mills", "Instruments", "Railways", "Brewery", "Foundry",
            "Textiles", "Clockworks", "Chemicals")  # fmt: skip
_SCHOOLS = ("University", "College", "Institute", "Academy")
_TRAITS = ("Silent", "Crooked", "Amber", "Hollow", "Winter", "Scarlet", "Drowned", "Patient",
           "Restless", "Borrowed", "Salted", "Distant")  # fmt: skip
_THINGS = ("Harbour", "Orchard", "Lantern", "Ledger", "Bridge", "Compass", "Garden", "Almanac",
           "Quarry", "Window", "Violin", "Stair")  # fmt: skip
_TOWN_PREFIXES = ("", "Old ", "New ")
_MAX_DRAWS = 100_000


class NameSampler:
    """Draws names and never draws the same name twice."""

    def __init__(self, rng: random.Random, people: int) -> None:
        self._rng = rng
        self._used: set[str] = set()
        self._given = self._pool(_GIVEN_ENDS, max(12, people // 4))
        self._surnames = self._pool(_SURNAME_ENDS, max(12, people // 6))
        self._towns = self._pool(_TOWN_ENDS, max(8, people // 8))

    def person(self) -> str:
        """Draw a given name and a surname."""
        return self._fresh(lambda: f"{self._pick(self._given)} {self._pick(self._surnames)}")

    def town(self) -> str:
        """Draw a town; some towns differ only in `Old` or `New`."""
        return self._fresh(lambda: self._pick(_TOWN_PREFIXES) + self._pick(self._towns))

    def region(self) -> str:
        """Draw the name of a region."""
        return self._fresh(lambda: self._stem() + self._pick(_REGION_ENDS))

    def company(self, towns: Sequence[str]) -> str:
        """Draw a company named after a town or a family."""
        return self._fresh(
            lambda: f"{self._pick((*towns, *self._surnames))} {self._pick(_SECTORS)}"
        )

    def school(self, towns: Sequence[str]) -> str:
        """Draw a university named after a town or a family."""
        return self._fresh(
            lambda: f"{self._pick((*towns, *self._surnames))} {self._pick(_SCHOOLS)}"
        )

    def book(self) -> str:
        """Draw a title; many titles begin alike."""
        return self._fresh(
            lambda: (
                f"The {self._pick(_TRAITS)} {self._pick(_THINGS)} of {self._pick(self._surnames)}"
            )
        )

    def _pool(self, endings: Sequence[str], size: int) -> list[str]:
        """Draw `size` different words with given endings."""
        names: dict[str, None] = {}
        while len(names) < size:
            names[self._stem() + self._pick(endings)] = None
        return list(names)

    def _stem(self) -> str:
        rng = self._rng
        syllable = rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)
        if rng.random() >= 0.6:
            syllable += rng.choice("aeiou") + rng.choice("lmnrst")
        return syllable.capitalize()

    def _pick(self, choices: Sequence[str]) -> str:
        return self._rng.choice(choices)

    def _fresh(self, draw: Callable[[], str]) -> str:
        for _ in range(_MAX_DRAWS):
            name = draw()
            if name not in self._used:
                self._used.add(name)
                return name
        raise RuntimeError(f"{len(self._used)} names are used, and no other was found")


class EntityKind(StrEnum):
    """The kind of an entity."""

    PERSON = "person"
    TOWN = "town"
    REGION = "region"
    COMPANY = "company"
    SCHOOL = "school"
    BOOK = "book"


@dataclass(frozen=True, slots=True)
class Relation:
    """A function from entities of a kind to entities of another kind, with phrases."""

    name: str
    source: EntityKind
    target: EntityKind
    phrase: str
    """A noun phrase for the target; {} is the source."""
    sentences: tuple[str, ...]
    """Ways in which a page of the source states the relation; {} is the target."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A number that every entity of a kind has, such as a population."""

    name: str
    source: EntityKind
    question: str
    """The question that asks for the number; {} is the entity."""
    sentences: tuple[str, ...]
    more: str
    """An adjective for the entity with the larger number: `younger`, `more populous`."""
    less: str


RELATIONS: tuple[Relation, ...] = (
    Relation(
        "born_in", EntityKind.PERSON, EntityKind.TOWN, "the town where {} was born",
        ("was born in {}", "comes from {}, the town of birth"),
    ),
    Relation(
        "employer", EntityKind.PERSON, EntityKind.COMPANY, "the company that {} works for",
        ("works for {}", "is employed by {}"),
    ),
    Relation(
        "spouse", EntityKind.PERSON, EntityKind.PERSON, "the spouse of {}",
        ("is married to {}", "has {} as spouse"),
    ),
    Relation(
        "mentor", EntityKind.PERSON, EntityKind.PERSON, "the mentor of {}",
        ("was taught by the mentor {}", "names {} as mentor"),
    ),
    Relation(
        "studied_at", EntityKind.PERSON, EntityKind.SCHOOL, "the school where {} studied",
        ("studied at {}", "took a degree at {}"),
    ),
    Relation(
        "lies_in", EntityKind.TOWN, EntityKind.REGION, "the region that {} lies in",
        ("lies in the region of {}", "is a town of {}"),
    ),
    Relation(
        "mayor", EntityKind.TOWN, EntityKind.PERSON, "the mayor of {}",
        ("has {} as mayor", "is led by the mayor {}"),
    ),
    Relation(
        "capital", EntityKind.REGION, EntityKind.TOWN, "the capital of {}",
        ("has its capital in {}", "is governed from {}, the capital"),
    ),
    Relation(
        "seat", EntityKind.COMPANY, EntityKind.TOWN, "the town where {} has its seat",
        ("has its seat in {}", "is run from {}"),
    ),
    Relation(
        "founder", EntityKind.COMPANY, EntityKind.PERSON, "the founder of {}",
        ("was founded by {}", "has {} as founder"),
    ),
    Relation(
        "campus", EntityKind.SCHOOL, EntityKind.TOWN, "the town where {} has its campus",
        ("has its campus in {}", "teaches in {}"),
    ),
    Relation(
        "rector", EntityKind.SCHOOL, EntityKind.PERSON, "the rector of {}",
        ("has {} as rector", "is headed by the rector {}"),
    ),
    Relation(
        "author", EntityKind.BOOK, EntityKind.PERSON, "the author of {}",
        ("was written by {}", "has {} as author"),
    ),
    Relation(
        "publisher", EntityKind.BOOK, EntityKind.COMPANY, "the publisher of {}",
        ("was brought out by the publisher {}", "is published by {}"),
    ),
)  # fmt: skip

ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute(
        "born", EntityKind.PERSON, "In which year was {} born?",
        ("was born in the year {}", "was born in {}"), "younger", "older",
    ),
    Attribute(
        "population", EntityKind.TOWN, "How many people live in {}?",
        ("has a population of {}", "is home to {} people"), "more populous", "less populous",
    ),
    Attribute(
        "founded", EntityKind.COMPANY, "In which year was {} founded?",
        ("was founded in {}", "has been in business since it was founded in {}"),
        "more recently founded", "earlier founded",
    ),
    Attribute(
        "opened", EntityKind.SCHOOL, "In which year was {} opened?",
        ("was opened in {}", "first opened its doors in {}"),
        "more recently opened", "earlier opened",
    ),
    Attribute(
        "published", EntityKind.BOOK, "In which year was {} published?",
        ("was first published in {}", "appeared in {}"),
        "more recently published", "earlier published",
    ),
)  # fmt: skip

OUTGOING: dict[EntityKind, tuple[Relation, ...]] = {
    kind: tuple(relation for relation in RELATIONS if relation.source is kind)
    for kind in EntityKind
}
"""The relations that an entity of each kind has."""
NUMBERS: dict[EntityKind, Attribute] = {attribute.source: attribute for attribute in ATTRIBUTES}
"""The number that entities of each kind have; a region has none."""


_SUBJECTS = {kind: f"This {kind}" for kind in EntityKind}
_LISTED = {
    EntityKind.TOWN: "born_in",
    EntityKind.COMPANY: "employer",
    EntityKind.SCHOOL: "studied_at",
}
_LISTS = {
    EntityKind.TOWN: "People from {}: {}.",
    EntityKind.COMPANY: "People at {}: {}.",
    EntityKind.SCHOOL: "Alumni of {}: {}.",
}
MAX_LISTED = 4
"""The most names listed on the page of a town, company or school. Through these lists, such pages
share words with the pages of people, which makes search harder.
"""


class Pages:
    """Writes the pages of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Who is listed on the page of each town, company and school.
        listings: dict[str, list[str]] = {}
        for entity in world.entities.values():
            for relation, target in entity.links.items():
                if _LISTED.get(world.entities[target].kind) == relation:
                    members = listings.setdefault(target, [])
                    if len(members) < MAX_LISTED:
                        members.append(entity.name)
        self._listed = listings

    def text(self, name: str) -> str:
        """Return the page of `name`: a sentence per fact; order and wording vary by page."""
        entity = self._world.entities[name]
        rng = random.Random(f"page/{self._world.seed}/{name}")
        subject = _SUBJECTS[entity.kind]
        facts = [
            f"{subject} {rng.choice(relation.sentences).format(entity.links[relation.name])}."
            for relation in OUTGOING[entity.kind]
            if relation.name in entity.links
        ]
        if entity.number is not None:
            facts.append(
                f"{subject} {rng.choice(NUMBERS[entity.kind].sentences).format(entity.number)}."
            )
        rng.shuffle(facts)
        sentences = [f"{name} is a {entity.kind}.", *facts]
        if names_listed := self._listed.get(name):
            sentences.append(_LISTS[entity.kind].format(name, ", ".join(names_listed)))
        return " ".join(sentences)

    def mentioned(self, name: str) -> list[str]:
        """Return the entities that the page of `name` names, each once, relations first."""
        links = self._world.entities[name].links.values()
        return list(dict.fromkeys([*links, *self._listed.get(name, [])]))


FEWEST_PEOPLE = 60
MAX_PEOPLE = 20_000
_SHARES = {"train": 0.6, "validation": 0.2, "test": 0.2}
_MARRIED = 0.5


@dataclass(frozen=True, slots=True)
class Entity:
    """A person or thing that has a page."""

    name: str
    kind: EntityKind
    split: str
    links: Mapping[str, str]
    """The name of the entity that each relation leads to."""
    number: int | None
    """The entity's birth year, population and so on; a region has none."""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """A fictional world: all entities by name. Each seed and size has a single world, which is
    compared by identity.
    """

    seed: int
    entities: Mapping[str, Entity]

    def realm(self, split: str) -> list[Entity]:
        """Return the entities of a split, in the order of creation."""
        return [entity for entity in self.entities.values() if entity.split == split]

    def follow(self, name: str, relations: Iterable[Relation]) -> str | None:
        """Return where a chain of relations leads; None where a relation is missing."""
        current: str | None = name
        for relation in relations:
            current = None if current is None else self.entities[current].links.get(relation.name)
        return current


@lru_cache(maxsize=4)
def build_world(seed: int = 0, people: int = 240) -> World:
    """Draw a world.

    Args:
        seed: seeds every draw.
        people: how many people the world has, six in ten of them in the training realm. For every
            ten people there are about six towns, companies, schools and books together.

    Raises:
        ConfigError: too few people for every kind of question to be possible, or too many.
    """
    if not FEWEST_PEOPLE <= people <= MAX_PEOPLE:
        raise ConfigError(f"people must be from {FEWEST_PEOPLE} to {MAX_PEOPLE}, got {people}")
    rng = random.Random(f"world/{seed}/{people}")
    names = NameSampler(rng, people)
    entities: dict[str, Entity] = {}
    for split in SPLITS:
        for entity in _Realm(rng, names, split, round(people * _SHARES[split])).entities():
            entities[entity.name] = entity
    return World(seed, entities)


class _Realm:
    """Draws the entities of a split and the relations between these entities."""

    def __init__(self, rng: random.Random, names: NameSampler, split: str, people: int) -> None:
        self._rng = rng
        self._split = split
        towns = [names.town() for _ in range(max(4, people // 8))]
        self._members: dict[EntityKind, list[str]] = {
            EntityKind.TOWN: towns,
            EntityKind.REGION: [names.region() for _ in range(max(2, len(towns) // 4))],
            EntityKind.PERSON: [names.person() for _ in range(people)],
            EntityKind.COMPANY: [names.company(towns) for _ in range(max(4, people // 8))],
            EntityKind.SCHOOL: [names.school(towns) for _ in range(max(3, people // 16))],
            EntityKind.BOOK: [names.book() for _ in range(max(6, people // 4))],
        }
        persons = list(self._members[EntityKind.PERSON])
        rng.shuffle(persons)
        couples = persons[: 2 * int(people * _MARRIED / 2)]
        pairs = zip(couples[::2], couples[1::2], strict=True)
        self._spouses = {person: spouse for pair in pairs for person, spouse in (pair, pair[::-1])}
        regions = self._members[EntityKind.REGION]
        self._regions = {town: rng.choice(regions) for town in towns}

    def entities(self) -> list[Entity]:
        """Return all entities of the realm, kind by kind."""
        return [
            Entity(name, kind, self._split, self._links(name, kind), self._number(kind))
            for kind, names in self._members.items()
            for name in names
        ]

    def _links(self, name: str, kind: EntityKind) -> dict[str, str]:
        links = {relation.name: self._target(name, relation) for relation in OUTGOING[kind]}
        return {relation: target for relation, target in links.items() if target}

    def _target(self, name: str, relation: Relation) -> str:
        if relation.name == "spouse":
            return self._spouses.get(name, "")
        if relation.name == "lies_in":
            return self._regions[name]
        members = self._members[relation.target]
        if relation.name == "capital":
            members = [town for town, region in self._regions.items() if region == name] or members
        target = name
        while target == name:
            target = self._rng.choice(members)
        return target

    def _number(self, kind: EntityKind) -> int | None:
        if kind not in NUMBERS:
            return None
        draw: Callable[[int, int], int] = self._rng.randint
        return draw(1_000, 99_999) if kind is EntityKind.TOWN else draw(1850, 2005)
