"""The objects in a picture of coloured shapes are read from the pixels alone.

The check asks the picture and not whoever drew it, so it holds for every generator whose shapes are
plain enough: patches of one colour each, told apart by how much of their bounding box they fill
(a square all of it, a circle pi/4, a triangle half).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .generator import Pixels
from .scenes import SceneObject
from .words import BACKGROUND, COLOURS, PLACES, UNNAMED_COLOUR

FILLED = {"square": 1.0, "circle": math.pi / 4, "triangle": 0.5}
"""The share of its bounding box that a shape covers."""
SMALLEST = 12
"""Patches of fewer pixels are specks."""
MAX_PATCHES = 128
UNKNOWN = "grey"
ELSEWHERE = "elsewhere"


@dataclass(slots=True)
class Patch:
    """A patch is a set of connected pixels of equal colour, with the bounding box in pixels."""

    colour: int
    pixels: int
    top: int
    left: int
    bottom: int
    right: int

    def take(self, patch: Patch) -> None:
        """Merge another patch of the same colour into this patch."""
        self.pixels += patch.pixels
        self.top, self.left = min(self.top, patch.top), min(self.left, patch.left)
        self.bottom, self.right = max(self.bottom, patch.bottom), max(self.right, patch.right)


def seen(pixels: Pixels) -> list[SceneObject]:
    """Return the objects of a picture [height, width, 3]: every patch, with a shape and a place.

    Colours outside `COLOURS` are "grey", places outside `PLACES` are "elsewhere"; at most 128
    patches are read.
    """
    names = [*COLOURS, UNKNOWN]
    height, width, _ = pixels.shape
    # The number of the colour nearest to each pixel, [height, width]; -1 is background.
    palette = np.array([*COLOURS.values(), UNNAMED_COLOUR, BACKGROUND], np.int32)
    is_drawn = (pixels != BACKGROUND).any(-1)
    distances = ((pixels[is_drawn][:, None, :].astype(np.int32) - palette) ** 2).sum(-1)
    colours = distances.argmin(-1)
    nearest = np.full(is_drawn.shape, -1, np.int64)
    nearest[is_drawn] = np.where(colours == len(palette) - 1, -1, colours)
    patches = [patch for patch in _patches(nearest) if patch.pixels >= SMALLEST]
    return [
        _object_of(patch, names[patch.colour], height, width) for patch in patches[:MAX_PATCHES]
    ]


def _object_of(patch: Patch, colour: str, height: int, width: int) -> SceneObject:
    """Return the object that a patch shows, by fill, colour and place of the bounding box."""
    box = (patch.bottom - patch.top) * (patch.right - patch.left)
    shape = min(FILLED, key=lambda name: abs(FILLED[name] - patch.pixels / box))
    row = (patch.top + patch.bottom) * 3 // (2 * height)
    column = (patch.left + patch.right) * 3 // (2 * width)
    place = next((name for name, cell in PLACES.items() if cell == (row, column)), ELSEWHERE)
    return SceneObject(shape, colour, place)


def _patches(nearest: NDArray[np.int64]) -> list[Patch]:
    """Return the connected patches, from the top; only pixels that share a side are connected.

    A row is a few runs of one colour. A run joins the patches of the runs above that it overlaps.
    """
    patches: list[Patch] = []
    owner: list[int] = []
    """The patch that took each patch, or itself."""

    def root(number: int) -> int:
        while owner[number] != number:
            number = owner[number]
        return number

    rows = set(np.flatnonzero((nearest >= 0).any(axis=1)).tolist())
    above: list[tuple[int, int, int]] = []
    for row, colours in enumerate(nearest):
        runs: list[tuple[int, int, int]] = []
        if row not in rows:
            above = runs
            continue
        edges = [0, *(np.flatnonzero(np.diff(colours)) + 1).tolist(), len(colours)]
        for start, stop in pairwise(edges):
            colour = int(colours[start])
            if colour < 0:
                continue
            own_number = len(patches)
            patches.append(Patch(colour, stop - start, row, start, row + 1, stop))
            owner.append(own_number)
            for left, right, label in above:
                if left < stop and start < right and patches[label].colour == colour:
                    first, second = root(label), root(own_number)
                    if first != second:
                        patches[first].take(patches[second])
                        owner[second] = first
            runs.append((start, stop, own_number))
        above = runs
    return [patch for number, patch in enumerate(patches) if owner[number] == number]
