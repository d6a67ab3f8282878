"""The facts of a fictional world: kinds of entities, relations between entities, and numbers.

Every relation is a function: an entity has at most one birthplace, one employer, one mayor. So a
chain of relations has a single answer, and a question made of such a chain is never ambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
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
    source: Kind
    target: Kind
    phrase: str
    """A noun phrase for the target; {} is the source."""
    sentences: tuple[str, ...]
    """Ways in which a page of the source states the relation; {} is the target."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A number that every entity of a kind has, such as a population."""

    name: str
    source: Kind
    question: str
    """The question that asks for the number; {} is the entity."""
    sentences: tuple[str, ...]
    more: str
    """An adjective for the entity with the larger number: `younger`, `more populous`."""
    less: str


RELATIONS: tuple[Relation, ...] = (
    Relation(
        "born_in", Kind.PERSON, Kind.TOWN, "the town where {} was born",
        ("was born in {}", "comes from {}, the town of birth"),
    ),
    Relation(
        "employer", Kind.PERSON, Kind.COMPANY, "the company that {} works for",
        ("works for {}", "is employed by {}"),
    ),
    Relation(
        "spouse", Kind.PERSON, Kind.PERSON, "the spouse of {}",
        ("is married to {}", "has {} as spouse"),
    ),
    Relation(
        "mentor", Kind.PERSON, Kind.PERSON, "the mentor of {}",
        ("was taught by the mentor {}", "names {} as mentor"),
    ),
    Relation(
        "studied_at", Kind.PERSON, Kind.SCHOOL, "the school where {} studied",
        ("studied at {}", "took a degree at {}"),
    ),
    Relation(
        "lies_in", Kind.TOWN, Kind.REGION, "the region that {} lies in",
        ("lies in the region of {}", "is a town of {}"),
    ),
    Relation(
        "mayor", Kind.TOWN, Kind.PERSON, "the mayor of {}",
        ("has {} as mayor", "is led by the mayor {}"),
    ),
    Relation(
        "capital", Kind.REGION, Kind.TOWN, "the capital of {}",
        ("has its capital in {}", "is governed from {}, the capital"),
    ),
    Relation(
        "seat", Kind.COMPANY, Kind.TOWN, "the town where {} has its seat",
        ("has its seat in {}", "is run from {}"),
    ),
    Relation(
        "founder", Kind.COMPANY, Kind.PERSON, "the founder of {}",
        ("was founded by {}", "has {} as founder"),
    ),
    Relation(
        "campus", Kind.SCHOOL, Kind.TOWN, "the town where {} has its campus",
        ("has its campus in {}", "teaches in {}"),
    ),
    Relation(
        "rector", Kind.SCHOOL, Kind.PERSON, "the rector of {}",
        ("has {} as rector", "is headed by the rector {}"),
    ),
    Relation(
        "author", Kind.BOOK, Kind.PERSON, "the author of {}",
        ("was written by {}", "has {} as author"),
    ),
    Relation(
        "publisher", Kind.BOOK, Kind.COMPANY, "the publisher of {}",
        ("was brought out by the publisher {}", "is published by {}"),
    ),
)  # fmt: skip

ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute(
        "born", Kind.PERSON, "In which year was {} born?",
        ("was born in the year {}", "was born in {}"), "younger", "older",
    ),
    Attribute(
        "population", Kind.TOWN, "How many people live in {}?",
        ("has a population of {}", "is home to {} people"), "more populous", "less populous",
    ),
    Attribute(
        "founded", Kind.COMPANY, "In which year was {} founded?",
        ("was founded in {}", "has been in business since it was founded in {}"),
        "more recently founded", "earlier founded",
    ),
    Attribute(
        "opened", Kind.SCHOOL, "In which year was {} opened?",
        ("was opened in {}", "first opened its doors in {}"),
        "more recently opened", "earlier opened",
    ),
    Attribute(
        "published", Kind.BOOK, "In which year was {} published?",
        ("was first published in {}", "appeared in {}"),
        "more recently published", "earlier published",
    ),
)  # fmt: skip

OUTGOING: dict[Kind, tuple[Relation, ...]] = {
    kind: tuple(one for one in RELATIONS if one.source is kind) for kind in Kind
}
"""Kind -> the relations that an entity of this kind has."""
NUMBERS: dict[Kind, Attribute] = {one.source: one for one in ATTRIBUTES}
"""Kind -> the number that entities of this kind have; a region has none."""
