"""What one question may cost: counted steps, not seconds."""

from __future__ import annotations

import pytest

from ludus.rewards.maths.comparing.matrices import MAX_TREE, worked_out
from ludus.rewards.maths.proving.calculator import MAX_WORK, Beyond, Calculator, OverBudget, Work
from ludus.rewards.maths.proving.precise import agree
from ludus.rewards.maths.reading.nodes import Node, walk
from ludus.rewards.maths.reading.reader import read


@pytest.mark.parametrize(
    "formula",
    [r"\sum_{k=1}^{19999} k^{k}", r"\prod_{k=1}^{20000} (1+1/k)",
     r"\int_0^1\int_0^1\int_0^1 \sin(xyz) dx dy dz"],
)  # fmt: skip
def test_a_question_ends_after_a_counted_number_of_steps(formula: str) -> None:
    with pytest.raises(OverBudget, match=str(MAX_WORK)):
        agree(read(formula), read("1.2345"))


def test_a_question_within_the_budget_is_settled() -> None:
    assert agree(read(r"\int_0^1 x^2 dx"), read(r"\frac{1}{3}")) is True
    assert agree(read(r"\sum_{k=1}^{\infty}\frac{1}{k^2}"), read(r"\frac{\pi^2}{6}")) is True
    assert agree(read(r"\int_0^1 x^2 dx"), read(r"\frac{1}{4}")) is False


@pytest.mark.parametrize(
    "formula", [r"\sin(10^{10^6})", r"\tan(3^{3^{12}})", r"\gcd(10^{1000}, 7)"]
)
def test_an_argument_beyond_the_limit_is_refused_before_it_is_reduced(formula: str) -> None:
    with pytest.raises(Beyond):
        Calculator({}, Work()).value(read(formula))


def test_a_product_of_matrices_with_variables_does_not_grow_without_bound() -> None:
    factor = r"\begin{pmatrix}a&b\\c&d\end{pmatrix}"
    assert worked_out(read(factor * 2)).op == "matrix"
    long = worked_out(read(factor * 12))
    assert long.op == "mul"
    assert sum(1 for _ in walk(long)) < MAX_TREE


def test_numbers_in_a_product_of_matrices_are_multiplied_at_once() -> None:
    product = worked_out(read(r"\begin{pmatrix}1&1\\1&0\end{pmatrix}" * 10))
    assert [cell.value for cell in product.args] == [89, 55, 55, 34]
    assert product.args[0] == Node("num", (), 89)
