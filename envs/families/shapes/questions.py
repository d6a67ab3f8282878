"""Questions about pictures of shapes, with their answers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from ..image_prompt.words import NUMBERS
from .pictures import DrawnShape, Page


class Kind(StrEnum):
    """The kinds of questions."""

    COLOUR = "colour"
    """The colour of the thing in a cell; six answers."""
    SHAPE = "shape"
    """The shape of the thing in a cell; three answers."""
    COUNT = "count"
    """How many things have a colour, on all pages together."""


class ShapeQuestion(NamedTuple):
    """A question in words, and the only right answer."""

    text: str
    answer: str
    pages: tuple[int, ...]
    """The pages, from 1, that one has to see to know the answer."""
    counted: str = ""
    """The colour that is counted, in questions for a number."""


def ask(rng: random.Random, kind: Kind, pages: Sequence[Page]) -> ShapeQuestion:
    """Draw a question of a kind about some pictures."""
    if kind is Kind.COUNT:
        colour = rng.choice(sorted({shape.colour for page in pages for shape in page}))
        count = sum(shape.colour == colour for page in pages for shape in page)
        place = "" if len(pages) == 1 else " on all pages"
        everything = tuple(range(1, len(pages) + 1))
        return ShapeQuestion(
            f"How many shapes are {colour}{place}?", str(count), everything, colour
        )
    number = rng.randint(1, len(pages))
    shape_drawn: DrawnShape = rng.choice(pages[number - 1])
    place = shape_drawn.place if len(pages) == 1 else f"{shape_drawn.place} of page {number}"
    if kind is Kind.SHAPE:
        return ShapeQuestion(f"What shape is at the {place}?", shape_drawn.shape, (number,))
    return ShapeQuestion(f"What colour is at the {place}?", shape_drawn.colour, (number,))


def read_answer(text: str) -> str:
    """Return the word of an answer, in lower case and without a full stop; a number as digits.

    >>> read_answer(" Red. "), read_answer("three"), read_answer("a red circle")
    ('red', '3', 'a red circle')
    """
    word = text.strip().lower().removesuffix(".").strip()
    return str(NUMBERS.get(word, word))
