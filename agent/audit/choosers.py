"""How one of several pieces of a text is chosen: by place, size, frequency, or a sign that it alone
has. All of `CHOOSERS` are tried by `rules.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial

from .pieces import NUMERAL

Choose = Callable[[list[str]], str]
"""A function from the pieces of a text to one of them; "" for none."""
RANKED = ("out of order", "smallest", "median", "largest", "most frequent")
"""Parts of the names of choices by size, frequency or order (`RuleKind.RANK`). A task may mean
these; the others, such as the longest piece, say nothing of what it means.
"""
_SIGNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "with a digit": (r"\d", ("digit", "number")),
    "with a capital": (r"[A-Z]", ("capital", "upper")),
    "with a full stop": (r"\.$", ("stop", "punctuat")),
    "with a comma": (r",", ("comma", "punctuat")),
    "with a space": (r"\s", ("space", "words")),
    "with a hyphen": (r"-", ("hyphen", "dash")),
    "with a mark": (r"[^\w\s.,-]", ("mark", "punctuat", "symbol")),
}
"""From a sign that only one of several pieces may have to its pattern, and to beginnings of words
by which a task asks for that sign.
"""
_LABELLED = re.compile(r"\s*\(?(?:[A-Za-z]|\d{1,2})[.):]\s+\D{0,3}(-?\d+(?:\.\d+)?)\D*")
JOINTS = (" ", ", ", ",")
"""What stands between the pieces of an answer that is a list."""
TURNED = ("backward", "revers", "mirror")
_MOST = ("most", "often", "frequen", "common", "repeat", "count", "times")
_LARGE = ("larg", "great", "max", "most", "high", "big", "last", "old", "top", "best", "sort")
_SMALL = ("small", "least", "min", "low", "few", "first", "young", "less", "sort")
_MIDDLE = ("median", "middle", "sort")
_SORTS = ("sort", "alphabet", "ascending", "descending", "increasing", "decreasing", "smallest")
"""Beginnings of words by which a task asks for a choice."""


def at_place(place: int) -> Choose:
    """Return the choice of the piece at a place, from either end: 0 is the first, -1 the last."""
    return lambda values: values[place] if -len(values) <= place < len(values) else ""


def _size(value: str) -> float | None:
    """Return the number that a piece is, or that stands alone behind the label of a choice."""
    number = NUMERAL.fullmatch(value) or _LABELLED.fullmatch(value)
    return float(number[number.lastindex or 0]) if number else None


def _ranked(share: float) -> Choose:
    """Return a choice among numbers by size: 0 is the smallest, 0.5 the median, 1 the largest."""

    def choose(values: list[str]) -> str:
        sized = {value: size for value in values if (size := _size(value)) is not None}
        ordered = sorted(sized, key=sized.__getitem__)
        return ordered[round(share * (len(ordered) - 1))] if ordered else ""

    return choose


def _most_frequent(values: list[str]) -> str:
    """Return the value that stands more often than any other; "" if there is none."""
    (first, times), (_, second) = [*Counter(values).most_common(2), ("", 0), ("", 0)][:2]
    return first if times > max(1, second) else ""


def _central(sign: int, values: list[str]) -> str:
    """Return the option that differs least, or most, from all others: wrong options are often made
    by small changes of the right one. "" if several do, or if there are too few or many options.
    """
    if not 2 < len(values) <= 12:
        return ""

    def distance(value: str) -> int:
        return sign * sum(
            abs(len(value) - len(other)) + sum(map(str.__ne__, value, other)) for other in values
        )

    least, second, *_ = sorted(values, key=distance)
    return least if distance(least) < distance(second) else ""


def _unsorted(values: list[str]) -> str:
    """Return the value that stands out of order, of two neighbours the first: a right option is
    often put anywhere into a sorted list of wrong ones.
    """
    sizes = [_size(value) for value in values]
    kept = [size for size in sizes if size is not None]
    if len(kept) != len(values) or not 3 < len(values) <= 12 or kept in (sorted(kept), []):
        return ""
    odd = [
        n for n in range(len(kept)) if sorted(kept[:n] + kept[n + 1 :]) == kept[:n] + kept[n + 1 :]
    ]
    return values[odd[0]] if 0 < len(odd) < 3 else ""


def _apart(sign: str, has: bool, values: list[str]) -> str:
    """Return the only value with, or without, a sign; "" if several values qualify."""
    kept = [value for value in values if bool(re.search(sign, value)) == has]
    return kept[0] if len(kept) == 1 < len(values) else ""


_ORDERS: tuple[tuple[str, Callable[[list[str]], list[str]], tuple[str, ...]], ...] = (
    ("sorted", sorted, _SORTS),
    ("turned", lambda values: values[::-1], TURNED),
    ("each once, sorted", lambda values: sorted({*values}), _SORTS),
    ("each once, turned", lambda values: sorted({*values}, reverse=True), _SORTS),
)
CHOOSERS: tuple[tuple[str, Choose, tuple[str, ...]], ...] = (
    ("longest", lambda values: max(values, key=len, default=""), ("longest",)),
    ("shortest", lambda values: min(values, key=len, default=""), ("shortest",)),
    ("alphabet's first", lambda values: min(values, default=""), _SORTS),
    ("alphabet's last", lambda values: max(values, default=""), _SORTS),
    ("smallest", _ranked(0.0), _SMALL),
    ("median", _ranked(0.5), _MIDDLE),
    ("largest", _ranked(1.0), _LARGE),
    ("most frequent", _most_frequent, _MOST),
    ("out of order", _unsorted, ("order", "sequence")),
    ("most like the others", partial(_central, 1), ("alike", "similar", "close")),
    ("least like the others", partial(_central, -1), ("odd", "differ", "outlier", "unlike")),
    *(
        (f"{which} {name}", partial(_apart, sign, has), words)
        for name, (sign, words) in _SIGNS.items()
        for which, has in (("only", True), ("only not", False))
    ),
    *(
        (f"{name}, by {j!r} joined", partial(lambda j, order, v: j.join(order(v)), j, order), words)
        for j in JOINTS
        for name, order, words in _ORDERS
    ),
)
