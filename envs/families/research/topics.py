"""A topic is the question that a report answers, with the facts that a report should state."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from ..fiction import OUTGOING, Entity, EntityKind, Relation, World

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
    made = [
        TopicFact(entity.name, relation.phrase.format(entity.name), entity.links[relation.name])
        for relation in OUTGOING[entity.kind]
        if relation.name in entity.links
    ]
    if entity.number is not None:
        about = _NUMBERS[entity.kind].format(entity.name)
        made.append(TopicFact(entity.name, about, str(entity.number)))
    return made


def draw_topic(world: World, split: str, rng: random.Random, *, pages: int) -> Topic:
    """Draw a topic of a split.

    Args:
        world: the world whose facts are asked for.
        split: the split whose realm the topic comes from.
        rng: draws the entity and the way from page to page.
        pages: most pages of the topic: the entity's own page, and pages that lead from one to the
            next; a way that ends early gives fewer.
    """
    realm = [one for one in world.realm(split) if len(facts_of(one)) >= FEWEST_FACTS]
    at = rng.choice(realm)
    phrase, said, titles = at.name, [at.name], [at.name]
    facts = facts_of(at)
    while len(titles) < pages:
        ways = [way for way in _ways(at) if at.links[way.name] not in titles]
        if not ways:
            break
        way = rng.choice(ways)
        at = world.entities[at.links[way.name]]
        phrase = way.phrase.format(phrase)
        said.append(phrase)
        titles.append(at.name)
        facts += facts_of(at)
    listed = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    return Topic(
        question=f"Write a short report on what is known about {listed}.",
        pages=tuple(titles),
        facts=tuple(facts),
    )


def _ways(entity: Entity) -> Iterable[Relation]:
    return [way for way in OUTGOING[entity.kind] if way.name in entity.links]
