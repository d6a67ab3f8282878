"""Draws trees of small files: folders, names and contents."""

from __future__ import annotations

import random
from collections.abc import Mapping

Tree = dict[str, str]
"""A tree of files: the content of each, by path from the top folder."""

FOLDERS = ("inbox", "notes", "reports", "data", "web", "scripts", "photos", "letters")
ENDINGS = ("txt", "log", "csv", "conf", "md")
STEMS = (
    "alder", "birch", "cedar", "dune", "ember", "fjord", "grove", "heron", "ivory", "jasper",
    "kelp", "larch", "maple", "nectar", "osier", "pebble", "quartz", "reed", "sorrel", "tundra",
)  # fmt: skip
WORDS = (
    "anchor", "basket", "candle", "drum", "engine", "feather", "garden", "hammer", "island",
    "jacket", "kettle", "lantern", "mirror", "needle", "orchard", "pillow", "quiver", "ribbon",
    "saddle", "ticket", "umbrella", "violin", "window", "yarn",
)  # fmt: skip
MARKS = ("draft", "old", "copy", "raw")
YEARS = tuple(range(2015, 2025))
EMPTY_RATE, MARKED_RATE, DATED_RATE = 0.12, 0.25, 0.25


def draw_tree(rng: random.Random, files: int) -> Tree:
    """Draw a tree of `files` files in some folders; no two files have the same name."""
    folders_drawn = rng.sample(FOLDERS, min(len(FOLDERS), 2 + files // 6))
    nested = [f"{rng.choice(folders_drawn)}/{name}/" for name in folders_drawn[:2]]
    folders = ["", *[f"{name}/" for name in folders_drawn], *nested]
    names: dict[str, None] = {}
    while len(names) < files:
        names[_draw_name(rng)] = None
    placed = {f"{rng.choice(folders)}{name}": name for name in names}
    return {path: _draw_content(rng, name) for path, name in sorted(placed.items())}


def _draw_name(rng: random.Random) -> str:
    name = f"{rng.choice(STEMS)}{rng.randint(1, 99)}"
    if rng.random() < MARKED_RATE:
        name = f"{rng.choice(MARKS)}_{name}"
    if rng.random() < DATED_RATE:
        name = f"{name}_{rng.choice(YEARS)}"
    return f"{name}.{rng.choice(ENDINGS)}"


def _draw_content(rng: random.Random, name: str) -> str:
    if rng.random() < EMPTY_RATE:
        return ""
    count = rng.randint(1, 8)
    if name.endswith(".conf"):
        return "".join(f"{rng.choice(STEMS)}={rng.choice(WORDS)}\n" for _ in range(count))
    if name.endswith(".csv"):
        return "".join(f"{rng.choice(WORDS)},{rng.randint(1, 999)}\n" for _ in range(count))
    return "".join(" ".join(rng.choices(WORDS, k=rng.randint(1, 6))) + "\n" for _ in range(count))


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def same(left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    """Return whether two trees have the same files, ignoring line feeds at the end of a file."""
    return left.keys() == right.keys() and all(
        content.rstrip("\n") == right[path].rstrip("\n") for path, content in left.items()
    )
