"""Proofs with numbers: what a calculator keeps after a formula without a value."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest

from ludus.rewards.maths.proving.calculator import Calculator, UndefinedValue, Work
from ludus.rewards.maths.proving.precise import agree
from ludus.rewards.maths.reading.reader import read


@pytest.mark.parametrize(
    "formula",
    [r"\int_{-1}^1 \ln x dx", r"\sum_{k=-1}^{3} \frac{1}{k}", r"\prod_{k=0}^{3} \ln k",
     r"\lim_{x\to 0} \int_0^1 \frac{1}{x-x} dt"],
)  # fmt: skip
def test_a_calculator_is_as_before_after_a_formula_without_a_value(formula: str) -> None:
    with mpmath.workdps(40):
        calculator = Calculator({"k": Fraction(5)}, Work())
        with pytest.raises(UndefinedValue):
            calculator.value(read(formula))
        assert calculator.point == {"k": 5}
        assert not calculator.vanishing


def test_an_integral_out_of_range_does_not_make_small_powers_vanish_outside() -> None:
    # Far out the integral is beyond the range; nearer by the second term is a power too small to
    # compute times a large product. The second term is 1, so that the limit is 2.
    one = r"e^{-300x} \cdot \prod_{k=1}^{30} e^{10x}"
    limit = read(rf"\lim_{{x\to\infty}} (\int_0^1 2^x \cdot 2^{{-x}} dt + {one})")
    assert agree(limit, read("1")) is None
    assert agree(limit, read("2")) is not False
