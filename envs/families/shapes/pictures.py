"""Pictures of coloured shapes on a grid of three by three, drawn pixel by pixel."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from ..image_prompt.generator import Pixels, png_of, shape_mask
from ..image_prompt.words import BACKGROUND, COLOURS, SHAPES

PLACES = (
    "top left", "top", "top right", "left", "center", "right", "bottom left", "bottom",
    "bottom right",
)  # fmt: skip
"""The cells of the grid, row by row."""


@dataclass(frozen=True, slots=True)
class DrawnShape:
    """A shape of a colour in a cell."""

    place: str
    colour: str
    shape: str

    def __str__(self) -> str:
        return f"{self.colour} {self.shape} {self.place}"


Page = tuple[DrawnShape, ...]
"""The things of a picture, in the order of the cells."""


def draw_page(rng: random.Random, count: int) -> Page:
    """Draw `count` things in different cells."""
    places = sorted(rng.sample(range(len(PLACES)), count))
    return tuple(
        DrawnShape(PLACES[place], rng.choice(sorted(COLOURS)), rng.choice(SHAPES))
        for place in places
    )


def picture_of(page: Page, *, size: int, seed: str) -> bytes:
    """Return a picture as the bytes of a PNG file.

    Args:
        page: the things to show.
        size: side of the square picture in pixels.
        seed: decides the size and place of each thing within its cell, which answer no question.
    """
    pixels: Pixels = np.full((size, size, 3), BACKGROUND, np.uint8)
    rng, cell = random.Random(seed), size // 3
    for shape in page:
        row, column = divmod(PLACES.index(shape.place), 3)
        # The shape stays at least two pixels away from the borders of its cell.
        side = rng.randint(cell // 2, cell - 4)
        top = row * cell + rng.randint(2, cell - 2 - side)
        left_edge = column * cell + rng.randint(2, cell - 2 - side)
        mask = shape_mask(shape.shape, side)
        pixels[top : top + side, left_edge : left_edge + side][mask] = COLOURS[shape.colour]
    return png_of(pixels)
