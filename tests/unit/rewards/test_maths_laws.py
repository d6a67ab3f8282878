"""Laws of the maths verifier: a solution is transformed, and the transformation says whether the
reward stays. `benchmarks/maths_laws.py` runs them on data sets; here they run on worked sums.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import random
import sys
from collections import Counter
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


sys.modules["maths_words"] = WORDS = _benchmark("maths_words")
sys.modules["maths_endings"] = ENDINGS = _benchmark("maths_endings")
sys.modules["maths_forms"] = FORMS = _benchmark("maths_forms")
sys.modules["maths_closings"] = CLOSINGS = _benchmark("maths_closings")
sys.modules["maths_replies"] = REPLIES = _benchmark("maths_replies")
sys.modules["maths_laws"] = LAWS = _benchmark("maths_laws")
REMARKS = _benchmark("maths_remarks")
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


@pytest.mark.parametrize(
    "draw",
    [*WORDS.DRAWS, *ENDINGS.DRAWS, *CLOSINGS.DRAWS, *FORMS.DRAWS, *REPLIES.DRAWS],
    ids=lambda draw: draw.__name__,
)
def test_what_a_language_writes_is_read_and_another_value_is_not(
    verifier: MathsVerifier, draw: object
) -> None:
    assert callable(draw)
    cases = [LAWS.Case(*row) for row in draw(random.Random(31), 40)]
    assert {case.paid for case in cases} == {True, False}
    assert [case for case in cases if not LAWS.judged(verifier, case)] == []


def _worked_sums() -> list[tuple[str, str, str]]:
    """Questions for a sum with work that states no value, and their golds."""
    items = [_solved(a, a + 7) for a in range(11, 60, 3)]
    return [(item.problem, "Both colours count.", item.gold) for item in items]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("half", "least"), [("look", 0.99), ("held-out", 0.9)])
def test_a_side_remark_changes_no_verdict_and_a_correction_does(
    verifier: MathsVerifier, half: str, least: float
) -> None:
    rng, counts = random.Random(31), Counter[tuple[str, bool]]()
    pairs = [
        *REMARKS.remarks(_worked_sums(), half, rng),
        *((None, row) for row in REMARKS.units(rng, 20)),
    ]
    broken = list(REMARKS.broken(verifier, pairs, counts))
    assert len(pairs) > 250
    assert counts.total() > 0.9 * len(pairs)
    assert len(broken) <= (1 - least) * counts.total(), broken[:3]
    assert not [row for row in broken if row.law.startswith(("correction", "units"))]


@pytest.mark.parametrize("half", REMARKS.HALVES)
def test_another_quantity_behind_a_conclusion_changes_no_verdict(
    verifier: MathsVerifier, half: str
) -> None:
    rng, counts = random.Random(31), Counter[tuple[str, bool]]()
    pairs = [
        *REMARKS.quantities(half, rng, 2),
        *((None, row) for row in REMARKS.notations(half, rng, 4)),
    ]
    assert list(REMARKS.broken(verifier, pairs, counts)) == []
    assert counts.total() > 0.9 * len(pairs) > 90


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


# A question by language, `#` for the number; `REDUCE` asks for lowest terms and `WORTH` does not.
REDUCE = (
    "Write # in lowest terms.", "Simplify #.", "Simplifie # en une fraction irréductible.",
    "Kürze # vollständig.", "Simplifica #.", "Semplifica #.", "Сократите #.", "将 # 化简。",
    "# を約分せよ。", "# 를 약분하시오.",
)  # fmt: skip
WORTH = ("What is the probability?", "Combien vaut # ?", "Wie groß ist #?", "Чему равно #?")


@settings(max_examples=30, deadline=None)
@given(
    top=st.integers(1, 60),
    bottom=st.integers(2, 60),
    factor=st.integers(2, 9),
    reduce=st.sampled_from(REDUCE),
    worth=st.sampled_from(WORTH),
)
def test_lowest_terms_are_wanted_only_where_question_and_gold_have_them(
    verifier: MathsVerifier, top: int, bottom: int, factor: int, reduce: str, worth: str
) -> None:
    """The oracle is the greatest common divisor."""
    divisor = math.gcd(top, bottom)
    top, bottom = top // divisor, bottom // divisor
    if bottom == 1:
        return
    gold, wide = f"\\frac{{{top}}}{{{bottom}}}", f"{top * factor}/{bottom * factor}"
    for question, answer, wanted, reward in (
        (reduce, f"{top}/{bottom}", gold, 1.0),
        (reduce, wide, gold, 0.0),
        (reduce, wide, wide, 1.0),
        (worth, wide, gold, 1.0),
    ):
        prompt = question.replace("#", "$x$")
        verdict = verifier.verify(wanted, f"So it is $\\boxed{{{answer}}}$.", prompt=prompt)
        assert verdict.reward == reward, (prompt, wanted, answer, verdict.detail)


@settings(max_examples=30, deadline=None)
@given(value=st.integers(1000, 999_999), other=st.integers(1, 9))
def test_the_grouping_and_the_currency_of_an_answer_are_those_of_its_language(
    verifier: MathsVerifier, value: int, other: int
) -> None:
    head, tail = f"{value // 1000}", f"{value % 1000:03}"
    asked = "Сколько стоит машина? Какова цена в рублях?"
    for gold, answer in (
        (f"{value} рублей", f"Ответ: {head} {tail} руб."),
        (f"{value}元", f"答：应付{value}元。"),
        (f"{value}円", f"答え：{value}円".translate({48 + n: 0xFF10 + n for n in range(10)})),
        (str(value), f"Le prix est $\\boxed{{{head}\\,{tail}}}$ €."),
    ):
        right = verifier.verify(gold, answer, prompt=asked)
        wrong = verifier.verify(gold.replace(str(value), str(value + other)), answer, prompt=asked)
        assert (right.reward, wrong.reward) == (1.0, 0.0), (gold, answer, right.detail)
    prompt = f"¿Cuánto es la mitad de {2 * value // 1000}.{2 * value % 1000:03} en un año?"
    spanish = verifier.verify(f"{head}.{tail}", f"Por tanto, quedan {value}.", prompt=prompt)
    assert spanish.reward == float(value < 500_000), (prompt, spanish.detail)


@pytest.mark.parametrize(
    ("gold", "said", "larger"),
    [
        ("м", "Ответ: {} м.", "Ответ: {} км."),
        ("км/ч", "Ответ: {} км/ч.", "Ответ: {} м/с."),
        ("kg", "La masa es de {} kg.", "La masa es de {} gramos."),
        (
            "m/s",
            "\\boxed{{{}\\ \\text{{metros por segundo}}}}",
            "\\boxed{{{} \\text{{km por hora}}}}",
        ),
        (
            "m/s",
            "3 : 4 = {0}, donc elle est de {0} m/s.",
            "3 : 4 = {0}, donc elle est de {0} km/h.",
        ),
        ("cm^2", "答：面积是{}平方厘米。", "答：面积是{}平方米。"),
        ("元", "答：应找回{}元。", "答：不是{}元。"),
        ("km/h", "Elle est de {} kilomètres par heure.", "Elle est de {} kilomètres par minute."),
        ("m²", "Die Fläche ist {} Quadratmeter.", "Die Fläche ist {} Quadratzentimeter."),
        ("m^2", "El área es de {} metros cuadrados.", "El área es de {} metros cúbicos."),
        ("cm²", "面積は{}平方センチメートルです。", "面積は{}平方メートルです。"),
    ],
)
def test_a_unit_of_another_language_is_read_with_its_size(
    verifier: MathsVerifier, gold: str, said: str, larger: str
) -> None:
    for value in (7, 30, 125):
        assert verifier.verify(f"{value} {gold}", said.format(value)).reward == 1.0
        assert verifier.verify(f"{value} {gold}", larger.format(value)).reward == 0.0


@given(first=st.integers(1, 99), second=st.integers(1, 99))
def test_named_values_are_those_that_the_question_names(
    verifier: MathsVerifier, first: int, second: int
) -> None:
    asked = "Give the mean and the mode, in that order."
    for answer, paid in (
        (f"\\boxed{{\\text{{mean}}={first},\\ \\text{{mode}}={second}}}", True),
        (f"\\boxed{{\\text{{mode}}={second},\\ \\text{{mean}}={first}}}", True),
        (f"\\boxed{{\\text{{mean}}={second},\\ \\text{{mode}}={first}}}", first == second),
    ):
        assert verifier.verify(f"{first}, {second}", answer, prompt=asked).reward == float(paid)
        pair = f"({first}, {second})"
        assert verifier.verify(pair, answer, prompt=asked).reward == float(paid)
        # No word comes first by itself, as x comes before y.
        assert verifier.verify(pair, answer).reward == 0.0
        assert verifier.verify(pair, answer, prompt="What do they tell?").reward == 0.0
    named = f"\\boxed{{y={second}, x={first}}}"
    assert verifier.verify(f"({first}, {second})", named).reward == 1.0
    names = f"\\text{{mean}}={first}, \\text{{mode}}={second}"
    assert verifier.verify(names, f"\\boxed{{({first}, {second})}}").reward == 1.0


@settings(max_examples=20, deadline=None)
@given(values=st.lists(st.integers(1, 99), min_size=3, max_size=5, unique=True))
def test_an_order_that_is_asked_is_wanted(verifier: MathsVerifier, values: list[int]) -> None:
    rising = ", ".join(map(str, sorted(values)))
    falling = ", ".join(map(str, sorted(values, reverse=True)))
    for prompt, paid in (
        ("Write the roots from least to greatest.", 0.0),
        ("Ordne sie aufsteigend.", 0.0),
        ("从小到大排列。", 0.0),
        ("Find all roots.", 1.0),
    ):
        assert verifier.verify(rising, f"\\boxed{{{rising}}}", prompt=prompt).reward == 1.0
        assert verifier.verify(rising, f"\\boxed{{{falling}}}", prompt=prompt).reward == paid


@settings(max_examples=20, deadline=None)
@given(values=st.lists(st.integers(2, 99), min_size=4, max_size=4, unique=True), data=st.data())
def test_the_text_of_an_option_stands_for_its_letter(
    verifier: MathsVerifier, values: list[int], data: st.DataObject
) -> None:
    right = data.draw(st.integers(0, 3))
    listing = " ".join(f"({'ABCD'[i]}) {value}" for i, value in enumerate(values))
    prompt, letter = f"Which one is it? {listing}", "ABCD"[right]
    for place, value in enumerate(values):
        paid = float(place == right)
        assert verifier.verify(letter, f"\\boxed{{{value}}}", prompt=prompt).reward == paid
        chosen = f"\\boxed{{{'ABCD'[place]}}}"
        assert verifier.verify(str(values[right]), chosen, prompt=prompt).reward == paid
    judged = "\n".join(
        f"({'ABCD'[i]}) {value}, {'yes' if i == right else 'no'}." for i, value in enumerate(values)
    )
    assert verifier.verify(letter, judged, prompt=prompt).reward == 1.0


@settings(max_examples=20, deadline=None)
@given(one=st.integers(2, 500), other=st.integers(501, 999))
def test_two_cases_without_a_choice_claim_neither(
    verifier: MathsVerifier, one: int, other: int
) -> None:
    for response in (
        f"If order matters the answer is {one}; if it doesn't the answer is {other}.",
        f"If repetition is allowed, there are {one}; otherwise, {other}.",
        f"Wenn die Reihenfolge zählt, sind es {one}; wenn nicht, {other}.",
    ):
        assert verifier.verify(str(other), response).reward == 0.0, response
        assert verifier.verify(str(one), response).reward == 0.0, response
