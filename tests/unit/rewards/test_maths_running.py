"""Formulas in running text: what a sentence ends in, without any mark, is its answer.

Each law draws a value, writes it in several notations as the end of a sentence in several
languages, and knows by construction whether the gold says the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from ludus.rewards.maths import MathsVerifier
from ludus.rewards.maths.reading.plain import formulas

FEW = settings(max_examples=12, deadline=None)
SMALL = st.integers(2, 9)
SAID = st.sampled_from((
    "We work it out.\n\nSo {}.", "Rearranging, we get {}", "2 + 3 = 5 ist bekannt. Also gilt {}.",
    "On a f(1) = 3. Donc {}.", "Sabemos que 1 + 1 = 2. Por tanto, {}.", "a > 0, logo {}.",
    "Da cui {}.", "Отсюда {}.", "由 1 + 2 = 3，所以 {}。", "よって {}。", "따라서 {}.", "Zatem {}.",
))  # fmt: skip


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    verifier = MathsVerifier(workers=1)
    yield verifier
    verifier.close()


def _holds(
    verifier: MathsVerifier, gold: str, response: str, *, paid: bool, prompt: str = ""
) -> None:
    verdict = verifier.verify(gold, response, prompt=prompt)
    assert (verdict.reward == 1.0) == paid, (gold, response, verdict.detail)


@FEW
@given(a=SMALL, b=SMALL, said=SAID)
def test_a_closing_formula_is_the_answer_as_if_it_stood_in_a_box(
    verifier: MathsVerifier, a: int, b: int, said: str
) -> None:
    for gold, right, wrong in (
        (f"y = {a}x - {b}", f"y + {b} = {a}x", f"y = {a}x + {b}"),
        (f"{a}x + {b}", f"f(x) = {b} + {a}x", f"f(x) = {a}x − {b}"),
        (f"({a}, {-b})", f"V = ({a}; −{b})", f"V = (−{b}; {a})"),
        (f"({a}, {b}+1)", f"I({a} ; {b + 1})", f"I({a} ; {b})"),
        (f"\\frac{{\\ln {a}}}{{{b}}}", f"x = (ln {a})/{b}", f"x = (ln {a})/{b + 1}"),
        (f"x = {a} \\pm {b}i", f"x = {a} + {b}i or x = {a} − {b}i", f"x = {a} + {b}i"),
        (f"[-{a}, {b}]", f"−{a} ≤ x ≤ {b}", f"−{a} < x ≤ {b}"),
        (f"(-\\infty,-{a})\\cup({b},\\infty)", f"x > {b} or x < −{a}", f"x > {b}"),
        (f"\\{{-{a}, {b}\\}}", f"x = {b} or x = −{a}", f"x = {b} or x = {a + b}"),
        ("\\emptyset", "L = { }", f"L = {{{a}}}"),
        (
            f"\\begin{{pmatrix}}\\frac12&0\\\\{a}&{b}\\end{{pmatrix}}",
            f"A⁻¹ = [[0.5, 0], [{a}, {b}]]", f"A⁻¹ = [[0.5, 0], [{b + a}, {a}]]",
        ),
    ):  # fmt: skip
        _holds(verifier, gold, said.format(right), paid=True)
        _holds(verifier, gold, said.format(wrong), paid=False)


@FEW
@given(modulus=st.sampled_from([7, 9, 11, 13]), residue=st.integers(1, 6), turn=st.integers(1, 3))
def test_a_congruence_has_its_modulus(
    verifier: MathsVerifier, modulus: int, residue: int, turn: int
) -> None:
    gold = f"x \\equiv {residue} \\pmod{{{modulus}}}"
    other = residue + turn * modulus
    for answer, paid in (
        (f"x ≡ {residue} (mod {modulus})", True),
        (f"x ≡ {other} ≡ {residue} mod {modulus}", True),
        (f"x = {modulus}k + {residue}, k ∈ ℤ", True),
        (f"x ≡ {residue} (mod {modulus + 1})", False),
        (f"x = {modulus + 1}k + {residue}, k ∈ ℤ", False),
        (f"x ≡ {residue + 1} (mod {modulus})", False),
    ):
        _holds(verifier, gold, f"Multiply by 5.\n\nTherefore {answer}.", paid=paid)


@FEW
@given(
    part=st.sampled_from([3, 4, 6]), turns=st.integers(-3, 3), step=st.sampled_from([1, 2]),
    letter=st.sampled_from("kn"), sign=st.sampled_from("+-"),
)  # fmt: skip
def test_a_family_may_begin_at_any_of_its_members(
    verifier: MathsVerifier, part: int, turns: int, step: int, letter: str, sign: str
) -> None:
    gold = f"x = \\frac{{\\pi}}{{{part}}} + {step}k\\pi, k \\in \\mathbb{{Z}}"
    for shift, paid in ((turns * part * step, True), (turns * part * step + 1, False)):
        start = f"{1 + shift}π/{part} {sign} {step}{letter}π"
        ending = f"x = {start}, where {letter} is any integer."
        _holds(verifier, gold, f"We solve.\n\n{ending}", paid=paid)
    other = f"x = π/{part} + {step + 1}{letter}π, {letter} ∈ ℤ"
    _holds(verifier, gold, f"We solve.\n\n{other}", paid=False)


QUANTITIES = (
    "Find the sum of the interior angles of a polygon with ${}$ sides.",
    "A circle has the radius ${}$ cm. What is its circumference?",
    "Ein Rad hat den Radius {}. Wie groß ist sein Umfang?", "Compute $\\int_0^\\pi {}\\,dx$.",
    "Une roue a pour rayon ${}$.", "圆的半径为 ${}$，求周长。", "",
)  # fmt: skip
FAMILIES = (
    "Find all solutions of $\\tan x = 1$.", "Give the general solution of sin x = 0.",
    "Gib alle Lösungen an: $\\sin x = 0$.", "Trouver toutes les solutions de $\\sin x = 0$.",
    "Halla todas las soluciones de $\\sin x = 0$.", "Найдите все решения уравнения $\\sin x = 0$.",
    "求 $\\sin x = 0$ 的所有解。", "求 $\\sin x=0$ 的通解，其中 ${}$ 为整数。",
    "Solve $\\sin x = 0$, where ${}$ is an integer.",
)  # fmt: skip


@FEW
@given(
    letter=st.sampled_from("knmljtpqrs"), turns=st.integers(-3, 3).filter(bool), start=SMALL,
    quantity=st.sampled_from(QUANTITIES), family=st.sampled_from(FAMILIES),
)  # fmt: skip
def test_a_letter_is_a_whole_number_in_families_of_solutions_alone(
    verifier: MathsVerifier, letter: str, turns: int, start: int, quantity: str, family: str
) -> None:
    value, moved = f"\\frac{{\\pi}}{{{start}}} + 2{letter}\\pi", f"2\\pi({letter}{turns:+})"
    moved_value = f"\\frac{{\\pi}}{{{start}}} + {moved}"
    for gold, answer in (
        (value, moved_value), (f"2\\pi {letter}", moved), (moved, f"2{letter}\\pi"),
    ):  # fmt: skip
        named = f"C = {gold}", f"\\boxed{{C = {answer}}}"
        said = f"\\boxed{{{answer}}}"
        _holds(verifier, gold, said, paid=False, prompt=quantity.format(letter))
        _holds(verifier, named[0], named[1], paid=False, prompt=quantity.format(letter))
        _holds(verifier, gold, said, paid=True, prompt=family.format(letter))
        natural = f"{gold}, {letter} \\in \\mathbb{{N}}"
        _holds(verifier, natural, f"\\boxed{{{answer}, {letter} \\in \\mathbb{{N}}}}", paid=False)
        whole = f"{gold}, {letter} \\in \\mathbb{{Z}}"
        _holds(verifier, whole, said, paid=True)
    renamed = {"k": "n"}.get(letter, "k")
    other = f"\\boxed{{{value.replace(letter, renamed) if letter not in 'pfrc' else value}}}"
    if quantity and letter not in "pfrc":
        _holds(verifier, value, other, paid=False, prompt=quantity.format(letter))
        _holds(verifier, value, other, paid=True, prompt=family.format(letter))


@pytest.mark.parametrize("factor", ["10^{-310}", "10^{310}", "10^{-400}", "\\frac{1}{10^{320}}"])
def test_a_family_with_an_extreme_step_raises_nothing(verifier: MathsVerifier, factor: str) -> None:
    for gold in ("n\\pi, n \\in \\mathbb{Z}", "\\pi + n\\pi"):
        for answer in (f"{factor}n\\pi", f"\\pi + {factor}n\\pi", f"{factor} + n\\pi"):
            _holds(verifier, gold, f"\\boxed{{{answer}}}", paid=False)
            verifier.verify(answer, f"\\boxed{{{gold}}}")


@FEW
@given(roots=st.lists(st.integers(-9, 9), min_size=2, max_size=2, unique=True))
def test_an_index_that_only_counts_roots_is_no_name(
    verifier: MathsVerifier, roots: list[int]
) -> None:
    first, second = roots
    gold = f"x_1 = {first}, x_2 = {second}"
    for answer in (
        f"$x_1 = {second}$ und $x_2 = {first}$", f"\\boxed{{x_1 = {second}, x_2 = {first}}}",
        f"x₁ = {second}, x₂ = {first}", f"x = {second} or x = {first}",
    ):  # fmt: skip
        _holds(verifier, gold, answer, paid=True, prompt="Find the roots of the quadratic.")
        wrong = answer.replace(f"= {second}", f"= {second + 20}")
        _holds(verifier, gold, wrong, paid=False, prompt="Find the roots of the quadratic.")
    swapped = f"\\boxed{{x_1 = {second}, x_2 = {first}}}"
    _holds(verifier, gold, swapped, paid=False, prompt="Solve $x_1 + 2x_2 = 1$, $x_1 - x_2 = 4$.")


@pytest.mark.parametrize("piece", ["(", "a ", "1,", "x=1 ", "x_", "= ", "[1, ", "nπ", "\\a", "' "])
def test_formulas_are_found_in_linear_time(piece: str) -> None:
    """Twice the text costs at most about twice the time, measured in one run."""
    costs = []
    for size in (4_000, 16_000):
        begin = time.process_time()
        for _ in range(3):
            formulas(piece * size, 0, size * len(piece))
        costs.append(time.process_time() - begin)
    assert costs[1] < 16 * costs[0] + 0.05


PERCENT = (
    ("By what percent did it rise?", "the salary rose by {} percent."),
    ("¿Qué porcentaje es?", "es decir, el {} por ciento."),
    ("Wie viel Prozent sind das?", "das sind {} Prozent."),
    ("Quel pourcentage est-ce ?", "soit {} pour cent."),
    ("Сколько это в процентах?", "это {} процентов."),
    ("Qual é a porcentagem?", "ou seja, {} por cento."),
)


@FEW
@given(value=st.integers(1, 99), asked=st.sampled_from(PERCENT))
def test_a_percentage_may_be_named_in_words(
    verifier: MathsVerifier, value: int, asked: tuple[str, str]
) -> None:
    prompt, said = asked
    work = f"{value}/100 = 0.{value:02}, "
    for number, paid in ((value, True), (value + 1, False)):
        response = work + said.format(number)
        _holds(verifier, f"{value}%", response, paid=paid, prompt=prompt)


CHAINS = (
    ("Ile kosztują {n} bilety po {price} zł?", "{n} · {price} zł = {total} zł.", "{whole} zł"),
    ("Wie viel kosten {n} Hefte zu je {price} €?", "{n} · {price} € = {total} €", "{whole} €"),
    ("Combien valent {n} cahiers ?", "{n} × {price} € = {total} €", "{whole} €"),
    ("Qual é o preço de {n} livros?", "Novo preço: **R$ {total}**", "{whole}"),
    ("Rechne {price} km in Meter um.", "{price} km = {metres} m", "{plain} m"),
)


@FEW
@given(n=st.integers(2, 4), euros=st.integers(1, 9), asked=st.sampled_from(CHAINS))
def test_units_and_decimal_commas_may_stand_in_every_term_of_a_chain(
    verifier: MathsVerifier, n: int, euros: int, asked: tuple[str, str, str]
) -> None:
    total, metres = n * euros + n * 0.5, euros * 1000 + 500
    fields = {
        "n": n, "price": f"{euros},50", "total": f"{total:.2f}".replace(".", ","), "whole": total,
        "metres": f"{metres // 1000}.{metres % 1000:03}", "plain": metres,
    }  # fmt: skip
    prompt, response, gold = (text.format(**fields) for text in asked)
    _holds(verifier, gold, response, paid=True, prompt=prompt)
    wrong = asked[2].format(**{**fields, "whole": total + 1, "plain": metres + 1})
    _holds(verifier, wrong, response, paid=False, prompt=prompt)


@FEW
@given(first=st.integers(2, 60), second=st.integers(2, 60), turned=st.booleans())
def test_of_several_owners_the_one_that_is_asked_is_answered(
    verifier: MathsVerifier, first: int, second: int, turned: bool
) -> None:
    for prompt, said in (
        (
            "Lena and Paul collect marbles. How many marbles does Lena have?",
            "So {0} has {1} marbles and {2} has {3} marbles.",
        ),
        ("Lena und Paul sammeln Murmeln. Wie viele Murmeln hat Lena?", "{0} hat {1} und {2} {3}."),
        ("Lena et Paul ont des billes. Combien de billes a Lena ?", "{0} en a {1} et {2} {3}."),
    ):
        pairs = [("Lena", first), ("Paul", second)]
        (a, x), (b, y) = pairs[::-1] if turned else pairs
        response = "We count.\n\n" + said.format(a, x, b, y)
        _holds(verifier, str(first), response, paid=True, prompt=prompt)
        _holds(verifier, str(second), response, paid=first == second, prompt=prompt)
