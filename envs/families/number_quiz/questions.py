"""Questions whose answer is a whole number."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass

LEAST = 10
"""The smallest number in a question that is not a sum."""
SPAN = 20
"""How far apart the two ends of a range are."""
LARGEST_ADDEND = 30


@dataclass(frozen=True, slots=True)
class Question:
    """A question and all of its right answers."""

    kind: str
    text: str
    answers: Collection[int]
    equation: str = ""
    """The left side of the equation that the answer completes, without blanks: `7+8=`. Empty for
    questions that are not sums.
    """


def after(rng: random.Random, largest: int) -> Question:
    """Ask for the number after another one."""
    number = rng.randint(LEAST, largest)
    return Question("after", f"Which number comes after {number}?", (number + 1,))


def before(rng: random.Random, largest: int) -> Question:
    """Ask for the number before another one."""
    number = rng.randint(LEAST, largest)
    return Question("before", f"Which number comes before {number}?", (number - 1,))


def between(rng: random.Random, largest: int) -> Question:
    """Ask for any number inside a range; the two ends are no answers."""
    first = rng.randint(LEAST, largest - SPAN)
    text = f"Name a number between {first} and {first + SPAN}."
    return Question("between", text, range(first + 1, first + SPAN))


def larger(rng: random.Random, largest: int) -> Question:
    """Ask for the larger of two numbers."""
    one, other = rng.sample(range(LEAST, largest + 1), 2)
    return Question("larger", f"Which number is larger, {one} or {other}?", (max(one, other),))


def total(rng: random.Random, largest: int) -> Question:
    """Ask for the sum of two numbers, each at most 30."""
    one, other = (rng.randint(1, min(LARGEST_ADDEND, largest)) for _ in range(2))
    return Question("sum", f"What is {one} + {other}?", (one + other,), f"{one}+{other}=")


KINDS: dict[str, Callable[[random.Random, int], Question]] = {
    "after": after,
    "before": before,
    "between": between,
    "larger": larger,
    "sum": total,
}
"""The kinds of question by name. Each function takes the generator of chance and the largest
number.
"""
