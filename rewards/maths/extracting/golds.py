"""The answer inside a gold that is given as a whole solution with boxes."""

from __future__ import annotations

from .marks import Box, all_boxes, joined


def unboxed(gold: str) -> str:
    r"""Return the content of a gold's boxes, or the gold itself if no box is present.

    Several boxes with different contents are one answer with several parts: the contents joined
    by commas, each with its name if the boxes have different names.

    >>> unboxed(r"$x = \boxed{2}$, so $y = \boxed{3}$.")
    'x = 2 , y = 3'
    """
    boxes = _filled(gold)
    return joined(gold, boxes) if boxes else gold


def parts(gold: str) -> int:
    """Return how many boxes with different contents a gold has; 0 without a box."""
    boxes = _filled(gold)
    return len({gold[box.open : box.close].strip() for box in boxes})


def _filled(gold: str) -> list[Box]:
    if "\\boxed" not in gold and "\\fbox" not in gold:
        return []
    return [box for box in all_boxes(gold) if box.closed and gold[box.open : box.close].strip()]
