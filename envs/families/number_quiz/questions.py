"""The kinds of question of the number quiz; every answer is a whole number.

Each function draws one question. `largest` is the largest number that the question may show; the
answer may be larger (the number after it, or a sum).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass

LEAST = 10
"""The smallest number that a question shows; addends alone may be smaller, down to 1."""
SPAN = 20
"""The distance between the two ends of the range in a `between` question."""
LARGEST_ADDEND = 30
"""The largest number to be added, however large the numbers of the other questions may be."""


@dataclass(frozen=True, slots=True)
class NumberQuestion:
    """A question and all of its right answers."""

    kind: str
    """The name of the question's kind, a key of `KINDS`."""
    text: str
    """The question as the policy reads it."""
    answers: Collection[int]
    """All right answers; only questions of the kind `between` have several."""
    equation: str = ""
    """The left side of the equation that the answer completes, without spaces: `7+8=`. Empty for
    questions that are not sums.
    """


def after(rng: random.Random, largest: int) -> NumberQuestion:
    """Ask for the number after another one."""
    number = rng.randint(LEAST, largest)
    return NumberQuestion("after", f"Which number comes after {number}?", (number + 1,))


def before(rng: random.Random, largest: int) -> NumberQuestion:
    """Ask for the number before another one."""
    number = rng.randint(LEAST, largest)
    return NumberQuestion("before", f"Which number comes before {number}?", (number - 1,))


def between(rng: random.Random, largest: int) -> NumberQuestion:
    """Ask for any number inside a range; the two ends are not right answers."""
    first = rng.randint(LEAST, largest - SPAN)
    text = f"Name a number between {first} and {first + SPAN}."
    return NumberQuestion("between", text, range(first + 1, first + SPAN))


def larger(rng: random.Random, largest: int) -> NumberQuestion:
    """Ask for the larger of two numbers."""
    first, second = rng.sample(range(LEAST, largest + 1), 2)
    return NumberQuestion(
        "larger", f"Which number is larger, {first} or {second}?", (max(first, second),)
    )


def total(rng: random.Random, largest: int) -> NumberQuestion:
    """Ask for the sum of two numbers from 1 to `LARGEST_ADDEND`."""
    first, second = (rng.randint(1, LARGEST_ADDEND) for _ in range(2))
    return NumberQuestion(
        "sum", f"What is {first} + {second}?", (first + second,), f"{first}+{second}="
    )


KINDS: dict[str, Callable[[random.Random, int], NumberQuestion]] = {
    "after": after,
    "before": before,
    "between": between,
    "larger": larger,
    "sum": total,
}
"""The functions by the name of their kind. Each takes a random number generator and `largest`."""
