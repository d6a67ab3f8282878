"""Invented names of people, places, companies, universities and books.

Names of a world are unique, and share their parts on purpose: surnames recur, towns come as `Old`
and `New`, companies are named after towns. So a search for a part of a name finds several pages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

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
