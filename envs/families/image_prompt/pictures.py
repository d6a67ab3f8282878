"""A generator that draws what a prompt says, and what can be seen in a picture.

The check asks the picture and not whoever drew it, so it holds for every generator whose shapes are
plain enough: patches of one colour each, told apart by how much of their bounding box they fill
(a square all of it, a circle pi/4, a triangle half).
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError

from .scenes import BACKGROUND, COLOURS, NUMBERS, PLACES, SHAPES, UNNAMED_COLOUR, SceneObject

Pixels = NDArray[np.uint8]
"""An image as an array [height, width, 3] of RGB values."""

MAX_CLAUSES = 12
MAX_CHARACTERS = 2000
"""Characters of a prompt that are read; the rest is cut, as image generators cut prompts."""
MAX_OF_A_KIND = 4
_ENDS = re.compile(r"[,;.\n]|\band\b")
_WORDS = re.compile(r"[a-z]+|\d+")


class ImageGenerator(Protocol):
    """An image generator makes images from prompts: a diffusion model, a service or a renderer."""

    def generate(self, prompt: str, *, seed: int) -> Pixels:
        """Return an image for `prompt`; the same prompt and seed should give the same image."""
        ...


class ShapeRenderer:
    """The shape renderer draws coloured shapes on white, at once and without a model.

    A prompt is read clause by clause (`,` `;` `.` `and` end one). A clause draws up to four equal
    shapes: a number (1), a colour (grey), a shape (without one nothing is drawn) and a place
    (center), by the words of `words.COLOURS`, `SHAPES`, `PLACES` and `NUMBERS`, singular or plural,
    in any order. All other words are ignored, as image generators do with words they do not know.

    Args:
        size: side of the square image in pixels, 48 to 1024; a multiple of 6 keeps shapes alike.

    Raises:
        ConfigError: the size is too small to draw on, or beyond 1024.
    """

    def __init__(self, *, size: int = 96) -> None:
        if not 48 <= size <= 1024:
            raise ConfigError(f"size must be from 48 to 1024 pixels, got {size}")
        self.size = size

    def generate(self, prompt: str, *, seed: int = 0) -> Pixels:
        """Return the picture of `prompt`, [size, size, 3]; `seed` changes nothing."""
        pixels = np.full((self.size, self.size, 3), BACKGROUND, np.uint8)
        for clause in _ENDS.split(prompt[:MAX_CHARACTERS].lower())[:MAX_CLAUSES]:
            self._draw(pixels, _WORDS.findall(clause))
        return pixels

    def _draw(self, pixels: Pixels, words: list[str]) -> None:
        names = [word.removesuffix("s") for word in words]
        shape = next((name for name in names if name in SHAPES), None)
        if shape is None:
            return
        colour = next((COLOURS[name] for name in names if name in COLOURS), UNNAMED_COLOUR)
        count = next((NUMBERS[word] for word in words if word in NUMBERS), 1)
        pairs = [" ".join(words[i : i + 2]) for i in range(len(words))]
        row, column = PLACES[next((pair for pair in pairs if pair in PLACES), "center")]
        cell = self.size // 3
        for number in range(min(count, MAX_OF_A_KIND)):
            top = row * cell + number // 2 * (cell // 2)
            left_edge = column * cell + number % 2 * (cell // 2)
            side = cell // 2 - 3
            mask = shape_mask(shape, side)
            pixels[top + 1 : top + 1 + side, left_edge + 1 : left_edge + 1 + side][mask] = colour


def shape_mask(shape: str, side: int) -> NDArray[np.bool_]:
    """Return a mask [side, side] of the pixels that a shape covers."""
    rows, columns = np.mgrid[0:side, 0:side] + 0.5
    if shape == "square":
        return np.ones((side, side), np.bool_)
    centre = side / 2
    if shape == "circle":
        return np.asarray((rows - centre) ** 2 + (columns - centre) ** 2 <= centre**2)
    return np.asarray(np.abs(columns - centre) <= rows / 2)


def png_of(pixels: Pixels) -> bytes:
    """Encode an image as the bytes of a PNG file (8 bits, RGB; ISO/IEC 15948).

    Raises:
        ValueError: `pixels` is not [height, width, 3] of uint8.
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        raise ValueError(
            f"an image is [height, width, 3] of uint8, got {list(pixels.shape)} {pixels.dtype}"
        )
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


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
