"""The themes of databases: two kinds of things, and a table of links."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableKind:
    """A table of things with a unique label, a category and a number."""

    table: str
    one: str
    """The singular noun, for questions."""
    many: str
    label: str
    """The column with the unique name of a thing."""
    category: str
    values: tuple[str, ...]
    number: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Theme:
    """A theme: two kinds of things and the links from left to right."""

    left: TableKind
    right: TableKind
    links: str
    """The name of the table of links."""
    link: str
    """The singular noun for a link, for questions."""
    verb: str
    """What a left thing has done to a right thing: `ordered`."""
    number: str
    """The column with the number of a link."""
    low: int
    high: int

    @property
    def left_id(self) -> str:
        """The column in which a link refers to the left thing."""
        return f"{self.left.one.replace(' ', '_')}_id"

    @property
    def right_id(self) -> str:
        """The column in which a link refers to the right thing."""
        return f"{self.right.one.replace(' ', '_')}_id"


_TOWNS = ("Avel", "Bryn", "Corl", "Dunmar", "Esk", "Falden")

THEMES: tuple[Theme, ...] = (
    Theme(
        TableKind("customers", "customer", "customers", "name", "town", _TOWNS, "age", 18, 80),
        TableKind("products", "product", "products", "title", "category",
             ("garden", "kitchen", "office", "sport", "toys"), "price", 5, 60),
        "orders", "order", "ordered", "quantity", 1, 9,
    ),
    Theme(
        TableKind("students", "student", "students", "name", "house",
             ("Ash", "Birch", "Cedar", "Elm", "Oak"), "height", 150, 195),
        TableKind("courses", "course", "courses", "title", "faculty",
             ("arts", "law", "medicine", "music", "physics"), "credits", 2, 12),
        "enrolments", "enrolment", "enrolled in", "score", 0, 20,
    ),
    Theme(
        TableKind("members", "member", "members", "name", "town", _TOWNS, "visits", 0, 30),
        TableKind("books", "book", "books", "title", "genre",
             ("crime", "essays", "history", "poetry", "travel"), "pages", 80, 400),
        "loans", "loan", "borrowed", "days", 1, 28,
    ),
    Theme(
        TableKind("pilots", "pilot", "pilots", "name", "base", _TOWNS, "experience", 0, 25),
        TableKind("aircraft", "aircraft", "aircraft", "tail", "maker",
             ("Arrow", "Comet", "Finch", "Heron", "Swift"), "seats", 2, 40),
        "flights", "flight", "flown", "hours", 1, 12,
    ),
    Theme(
        TableKind("doctors", "doctor", "doctors", "name", "ward",
             ("east", "north", "south", "west", "annex"), "salary", 40, 90),
        TableKind("patients", "patient", "patients", "name", "town", _TOWNS, "age", 1, 95),
        "visits", "visit", "visited", "minutes", 5, 60,
    ),
    Theme(
        TableKind("restorers", "restorer", "restorers", "name", "studio",
             ("attic", "cellar", "gallery", "loft"), "rate", 20, 60),
        TableKind("paintings", "painting", "paintings", "title", "style",
             ("abstract", "baroque", "cubist", "naive", "realist"), "width", 20, 200),
        "restorations", "restoration", "restored", "cost", 100, 500,
    ),
    Theme(
        TableKind("growers", "grower", "growers", "name", "valley",
             ("amber", "green", "long", "stone", "wide"), "fields", 1, 20),
        TableKind("crops", "crop", "crops", "title", "season",
             ("autumn", "spring", "summer", "winter"), "weeks", 4, 40),
        "harvests", "harvest", "harvested", "tonnes", 1, 30,
    ),
    Theme(
        TableKind("players", "player", "players", "name", "country",
             ("Andra", "Belor", "Cerin", "Dovar", "Estia"), "rating", 50, 99),
        TableKind("clubs", "club", "clubs", "title", "league",
             ("first", "second", "third", "youth"), "founded", 1880, 1960),
        "contracts", "contract", "signed for", "seasons", 1, 6,
    ),
)  # fmt: skip

LABELS = (
    *("Ada", "Bo", "Cai", "Dov", "Eli", "Fay", "Gus", "Hal", "Ines", "Jun", "Kit", "Lea", "Mo"),
    *("Nia", "Ove", "Pia", "Quin", "Rae", "Sol", "Tam", "Uma", "Vik", "Wyn", "Xen", "Yara", "Zoe"),
)
"""Names of things, of either kind; the wording of a question never uses them."""
