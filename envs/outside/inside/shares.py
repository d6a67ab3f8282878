"""Splits lists of tasks by a digest of each task, whatever their order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

SPLITS = ("train", "validation", "test")
Item = TypeVar("Item")


def split(items: Iterable[Item], key: Callable[[Item], str]) -> dict[str, list[Item]]:
    """Return the items of each split: about a tenth for validation, and a tenth for test.

    A list of fewer than three items is all for training. Equal keys are in one split.
    """
    listed = list(items)
    found: dict[str, list[Item]] = {name: [] for name in SPLITS}
    for item in listed:
        share = hashlib.blake2b(key(item).encode(), digest_size=4).digest()[0] / 256
        named = SPLITS[0 if share >= 0.2 else 1 if share >= 0.1 else 2]
        found[named if len(listed) > 2 else "train"].append(item)
    return found
