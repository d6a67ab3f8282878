"""A fictional world: three realms without any connection, a realm for each split.

Whatever a policy learns by heart about the training realm says nothing about the test realm. All
pages are in one corpus, so that one search engine serves every split.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ludus.errors import ConfigError

from ...tasks import SPLITS
from .facts import NUMBERS, OUTGOING, EntityKind, Relation
from .names import NameSampler

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
