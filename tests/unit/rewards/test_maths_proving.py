"""Proofs with numbers: in doubles with bounds on the errors, and with many digits."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, strategies as st

from ludus.rewards.maths.proving.calculator import Calculator, UndefinedValue, Work
from ludus.rewards.maths.proving.precise import agree
from ludus.rewards.maths.proving.probe import Undefined, differ, evaluate
from ludus.rewards.maths.reading.nodes import Node, shape
from ludus.rewards.maths.reading.reader import read


def surely_differ(one: str, other: str) -> bool:
    left, right = read(one), read(other)
    return differ(left, right, shape(left), shape(right))


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        (r"\sign(\sqrt{2}^2-2)", "0"),  # in doubles 4.4e-16
        (r"\sign(\sin(\pi))", "0"),
        (r"\sign(x-x)", "0"),
        (r"\lfloor \sqrt{2}^2 \rfloor", "2"),
        (r"\gcd(10^{17}x + 3 - 10^{17}x, 9)", "3"),  # in doubles gcd(0, 9)
        (r"\binom{10^5+0.3}{2}", r"\frac{(10^5+0.3)(10^5-0.7)}{2}"),  # digits cancel
        (r"\binom{30}{15}", "155117520"),
    ],
)
def test_a_value_within_the_error_does_not_surely_differ(formula: str, value: str) -> None:
    assert not surely_differ(formula, value)


@pytest.mark.parametrize(
    ("formula", "value"),
    [(r"\sign(\sqrt{2}-2)", "1"), (r"\sign(x)", "0"), (r"\lfloor \sqrt{5} \rfloor", "1"),
     (r"\gcd(12, 18)", "5"), (r"\binom{30}{15}", "155117521"), (r"\max(x, 1)", "x")],
)  # fmt: skip
def test_another_value_surely_differs(formula: str, value: str) -> None:
    assert surely_differ(formula, value)


@given(st.fractions(0, 10**6, max_denominator=1000), st.integers(0, 20))
def test_the_bound_of_a_binomial_coefficient_covers_its_error(upper: Fraction, lower: int) -> None:
    coefficient = Node("func", (Node("num", (), upper), Node("num", (), lower)), note="binom")
    try:
        value, error = evaluate(coefficient, {}, imaginary=False)
    except Undefined:
        return
    exact = Fraction(1)
    for factor in range(lower):
        exact = exact * (upper - factor) / (factor + 1)
    assert abs(Fraction(value.real) - exact) <= error


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


# Equal by an identity of trigonometry, of logarithms or of roots; none by algebra alone.
IDENTITIES = [
    (r"\cos 90^\circ", "0"), (r"\sin\pi", "0"), (r"\sin 30^\circ", r"\frac12"),
    (r"\tan\frac{\pi}{4}", "1"), (r"\arctan 1", r"\frac{\pi}{4}"), (r"\ln 6", r"\ln 2+\ln 3"),
    (r"\log_2 9", r"2\log_2 3"), (r"e^{i\pi}", "-1"), (r"\cos 36^\circ", r"\frac{1+\sqrt5}{4}"),
    (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2"), (r"\sin^2 x+\cos^2 x", "1"), (r"\sin 2x", r"2\sin x\cos x"),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), IDENTITIES)
@pytest.mark.parametrize("scale", ["1", r"10^{-30}", r"10^{20}"])
def test_sides_that_are_equal_have_the_difference_0_at_any_scale(
    left: str, right: str, scale: str
) -> None:
    difference = read(rf"{scale}\left({left}-\left({right}\right)\right)")
    assert agree(difference, read("0"))
    assert agree(read("0"), difference)


def test_what_a_sum_cancels_is_computed_until_it_shows() -> None:
    left = r"1-\tanh^2 x"  # 10^-260 at the far points
    assert agree(read(left), read(r"\operatorname{sech}^2 x"))
    assert agree(read(left), read(r"2\operatorname{sech}^2 x")) is False


def test_a_term_that_is_0_hides_no_small_one() -> None:
    sides = (r"\cos 90^\circ + 2\ln 3 + e^{-1000}", r"\ln 9 + e^{-1000}", r"\ln 9")
    assert agree(read(sides[0]), read(sides[1]))
    assert agree(read(sides[0]), read(sides[2])) is False


@pytest.mark.parametrize(
    "small", [r"e^{-1000}", r"\sin(10^{-40})", r"2^{-400}", r"\ln(1+10^{-60})"]
)
def test_a_small_number_is_not_0(small: str) -> None:
    assert agree(read(small), read("0")) is False
