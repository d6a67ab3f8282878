"""Laws of the maths verifier: a solution is transformed, and the transformation says whether the
reward stays. `benchmarks/maths_laws.py` runs them on data sets; here they run on worked sums.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings, strategies as st

from ludus.rewards import Sample
from ludus.rewards.maths import MathsVerifier

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def _benchmark(name: str) -> ModuleType:
    spec = spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LAWS = _benchmark("maths_laws")
FUZZ = _benchmark("maths_fuzz")


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    verifier = MathsVerifier(workers=1)
    yield verifier
    verifier.close()


def _solved(a: int, b: int) -> object:
    """A sum with its solution, whose oracle is the addition here."""
    return LAWS.Solved(
        problem=f"Tom has {a} red and {b} blue marbles. How many marbles does he have?",
        solution=f"Both colours count.\n\nThe total is ${a} + {b} = \\boxed{{{a + b}}}$.",
        gold=str(a + b),
        wrong=str(a + b + 3),
    )


@settings(max_examples=3, deadline=None)
@given(a=st.integers(2, 400), b=st.integers(2, 400), seed=st.integers(0, 2**16))
def test_what_is_said_around_a_value_decides_whether_it_is_paid(a: int, b: int, seed: int) -> None:
    verifier, rng = MathsVerifier(workers=1), random.Random(seed)
    broken = [
        (law.name, response)
        for law in LAWS.laws()
        if (response := law.write(_solved(a, b), rng))
        and (verifier.verify(str(a + b), response).reward == 1.0) != law.paid
    ]
    verifier.close()
    assert not broken, broken[:3]


@pytest.mark.parametrize("draw", [LAWS.options, LAWS.worked], ids=lambda draw: draw.__name__)
def test_a_question_is_not_its_answer_and_an_option_is(
    verifier: MathsVerifier, draw: object
) -> None:
    assert callable(draw)
    cases = list(draw(random.Random(31), 40))
    assert [case for case in cases if not LAWS.judged(verifier, case)] == []


async def test_costly_golds_lose_no_right_answer_to_other_questions() -> None:
    statuses = await LAWS.under_load(LAWS.crowd(random.Random(31), 40, 0.15))
    assert set(statuses["cheap question"]) == {"right"}
    assert set(statuses["hard question"]) == {"right"}


def test_sympy_contradicts_no_verdict_on_a_rewritten_formula(verifier: MathsVerifier) -> None:
    assert FUZZ.against_sympy(verifier, random.Random(11), 30) == []


@settings(max_examples=40, deadline=None)
@given(
    bound=st.integers(-40, 40),
    slope=st.integers(2, 9),
    shift=st.integers(-9, 9),
    sign=st.sampled_from(["<", ">", "\\le", "\\ge"]),
)
def test_an_inequality_is_an_answer_when_it_is_solved(
    verifier: MathsVerifier, bound: int, slope: int, shift: int, sign: str
) -> None:
    """Both sides are multiplied and shifted, which changes the work and not the set."""
    turned = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}[sign]
    solved, same = f"x {sign} {bound}", f"{bound} {turned} x"
    open_one = f"{slope}x + {shift} {sign} {slope * bound + shift}".replace("+ -", "- ")
    for gold, answer, reward in (
        (solved, same, 1.0),
        (solved, open_one, 0.0),
        (open_one, solved, 1.0),
    ):
        sample = Sample(response=f"\\boxed{{{answer}}}", gold=gold)
        scoring = verifier.score(sample)
        verdict = asyncio.run(scoring) if inspect.iscoroutine(scoring) else scoring
        assert verdict.reward == reward, (gold, answer, verdict.detail)
