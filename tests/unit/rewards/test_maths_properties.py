"""Laws that hold for every answer."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from ludus.rewards.maths import equivalent, extract, verify
from ludus.rewards.maths.conventions import DEFAULT
from ludus.rewards.maths.decision import BadGold, decide
from ludus.rewards.maths.proving.judge import NeedsPool

ATOMS = st.sampled_from(
    ["1", "2", "17", "0.5", "x", "y", "n", r"\pi", r"\sqrt{2}", r"\frac{3}{4}", "3i"]
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, inner)
    return st.one_of(
        two.map(lambda pair: f"{pair[0]}+{pair[1]}"),
        two.map(lambda pair: rf"\left({pair[0]}\right)\left({pair[1]}\right)"),
        two.map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}"),
        inner.map(lambda one: rf"\left({one}\right)^{{2}}"),
        inner.map(lambda one: rf"\sin\left({one}\right)"),
        two.map(lambda pair: f"({pair[0]},{pair[1]})"),
        two.map(lambda pair: rf"\{{{pair[0]},{pair[1]}\}}"),
    )


def scalar(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return grown(inner).filter(lambda answer: "," not in answer)


SCALARS = st.recursive(ATOMS, scalar, max_leaves=5)
ANSWERS = st.recursive(ATOMS, grown, max_leaves=6)
FEW = settings(max_examples=60, deadline=None)


def decided(gold: str, answer: str) -> bool | None:
    try:
        return decide(gold, answer, DEFAULT).equal
    except (NeedsPool, BadGold):
        return None


@FEW
@given(ANSWERS)
def test_an_answer_equals_itself(answer: str) -> None:
    assert decided(answer, answer) is True


@settings(max_examples=25, deadline=None)
@given(ANSWERS, ANSWERS)
def test_equivalence_is_symmetric(first: str, second: str) -> None:
    assert equivalent(first, second, timeout_s=0.5) == equivalent(second, first, timeout_s=0.5)


@FEW
@given(ANSWERS)
def test_spacing_sizes_and_display_fractions_do_not_matter(answer: str) -> None:
    spaced = answer.replace("+", " + ").replace(",", r",\ ").replace("{", "{ ")
    plain = answer.replace(r"\left", "").replace(r"\right", "")
    for other in (spaced, plain, answer.replace(r"\frac", r"\dfrac"), f"${answer}$."):
        assert decided(answer, other) is not False


@FEW
@given(SCALARS, SCALARS)
def test_order_of_terms_does_not_matter_and_adding_one_does(first: str, second: str) -> None:
    assert decided(f"{first}+{second}", f"{second}+{first}") is not False
    assert decided(first, f"{first}+1") is not True


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_nothing_raises_on_any_text(gold: str, response: str) -> None:
    extract(response)
    decided(gold, response)
    verify("1", response[:20], timeout_s=0.5)
