"""The words of pictures: the few that the shape renderer understands, and the many that people who
want a picture use instead.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, order=True)
class SceneObject:
    """An object of a picture: a shape with a colour and a place."""

    shape: str
    colour: str
    place: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster is a number of equal objects in the same place."""

    count: int
    colour: str
    shape: str
    place: str

    @property
    def prompt(self) -> str:
        """The cluster in words that the shape renderer understands.

        >>> Cluster(2, "red", "circle", "top left").prompt
        '2 red circle top left'
        """
        return f"{self.count} {self.colour} {self.shape} {self.place}"

    @property
    def things(self) -> list[SceneObject]:
        """The objects of the cluster, as a list of equal entries."""
        return [SceneObject(self.shape, self.colour, self.place)] * self.count


def draw_scene(rng: random.Random, clusters: int, max_count: int) -> tuple[Cluster, ...]:
    """Draw random clusters, each in a different place."""
    places = rng.sample(sorted(PLACES), clusters)
    return tuple(
        Cluster(rng.randint(1, max_count), rng.choice(sorted(COLOURS)), rng.choice(SHAPES), place)
        for place in places
    )


def prompt_of(scene: Iterable[Cluster]) -> str:
    """Return the whole scene in words that the shape renderer understands."""
    return ", ".join(cluster.prompt for cluster in scene)


def said(rng: random.Random, cluster: Cluster) -> Cluster:
    """Return the cluster in words that a person would use; `count` stays a number."""
    return Cluster(
        cluster.count,
        rng.choice(SAID_COLOURS[cluster.colour]),
        rng.choice(SAID_SHAPES[cluster.shape]),
        rng.choice(SAID_PLACES[cluster.place]),
    )


def request_of(rng: random.Random, words: Iterable[Cluster]) -> str:
    """Return a person's request for the clusters that `words` name.

    >>> words = [Cluster(1, "ruby", "disc", "halfway along")]
    >>> request_of(random.Random(0), words) in ("a lone ruby disc halfway along",
    ...                                         "a single ruby disc halfway along")
    True
    """
    return ", ".join(
        f"{rng.choice(SAID_COUNTS[word.count])} {word.colour} {word.shape} {word.place}"
        for word in words
    )


def likeness(expected: Iterable[SceneObject], objects_seen: Iterable[SceneObject]) -> float:
    """Return Jaccard's index of two multisets of objects: the number of objects in both over the
    number in either, in [0, 1]; 1 for two empty collections.

    >>> circle = SceneObject("circle", "red", "center")
    >>> square = SceneObject("square", "red", "center")
    >>> likeness([circle, circle], [circle, square])
    0.3333333333333333
    >>> likeness([], [])
    1.0
    """
    first, second = Counter(expected), Counter(objects_seen)
    either = (first | second).total()
    return (first & second).total() / either if either else 1.0


def told(objects: Iterable[SceneObject]) -> str:
    """Describe objects in words, for a reader who cannot see the picture.

    >>> told([SceneObject("circle", "red", "center")] * 2)
    '2 red circle center'
    """
    counts = sorted(Counter(objects).items())
    words = [
        f"{count} {scene_object.colour} {scene_object.shape} {scene_object.place}"
        for scene_object, count in counts
    ]
    return ", ".join(words) or "nothing"
