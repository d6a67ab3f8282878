"""The protocol of an image generator, and a small renderer of coloured shapes."""

from __future__ import annotations

import re
import struct
import zlib
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError

from .words import BACKGROUND, COLOURS, NUMBERS, PLACES, SHAPES, UNNAMED_COLOUR

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
