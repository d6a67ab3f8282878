"""Equality of formulas at random points with many digits, to a stated error. Runs in pool workers
only.

Both sides are computed with mpmath at 50 digits and again at 100. Equal means: at every point
the difference falls below 10^-35 and then 10^-75 of the larger side. For formulas that are not
the same this happens by chance with probability below 10^-70 per point. Sums of very different
sizes (1 + e^-1000) raise the precision until the smallest term would show; where that takes more
than MAX_DIGITS the question stays open.
"""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import NamedTuple

import mpmath
from mpmath.libmp import NoConvergence

from ..reading.nodes import Node, symbols, walk
from .calculator import ROUGH_DIGITS, Beyond, Calculator, OverBudget, Work
from .judge import infinity

DIGITS = 50
MAX_DIGITS = 3000
NEEDED = 4
TRIES = 20

_NO_VALUE = (ArithmeticError, ValueError, TypeError, NoConvergence)
"""The exceptions that ludus and mpmath raise for a formula without a value at a point."""


def agree(left: Node, right: Node) -> bool | None:
    """Return whether two formulas are equal, or None if the question cannot be settled.

    Raises:
        OverBudget: an answer takes more than MAX_WORK.
    """
    work = Work()
    if _needs_quadrature(left) or _needs_quadrature(right):
        return _agree_roughly(left, right, work)
    return _agree_exactly(left, right, work)


def _needs_quadrature(node: Node) -> bool:
    """Return whether `node` contains integrals, limits or infinite sums, which are computed to few
    digits only.
    """
    return any(
        part.op == "func"
        and (
            part.note.startswith(("int", "lim"))
            or (part.note in {"sum", "prod"} and infinity(part.args[-1]) != 0)
        )
        for part in walk(node)
    )


ROUGH = 1e-16
ROUGH_SPREAD = 15.0
"""The orders of magnitude between the terms of a sum beyond which 16 digits do not show the
smallest term.
"""


def _agree_roughly(left: Node, right: Node, work: Work) -> bool | None:
    """Compare formulas with integrals, limits or infinite sums.

    Such values are known to some 20 digits, so both sides agree if 16 digits do, at three
    points.
    """
    names = sorted(symbols(left) | symbols(right))
    random, confirmed = Random(22), 0
    for _ in range(6 if names else 1):
        point = {name: Fraction(random.randrange(100_000, 700_000), 1_000_003) for name in names}
        with mpmath.workdps(ROUGH_DIGITS):
            plain = [Calculator(point, work) for _ in range(2)]
            try:
                first, second = (
                    calculator.extended(side)
                    for calculator, side in zip(plain, (left, right), strict=True)
                )
            except _NO_VALUE:
                continue
            if any(
                calculator.spread > ROUGH_SPREAD and not _needs_quadrature(side)
                for calculator, side in zip(plain, (left, right), strict=True)
            ):
                return None  # With so few digits, 9 + e^-100000 looks like 9.
            if not (mpmath.isfinite(first) and mpmath.isfinite(second)):
                return bool(first == second)
            if abs(first - second) > ROUGH * max(1, abs(first), abs(second)):
                return False
            confirmed += 1
        if confirmed == 3:
            return True
    return True if confirmed and not names else None


def _agree_exactly(left: Node, right: Node, work: Work) -> bool | None:
    names = sorted(symbols(left) | symbols(right))
    # A fixed seed makes the verdict reproducible.
    random = Random(20)
    confirmed = 0
    for attempt in range(TRIES if names else 1):
        scale = _SCALES[attempt % len(_SCALES)]
        point = {
            name: Fraction(random.randrange(300_000, 3_000_000), 1_000_003) * scale
            for name in names
        }
        same = _agree_at(left, right, point, work)
        if same is False:
            return False
        confirmed += same is True
        if confirmed >= NEEDED:
            return True
    if not names:
        return True if confirmed else None
    # Some formulas are defined for whole numbers only: (-1)^n, or sums up to n. There are few such
    # points, so that twice as many have to agree.
    random = Random(21)
    confirmed = 0
    for _ in range(2 * TRIES):
        point = {name: Fraction(random.randrange(2, 12)) for name in names}
        same = _agree_at(left, right, point, work)
        if same is False:
            return False
        confirmed += same is True
    return True if confirmed >= 2 * NEEDED else None


def limit_met(*nodes: Node) -> str:
    """Return the computing limit that either formula exceeds, or "".

    >>> from ..reading.reader import read
    >>> limit_met(read("3"), read("9^{9^{9^9}}"))
    'a power beyond 10^1000000'
    """
    for node in nodes:
        try:
            Calculator(dict.fromkeys(symbols(node), Fraction(3)), Work()).value(node)
        except (Beyond, OverBudget) as error:
            return str(error)
        except _NO_VALUE:
            continue
    return ""


_SCALES = (Fraction(1, 4), 300, -1, -300, 1)
"""The scales of the test points: near and far and of both signs, so that both branches of max(7, x)
occur. The first scale keeps points within (0, 1), where inverse functions are defined.
"""


def _agree_at(left: Node, right: Node, point: dict[str, Fraction], work: Work) -> bool | None:
    digits = DIGITS
    earlier = (math.inf, 0)
    for _ in range(6):
        if digits > MAX_DIGITS:
            return None
        low = _difference(left, right, point, digits, work)
        if low is None:
            return None
        # A term smaller than the working precision would vanish from its sum: add digits. A term
        # that shrinks as they are added is 0, as cos 90° in 1 + cos 90°.
        shrinks = low.spread - earlier[0] > 0.7 * (digits - earlier[1])
        if low.spread + 20 > digits and not shrinks:
            earlier = (low.spread, digits)
            digits = int(low.spread * 1.2) + DIGITS
            continue
        high = _difference(left, right, point, 2 * digits, work)
        if high is None:
            return None
        # What is left of a value that shrinks with the precision is rounding: both sides are 0, as
        # in cos 90° = 0. A small number, such as e^-1000, stays.
        if high.size < low.size - 0.5 * digits:
            if low.size < -0.7 * digits and high.size < -1.5 * digits:
                return True
            digits *= 2
            continue
        # The difference of equal formulas shrinks with the precision; of others it stays.
        if low.relative < -0.7 * digits and high.relative < -1.5 * digits:
            return True
        if high.relative > -0.5 * digits:
            # 1 - tanh^2 x is lost in rounding for a large x, until the digits reach it.
            reach = high.largest - high.gap
            if reach + 20 <= digits:
                return False
            digits = int(reach * 1.2) + DIGITS
            continue
        digits *= 2
    return None


class _Difference(NamedTuple):
    """How far two sides are apart at a point, in powers of ten."""

    gap: float
    relative: float
    """The gap in units of the larger side."""
    size: float
    """The size of the larger side; 0 where the gap is 0."""
    spread: float
    """The widest spread of sizes in any sum."""
    largest: float
    """The size of the largest term of any sum."""


def _difference(
    left: Node, right: Node, point: dict[str, Fraction], digits: int, work: Work
) -> _Difference | None:
    """Compare two sides with so many digits; None at a point where a side is undefined."""
    with mpmath.workdps(digits + 10):
        calculator = Calculator(point, work)
        try:
            first, second = calculator.value(left), calculator.value(right)
        except _NO_VALUE:
            return None
        gap, size = abs(first - second), max(abs(first), abs(second))
        sums = calculator.spread, calculator.largest
        if size == 0 or gap == 0:
            return _Difference(-math.inf, -math.inf, 0.0, *sums)
        if not mpmath.isfinite(gap):
            return None
        relative = float(mpmath.log10(gap / size))
        size = float(mpmath.log10(size))
        return _Difference(relative + size, relative, size, *sums)
