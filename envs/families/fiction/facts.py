"""The facts of a fictional world: kinds of entities, relations between entities, and numbers.

Every relation is a function: an entity has at most one birthplace, one employer, one mayor. So a
chain of relations has a single answer, and a question made of such a chain is never ambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
