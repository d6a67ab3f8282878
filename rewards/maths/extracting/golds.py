"""The answer that a gold is, when it is given as a solution with boxes."""

from __future__ import annotations

from .marks import Box, all_boxes, joined


def unboxed(gold: str) -> str:
    """A gold given as a whole solution: what its boxes hold.

    Several boxes with different contents are one answer with several parts: the contents joined by
    commas, each with its name if the boxes have different ones.

    >>> unboxed(r"$x = \\boxed{2}$, so $y = \\boxed{3}$.")
    'x = 2 , y = 3'
    """
    boxes = _filled(gold)
    return joined(gold, boxes) if boxes else gold


def parts(gold: str) -> int:
    """How many boxes with different contents a gold has; 0 without a box."""
    boxes = _filled(gold)
    return len({gold[box.open : box.close].strip() for box in boxes})


def _filled(gold: str) -> list[Box]:
    if "\\boxed" not in gold and "\\fbox" not in gold:
        return []
    return [box for box in all_boxes(gold) if box.closed and gold[box.open : box.close].strip()]
