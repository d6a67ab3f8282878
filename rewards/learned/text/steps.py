"""Combines the scores of steps into a reward, and credits the reward to turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Literal, get_args

Whole = Literal["min", "mean", "last", "product", "sum"]
WHOLES: tuple[Whole, ...] = get_args(Whole)


def contributions(scores: Sequence[float], aggregate: Whole) -> list[float]:
    """Return what each step adds to the reward of the whole; the sum is the reward.

    | whole | the reward | what a step adds |
    |---|---|---|
    | min | the least score | the reward at the first step with that score, else 0 |
    | mean | the mean | a share of 1 / n of its score |
    | last | the last score | the reward at the last step |
    | product | the product | by how much it changes the product so far: p_i - p_(i-1), p_0 = 0 |
    | sum | the sum | its score |

    Args:
        scores: the scores of the steps, in order.
        aggregate: how the scores become one reward.

    >>> contributions([0.5, 0.25, 1.0], "min")
    [0.0, 0.25, 0.0]
    >>> contributions([0.5, 0.5], "product")
    [0.5, -0.25]
    """
    if not scores:
        return []
    if aggregate == "sum":
        return list(scores)
    if aggregate == "mean":
        return [score / len(scores) for score in scores]
    if aggregate == "product":
        products = list(accumulate(scores, mul))
        return [products[0], *(b - a for a, b in pairwise(products))]
    position = len(scores) - 1 if aggregate == "last" else scores.index(min(scores))
    return [score if place == position else 0.0 for place, score in enumerate(scores)]


def split_steps(text: str, separator: str) -> list[str]:
    """Split a text into steps: the parts between separators that are not blank, stripped.

    >>> split_steps("a\\n\\n\\n\\nb", "\\n\\n")
    ['a', 'b']
    """
    return [step.strip() for step in text.split(separator) if step.strip()]


def by_turn(values: Sequence[float], turns: Sequence[int], count: int) -> list[float]:
    """Add up the values of steps by turn.

    Args:
        values: the value of each step.
        turns: the number of the turn of each step, from 0.
        count: number of turns; the length of the result.

    >>> by_turn([1.0, 2.0, 4.0], [0, 0, 2], 3)
    [3.0, 0.0, 4.0]
    """
    return [
        math.fsum(
            value for value, value_turn in zip(values, turns, strict=True) if value_turn == turn
        )
        for turn in range(count)
    ]
