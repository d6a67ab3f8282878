"""The words of pictures: the few that the shape renderer understands, and the many that people who
want a picture use instead.
"""

from __future__ import annotations

from collections.abc import Mapping

COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (214, 40, 40),
    "green": (56, 142, 60),
    "blue": (33, 88, 200),
    "yellow": (245, 205, 20),
    "purple": (130, 50, 160),
    "black": (20, 20, 20),
}
"""The colours the renderer understands, name to RGB."""
UNNAMED_COLOUR = (150, 150, 150)
"""The colour (RGB) of shapes for which a prompt names no colour."""
BACKGROUND = (255, 255, 255)

SHAPES = ("circle", "square", "triangle")
PLACES: Mapping[str, tuple[int, int]] = {
    "top left": (0, 0),
    "top right": (0, 2),
    "center": (1, 1),
    "bottom left": (2, 0),
    "bottom right": (2, 2),
}
"""The places the renderer understands, name to row and column in a grid of three by three."""
NUMBERS: Mapping[str, int] = {
    "1": 1, "2": 2, "3": 3, "4": 4, "one": 1, "two": 2, "three": 3, "four": 4,
}  # fmt: skip

SAID_COLOURS: Mapping[str, tuple[str, ...]] = {
    "red": ("crimson", "scarlet", "ruby"),
    "green": ("emerald", "jade", "grassy"),
    "blue": ("navy", "azure", "cobalt"),
    "yellow": ("golden", "lemony", "sunny"),
    "purple": ("violet", "lilac", "plum"),
    "black": ("ebony", "inky", "sooty"),
}
SAID_SHAPES: Mapping[str, tuple[str, ...]] = {
    "circle": ("disc", "ball"),
    "square": ("box", "tile"),
    "triangle": ("wedge", "pyramid"),
}
SAID_PLACES: Mapping[str, tuple[str, ...]] = {
    "top left": ("in the upper west", "high on the port side"),
    "top right": ("in the upper east", "high on the starboard side"),
    "center": ("in the heart of it", "halfway along"),
    "bottom left": ("in the lower west", "low on the port side"),
    "bottom right": ("in the lower east", "low on the starboard side"),
}
SAID_COUNTS: Mapping[int, tuple[str, ...]] = {
    1: ("a lone", "a single"),
    2: ("a pair of", "a couple of"),
    3: ("a trio of", "a triplet of"),
}
"""The words that a person says for each count; the renderer understands none of these."""
