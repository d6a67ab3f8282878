"""Laws of closing sentences without a mark: the delimiters of a formula say nothing, points where
a formula is undefined may be left out, bounds in words are those in signs, and a name answers by
the predicate of the question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from ludus.rewards.maths import MathsVerifier

CORE = Path(__file__).parent / "maths_held_out" / "core.jsonl"
_INLINE = re.compile(r"(?<![\\$])\$([^$\n]+?)(?<!\\)\$(?!\$)")


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    made = MathsVerifier(workers=1)
    yield made
    made.close()


def paid(verifier: MathsVerifier, gold: str, response: str, prompt: str = "") -> bool:
    return verifier.verify(gold, response, prompt=prompt).reward == 1.0


# --- delimiters ---


def _rows_in_dollars() -> list[dict[str, str]]:
    """Cases whose dollar signs all stand around formulas."""
    rows = [json.loads(line) for line in CORE.read_text("utf-8").splitlines()]
    return [
        row
        for row in rows
        if (formulas := _INLINE.findall(row["response"]))
        and row["response"].count("$") == 2 * len(formulas)
        and "\\(" not in row["response"]
        and not any(re.search(r"[a-z]{3,} [a-z]{2,}|^[\d.,]+ ", text) for text in formulas)
    ]


@pytest.mark.parametrize("part", range(4))
def test_the_delimiters_of_formulas_decide_nothing(verifier: MathsVerifier, part: int) -> None:
    rows = _rows_in_dollars()[part::12]
    assert len(rows) > 100
    for row in rows:
        prompt, gold = row.get("prompt", ""), row["gold"]
        turned = _INLINE.sub(r"\\(\1\\)", row["response"])
        before = verifier.verify(gold, row["response"], prompt=prompt)
        assert verifier.verify(gold, turned, prompt=prompt).reward == before.reward, turned


def test_a_dollar_that_is_money_keeps_its_meaning(verifier: MathsVerifier) -> None:
    said = r"Each costs $5, so \(3\) of them cost $15."
    assert paid(verifier, "15", said)
    assert not paid(verifier, "3", said)


# --- points that are left out ---


@pytest.mark.parametrize(
    "ending",
    [
        r", for \(x\ne2\).", " for $x \\ne 2$.", ", where $x \\neq 2$.", ", provided $x \\neq 2$.",
        ", $x \\neq 2$.", " ($x \\neq 2$).", " with $x \\ne 2$.", ", provided that $x \\ne 2$.",
    ],
)  # fmt: skip
def test_an_exclusion_behind_an_equation_is_not_the_answer(
    verifier: MathsVerifier, ending: str
) -> None:
    prompt = r"Given $f(x)=\frac{2x+1}{x-3}$, find $f^{-1}(x)$."
    gold = r"\frac{3x+1}{x-2}"
    said = "Set $y=f(x)$ and solve.\n\nThus $f^{-1}(x)=%s$%s"
    assert paid(verifier, gold, said % (r"\dfrac{3x+1}{x-2}", ending), prompt)
    assert not paid(verifier, gold, said % (r"\dfrac{3x-1}{x-2}", ending), prompt)
    assert not paid(verifier, "x \\ne 2", said % (r"\dfrac{3x+1}{x-2}", ending), prompt)


@given(pole=st.integers(-9, 9), other=st.integers(-9, 9), slope=st.integers(2, 9))
@settings(max_examples=30, deadline=None)
def test_only_points_where_a_formula_is_undefined_may_be_left_out(
    verifier: MathsVerifier, pole: int, other: int, slope: int
) -> None:
    gold = rf"\frac{{{slope}x+1}}{{x-({pole})}}"
    for point, head in ((pole, ""), (other, ""), (pole, "y = "), (other, "f(x) = ")):
        answer = rf"\boxed{{{head}{gold}, x \ne {point}}}"
        assert paid(verifier, gold, answer) == (point == pole), answer
    # At `x = -1 / slope` the formula is 0, and it says less with a range.
    assert not paid(verifier, gold, rf"\boxed{{{gold}, x = {pole}}}")
    assert not paid(verifier, gold, rf"\boxed{{{gold}, x > {pole}}}")
    assert not paid(verifier, f"{slope}x + 1", rf"\boxed{{{slope}x+1, x \ne {pole}}}")


# --- bounds in words ---

LOWER = {"greater than": ">", "at least": "\\ge", "no less than": "\\ge", "more than": ">"}
UPPER = {"less than": "<", "at most": "\\le", "no more than": "\\le", "smaller than": "<"}
FRAMES = (
    "The inequality holds exactly when {}.", "So {}.", "Hence it is true for all x with {}.",
    "\\boxed{{\\text{{{}}}}}",
)  # fmt: skip


@given(
    low=st.integers(-50, 50),
    width=st.integers(1, 40),
    lower=st.sampled_from(sorted(LOWER)),
    upper=st.sampled_from(sorted(UPPER)),
    frame=st.sampled_from(FRAMES),
    joint=st.sampled_from(["and", "but", "and also"]),
    turned=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_two_bounds_in_words_are_an_interval(
    verifier: MathsVerifier,
    low: int,
    width: int,
    lower: str,
    upper: str,
    frame: str,
    joint: str,
    turned: bool,
) -> None:
    high = low + width
    bounds = [f"{lower} {low}", f"{upper} {high}"]
    said = f"x is {bounds[turned]} {joint} {bounds[not turned]}"
    prompt = "For which real x is x^2 < 4x?"
    response = "The factors have opposite signs.\n\n" + frame.format(said)
    left, right = LOWER[lower].replace(">", "<").replace("\\ge", "\\le"), UPPER[upper]
    assert paid(verifier, f"{low} {left} x {right} {high}", response, prompt), response
    strict = "<" if left == "\\le" else "\\le"
    for wrong in (
        f"{low} {strict} x {right} {high}",
        f"{low} {left} x {right} {high + 1}",
        f"x {LOWER[lower]} {low}",
        f"x < {low} or x > {high}",
    ):
        assert not paid(verifier, wrong, response, prompt), (wrong, response)
    denied = response.replace("holds exactly", "fails").replace("is true", "is not true")
    if denied != response:
        assert not paid(verifier, f"{low} {left} x {right} {high}", denied, prompt), denied


def test_bounds_joined_by_or_are_the_outside(verifier: MathsVerifier) -> None:
    prompt, said = "Solve $x^2 > 5x - 4$.", "So x is less than 1 or greater than 4."
    assert paid(verifier, "x < 1 or x > 4", said, prompt)
    assert not paid(verifier, "1 < x < 4", said, prompt)


# --- a name by its predicate ---

QUESTIONS = (
    ("Who has the most now?", "has the most stickers now", "has the least"),
    ("Who has the most now?", "now has the most", "gave the most to {other}"),
    ("Which of the three friends has the most?", "has the most", "has the second most"),
    ("Who is older, {name} or {other}?", "is older than {other}", "is younger than {other}"),
    ("Which friend finished first?", "finished first", "finished before {other}"),
    ("Who won the game?", "won the game", "lost the game"),
    ("Who is the tallest?", "is the tallest", "is the shortest"),
)
CLAIMS = (
    "{name} {does}.", "So {name} {does}.", "Therefore, **{name}** {does}.",
    "Now it is {name} who {does}.", "{name} {does}, not {other}.",
    "{other} lost and {name} {does}.",
)  # fmt: skip
NO_CLAIMS = (
    "{name} and {other} {does}.", "{other} thinks {name} {does}.", "If so, {name} {does}.",
    "Maybe {name} {does}.", "{name}'s sister {does}.", "Neither {name} nor {other} {does}.",
    "{name} never {does}.", "{name} {does}, and {other} {does}.", "{name} almost {does}.",
    "It is not true that {name} {does}.",
)  # fmt: skip


@given(
    names=st.permutations(["Dana", "Eli", "Fay", "Mo"]),
    case=st.sampled_from(QUESTIONS),
    claim=st.sampled_from(CLAIMS),
    no_claim=st.sampled_from(NO_CLAIMS),
)
@settings(max_examples=60, deadline=None)
def test_a_name_answers_by_the_predicate_of_the_question(
    verifier: MathsVerifier, names: list[str], case: tuple[str, str, str], claim: str, no_claim: str
) -> None:
    name, other, third, _ = names
    question, does, wrong = (text.format(name=name, other=other) for text in case)
    prompt = f"{name}, {other} and {third} are friends with stickers. {question}"
    work = f"{name} 12, {other} 9 + 2 = 11, {third} 10.\n\n"
    said = {"name": name, "other": other}
    right = work + claim.format(does=does, **said)
    assert paid(verifier, name, right, prompt), (right, question)
    assert not paid(verifier, other, right, prompt), (right, question)
    for sentence in (f"{name} {wrong}.", no_claim.format(does=does, **said)):
        assert not paid(verifier, name, work + sentence, prompt), (sentence, question)


# --- another box than the last ---

FIRST_MEANT = (
    "The answer is the first one.", "So the value to report is the first one.",
    "The first one is the answer.", "Hence the first value stands.", "I'll go with the first one.",
)  # fmt: skip
LAST_MEANT = (
    "Here the first one counts only red balls.", "The first answer is right only for red balls.",
    "The first value is the answer to another question.", "I will not keep the first value.",
    "One might think the answer is the first one.", "Some would keep the first value.",
    "My friend says the first one is right.", "The answer to report is not the first one.",
)  # fmt: skip


@pytest.mark.parametrize("sentence", FIRST_MEANT + LAST_MEANT)
def test_words_behind_the_last_box_mean_the_first_only_if_they_claim_it(
    verifier: MathsVerifier, sentence: str
) -> None:
    said = rf"Red: \boxed{{12}}. In all \boxed{{20}}. {sentence}"
    assert paid(verifier, "12", said) == (sentence in FIRST_MEANT)
    assert paid(verifier, "20", said) == (sentence in LAST_MEANT)
