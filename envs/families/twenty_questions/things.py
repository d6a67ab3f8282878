"""Invented things with a value for every property; no two things have the same values."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

PROPERTIES: dict[str, tuple[str, ...]] = {
    "colour": ("red", "blue", "green", "yellow", "black", "white"),
    "material": ("wood", "glass", "iron", "stone", "wool", "clay"),
    "size": ("tiny", "small", "medium", "large", "huge"),
    "shape": ("round", "flat", "long", "square"),
    "place": ("kitchen", "garden", "workshop", "attic", "street"),
    "sound": ("silent", "humming", "ringing", "rattling"),
}
"""The possible values of each property; sizes are in order."""
ORDERED = "size"
MAX_THINGS = 96

_ONSETS = (
    "b",
    "br",
    "d",
    "dr",
    "f",
    "g",
    "k",
    "kl",
    "m",
    "n",
    "p",
    "pl",
    "sn",
    "t",
    "tr",
    "v",
    "z",
)
_VOWELS = ("a", "e", "i", "o", "u", "ee", "oo")
_CODAS = ("lk", "rp", "mb", "sk", "ft", "x", "zzle", "ndo", "lty", "rvin", "ggle", "nkum")


@dataclass(frozen=True, slots=True)
class Thing:
    """An invented thing with a name and a value for each property."""

    name: str
    values: dict[str, str]
    """The value of each property, by property name."""


def draw_things(rng: random.Random, count: int) -> list[Thing]:
    """Draw `count` things with different names and different values."""
    names: dict[str, None] = {}
    while len(names) < count:
        names[rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)] = None
    seen: set[tuple[str, ...]] = set()
    things: list[Thing] = []
    for name in names:
        values = _draw_values(rng)
        while tuple(values.values()) in seen:
            values = _draw_values(rng)
        seen.add(tuple(values.values()))
        things.append(Thing(name, values))
    return things


def questions_needed(count: int) -> int:
    """Return how many questions identify a thing among `count` at best, naming the thing included.

    >>> questions_needed(16)
    5
    """
    return math.ceil(math.log2(count)) + 1


def as_table(things: list[Thing]) -> str:
    """Format things as text: a line of properties, then a line per thing."""
    lines = [" | ".join(["thing", *PROPERTIES])]
    lines += [" | ".join([thing.name, *thing.values.values()]) for thing in things]
    return "\n".join(lines)


def _draw_values(rng: random.Random) -> dict[str, str]:
    return {name: rng.choice(values) for name, values in PROPERTIES.items()}
