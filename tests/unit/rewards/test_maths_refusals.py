"""Answers that equal the gold and still do not answer the question, with the right answer beside.

Each law draws the numbers; its oracle is arithmetic here, never the verifier.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from ludus.rewards.maths import MathsVerifier

FEW = settings(max_examples=15, deadline=None)


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    verifier = MathsVerifier(workers=1)
    yield verifier
    verifier.close()


def _paid(verifier: MathsVerifier, gold: str, response: str, prompt: str) -> bool:
    return verifier.verify(gold, response, prompt=prompt).reward == 1.0


PRIMES = (2, 3, 5, 7, 11, 13, 17, 97)
FACTOR = (
    "Give the prime factorization of {}.", "Décompose {} en facteurs premiers.",
    "Zerlege {} in Primfaktoren.", "Descompón {} en factores primos.",
    "Decomponha {} em fatores primos.", "Scomponi {} in fattori primi.",
    "Разложите {} на простые множители.", "将 {} 分解质因数。", "{} を素因数分解しなさい。",
    "{} 을 소인수분해하시오.",
)  # fmt: skip


@FEW
@given(
    factors=st.lists(st.sampled_from(PRIMES), min_size=3, max_size=5),
    ask=st.sampled_from(FACTOR),
    sign=st.sampled_from(["·", "\\cdot", "×"]),
)
def test_factors_that_are_not_prime_are_no_prime_factorization(
    verifier: MathsVerifier, factors: list[int], ask: str, sign: str
) -> None:
    number = 1
    for factor in factors:
        number *= factor
    powers = {prime: factors.count(prime) for prime in sorted(set(factors))}
    gold = " \\cdot ".join(f"{prime}^{{{power}}}" for prime, power in powers.items())
    listed = f" {sign} ".join(map(str, factors))
    coarse = f" {sign} ".join(map(str, [factors[0] * factors[1], *factors[2:]]))
    for product, paid in ((listed, True), (gold, True), (coarse, False), (str(number), False)):
        answer = f"So ${number} = {product}$." if product != str(number) else f"\\boxed{{{number}}}"
        if len(powers) > 1 or product != gold:
            assert _paid(verifier, gold, answer, ask.format(number)) == paid, (gold, answer)
    for product, paid in ((listed, True), (coarse, False)):
        checked = f"\\boxed{{{product} = {number}}}"  # a chain may end in the value
        if len(powers) > 1:
            assert _paid(verifier, gold, checked, ask.format(number)) == paid, checked


@FEW
@given(
    factors=st.lists(st.sampled_from(PRIMES), min_size=2, max_size=4), ask=st.sampled_from(FACTOR)
)
def test_a_number_about_prime_factors_is_a_number(
    verifier: MathsVerifier, factors: list[int], ask: str
) -> None:
    prompt = ask.format(math.prod(factors)) + " {}"
    for value, question in ((max(factors), "Name the largest."), (sum(factors), "Add them up.")):
        for answer in (f"{value}", f"{value}.0", f"m = {value}", f"{value - 1} + 1 = {value}"):
            said = f"\\boxed{{{answer}}}"
            assert _paid(verifier, str(value), said, prompt.format(question)), (value, answer)


@FEW
@given(value=st.integers(2, 300), factor=st.integers(2, 20), part=st.integers(1, 90))
def test_a_value_that_is_asked_is_worked_out(
    verifier: MathsVerifier, value: int, factor: int, part: int
) -> None:
    prompt = "How many days would 10 workers need?"
    open_ones = (
        f"{value * factor}/{factor}", f"{value + part} - {part}",
        f"{value}\\ln e - \\ln 1", f"{value} + \\sin 0",
        f"\\sqrt{{{value * value}}}",
    )  # fmt: skip
    for formula in open_ones:
        for response in (f"\\boxed{{{formula}}}", f"Answer: ${formula}$"):
            assert not _paid(verifier, str(value), response, prompt), (value, response)
            worked = response.replace(formula, f"{formula} = {value}")
            assert _paid(verifier, str(value), worked, prompt), (value, worked)

    quotient = f"\\frac{{{value * factor}}}{{{factor}}}"
    assert _paid(verifier, quotient, f"\\boxed{{{value}}}", prompt)
    assert _paid(verifier, str(value), f"\\boxed{{{quotient}}}", prompt)  # a numeral, unreduced


SOLVE = (
    "Solve {} for {}.", "Löse {} nach {} auf.", "Despeja {1} en {0}.", "Résoudre {} en {}.",
    "Выразите {1} из {0}.", "由 {} 解出 {}。",
)  # fmt: skip


@FEW
@given(
    first=st.integers(2, 9), second=st.integers(2, 9), total=st.integers(1, 30),
    ask=st.sampled_from(SOLVE), dollars=st.booleans(),
)  # fmt: skip
def test_an_equation_is_solved_for_the_letter_that_is_asked(
    verifier: MathsVerifier, first: int, second: int, total: int, ask: str, dollars: bool
) -> None:
    equation = f"{first}x + {second}y = {total}"
    prompt = ask.format(f"${equation}$" if dollars else equation, "y")
    gold = f"y = \\frac{{{total} - {first}x}}{{{second}}}"
    same = f"y = \\frac{{{total}}}{{{second}}} - \\frac{{{first}}}{{{second}}}x"
    other = f"x = \\frac{{{total} - {second}y}}{{{first}}}"
    halfway = f"{second}y = {total} - {first}x"
    for answer, paid in ((gold, True), (same, True), (other, False), (halfway, False)):
        assert _paid(verifier, gold, f"so \\boxed{{{answer}}}", prompt) == paid, (prompt, answer)


@FEW
@given(top=st.integers(2, 40), under=st.integers(2, 40))
def test_a_sum_of_the_parts_of_a_fraction_is_no_fraction(
    verifier: MathsVerifier, top: int, under: int
) -> None:
    prompt = "The area can be written as $\\frac{m}{n}$, in lowest terms. Find $m + n$."
    total = str(top + under)
    assert _paid(verifier, total, f"So $\\boxed{{0{total}}}.$\n\\boxed{{{total}}}", prompt)
    assert not _paid(verifier, total, f"\\boxed{{\\frac{{{top}}}{{{under}}}}}", prompt)


def test_the_equation_of_a_line_may_be_in_any_form(verifier: MathsVerifier) -> None:
    prompt = "Find the line parallel to $2x + 3y = 12$ through $(3, 3)$."
    for answer in ("2x + 3y = 15", "x = \\frac{15 - 3y}{2}", "y - 3 = -\\frac23(x - 3)"):
        assert _paid(verifier, "y = 5 - \\frac23x", f"\\boxed{{{answer}}}", prompt), answer


@FEW
@given(left=st.integers(-9, 8), width=st.integers(1, 9), brackets=st.sampled_from(["()", "[]"]))
def test_the_ends_of_an_interval_are_not_the_interval(
    verifier: MathsVerifier, left: int, width: int, brackets: str
) -> None:
    right = left + width
    sign = {"()": "<", "[]": "\\le"}[brackets]
    gold = f"{brackets[0]}{left}, {right}{brackets[1]}"
    prompt = f"Solve $(x - {left})(x - {right}) {sign} 0$.".replace("- -", "+ ")
    for answer, paid in (
        (f"x = {left}, x = {right}", False),
        (f"{left}, {right}", False),
        (f"x = {left} \\text{{ and }} x = {right}", False),
        (f"{left} {sign} x {sign} {right}", True),
        (gold, True),
    ):
        assert _paid(verifier, gold, f"so \\boxed{{{answer}}}", prompt) == paid, (gold, answer)
    assert not _paid(verifier, gold, f"so \\boxed{{x = {left}, x = {right}}}", "")
    assert _paid(verifier, f"({left}, {right})", f"\\boxed{{x = {left}, y = {right}}}", "")


# --- an order, a sign and a comparison that the question has or has not ---

TWO_VALUES = (
    "The first three terms of a progression are $k-3$, $2k-4$, $4k-3$. Find both values of $k$.",
    "By increasing each side by 2 the area grows by 32. What are the two side lengths?",
    "The sum of the first two terms of a sequence is 5. Find both roots of the equation.",
    "Sort the list and then find the two numbers that add up to 9.",
    "Which two stations are on the fastest route?",
)
SEQUENCES = (
    "List the first three terms of the sequence.", "What are the next three terms?",
    "Arrange the three metals by increasing density.", "Sort the list.",
    "What is the array after the second pass?", "Give the preorder traversal of the tree.",
)  # fmt: skip


@pytest.mark.parametrize("prompt", TWO_VALUES + SEQUENCES)
def test_an_order_counts_only_where_it_is_asked_for(verifier: MathsVerifier, prompt: str) -> None:
    assert _paid(verifier, "2, 7, 5", r"\boxed{2, 7, 5}", prompt)
    assert _paid(verifier, "2, 7, 5", r"\boxed{5, 7, 2}", prompt) == (prompt in TWO_VALUES)


POSITIVE = (
    "Let $x > 0$.", "For $x > 0$ and real $z$, simplify.", "A disc has the radius $x$.",
    "Let $x$ be positive.", "For positive numbers $x$ and $z$, simplify.", r"Suppose $z, x \gt 0$.",
)  # fmt: skip
OF_ANY_SIGN = (
    "Let $z - x > 0$.", "Let $z^2-3x>0$.", r"Given $\sin x > 0$, simplify.", "Given $-x > 0$.",
    "Measure from the positive x-axis.", "It moves in the positive x direction.", "Let $zx > 0$.",
    "Treat $x > 0$ and $x < 0$.", r"Let $g(x) = x$ if $x > 0$ and $-x$ if $x \le 0$.",
    "For a non-positive $x$, simplify.", r"$g$ is 1 where $x > 0$, and 0 otherwise.",
    r"Given $z \cdot x > 0$, simplify.", "Where is $f(x) > 0$?", "Let $x > 0.5 - z$.",
)  # fmt: skip


@pytest.mark.parametrize("prompt", POSITIVE + OF_ANY_SIGN)
def test_a_letter_is_positive_only_where_the_question_says_it(
    verifier: MathsVerifier, prompt: str
) -> None:
    drawn = _paid(verifier, r"\sqrt{x^4+x^2}", r"\boxed{x\sqrt{x^2+1}}", prompt)
    assert drawn == (prompt in POSITIVE)
    # A gold with |x| tells the signs apart itself.
    assert not _paid(verifier, r"|x|\sqrt{z}", r"\boxed{x\sqrt{z}}", prompt)


MORE = ("larger", "bigger"), ("faster", "faster"), ("heavier", "heavier")
LESS = ("larger", "smaller"), ("faster", "slower"), ("heavier", "lighter")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("asked", "said"), MORE + LESS)
def test_times_as_much_has_a_direction(
    verifier: MathsVerifier, asked: str, said: str, turned: bool
) -> None:
    """A is 9 times larger than B where B is 9 times smaller than A, and only there."""
    first, second = ("B", "A") if turned else ("A", "B")
    prompt = f"How many times {asked} is A than B?"
    right = turned == ((asked, said) in LESS)
    for sentence in (
        f"So {first} is 9 times {said} than {second}.", f"So {first} is 9 times {said}.",
        rf"\boxed{{\text{{{first} is 9 times {said}}}}}",
    ):  # fmt: skip
        assert _paid(verifier, "9", sentence, prompt) == right, sentence
