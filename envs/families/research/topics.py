"""A topic is the question that a report answers, with the facts that a report should state."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..fiction import OUTGOING, Entity, EntityKind, World

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
