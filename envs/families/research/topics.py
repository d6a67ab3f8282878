"""What a report is to be about, and the facts that it should state."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from ..fiction import OUTGOING, Entity, EntityKind, Relation, World

FEWEST_FACTS = 3
"""Facts that the page of a topic holds at least."""


_NUMBERS = {
    EntityKind.PERSON: "the year of birth of {}",
    EntityKind.TOWN: "the population of {}",
    EntityKind.COMPANY: "the founding year of {}",
    EntityKind.SCHOOL: "the opening year of {}",
    EntityKind.BOOK: "the year of publication of {}",
}


@dataclass(frozen=True, slots=True)
class TopicFact:
    """Something true: `value` stands on the page of `subject`."""

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
    """Everything that the page of an entity says of the entity itself."""
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
    """A topic of a split.

    Args:
        world: where it is true.
        split: whose realm the topic comes from.
        rng: draws the entity and the way from page to page.
        pages: how many pages it takes: the entity's own, and of those it leads to one after the
            other.
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
