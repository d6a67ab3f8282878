"""What a peer's adapter offers, and helpers that all adapters share.

A reset and a step are answered with plain dictionaries, which become JSON:

    reset   observation, and optionally system_prompt, answer_format, tools, max_turns, gold, expert
    step    observation, reward or failure, terminated, truncated, and optionally info, expert
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar


class PeerRefusal(ValueError):
    """What was asked for cannot be done: an unknown family, variant or setting."""


class PeerBroken(RuntimeError):
    """The peer's environment broke the peer's own interface."""


class PeerEpisodes(Protocol):
    """An environment of a peer, which plays one episode at a time."""

    def about(self) -> dict[str, Any]:
        """Return facts: `sizes` (tasks of each split, where listed) and `rewards` (the lowest and
        the highest reward, where the peer declares any).
        """
        ...

    def reset(self, task: dict[str, Any]) -> dict[str, Any]:
        """Begin an episode of a task with `split`, `index` in the split, and `seed` (32 bits)."""
        ...

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        """Play an action with `text` and `calls`."""
        ...


def as_text(value: object) -> str:
    """Return an observation as text; what is not text is written as JSON.

    Raises:
        PeerBroken: the observation is neither text nor plain data, such as an array or an image.
    """
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        kind = type(value)
        raise PeerBroken(
            f"the observation is a {kind.__module__}.{kind.__qualname__}, neither text nor plain "
            "data that could be shown as text"
        ) from None


def as_reward(value: object) -> float:
    """Return a reward as a float.

    Raises:
        PeerBroken: the reward is not a finite number.
    """
    try:
        number = float(value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        raise PeerBroken(f"the reward is {value!r:.80}, not a number") from None
    if not math.isfinite(number):
        raise PeerBroken(f"the reward is {number}, not a finite number")
    return number


def refuse_unknown(name: str, known: list[str], what: str) -> None:
    """Refuse a name that is not among the known names.

    Raises:
        PeerRefusal: the message has the nearest names.
    """
    import difflib

    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; near: {', '.join(near)}" if near else ""
    raise PeerRefusal(f"no {what} named {name!r}{hint}")


SPLITS = ("train", "validation", "test")
Item = TypeVar("Item")


def split(items: Iterable[Item], key: Callable[[Item], str]) -> dict[str, list[Item]]:
    """Return the items of each split: about a tenth for validation, and a tenth for test.

    A list of fewer than three items is all for training. Equal keys are in one split.
    """
    listed = list(items)
    items_of: dict[str, list[Item]] = {name: [] for name in SPLITS}
    for item in listed:
        share = hashlib.blake2b(key(item).encode(), digest_size=4).digest()[0] / 256
        named = SPLITS[0 if share >= 0.2 else 1 if share >= 0.1 else 2]
        items_of[named if len(listed) > 2 else "train"].append(item)
    return items_of
