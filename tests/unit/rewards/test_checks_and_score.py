"""`check_verifier` fails where the contract is broken; `ludus.score` works everywhere."""

import asyncio
import itertools
import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import ludus
from ludus.contract import RuleOutcome
from ludus.errors import CheckFailed, ConfigError, InvalidScore, UnknownVerifier
from ludus.rewards import Sample, make_verifier, register_verifier
from ludus.rewards.checks import check_verifier, examine_verifier
from ludus.rewards.exact import exact
from ludus.verdict import Status, Verdict

RIGHT = [Sample(response="42", gold="42"), Sample(response="7", gold="7")]


def sound(sample: Sample) -> bool:
    return sample.text.strip() == sample.gold


async def sound_and_async(sample: Sample) -> Verdict:
    await asyncio.sleep(0)
    return Verdict.of(float(sample.text.strip() == sample.gold))


class Pairwise:
    """Sound, with groups."""

    def score(self, sample: Sample) -> Verdict:
        return Verdict.of(float(sample.text == sample.gold))

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        return [self.score(sample) for sample in samples]


@pytest.mark.parametrize("response", [3, None, ["42"], [{"role": "assistant"}]])
def test_a_response_of_another_type_is_named(response: Any) -> None:
    with pytest.raises(TypeError, match="response must be a text or a list of Message, got "):
        Sample(response=response)


@pytest.mark.parametrize("verifier", [sound, sound_and_async, Pairwise(), Pairwise, "exact"])
def test_sound_verifiers_pass(verifier: Any) -> None:
    report = check_verifier(verifier, cases=RIGHT)
    assert not report.failures
    groups = next(f for f in report.findings if f.rule == "groups")
    assert (groups.outcome is RuleOutcome.PASSED) == (
        verifier is Pairwise or isinstance(verifier, Pairwise)
    )


def raises(sample: Sample) -> bool:
    return float(sample.text) == float(sample.gold)


def blames_us(sample: Sample) -> Verdict:
    return Verdict.of(1.0) if sample.text == sample.gold else Verdict.error("no number")


def returns_text(sample: Sample) -> Any:
    return "good"


def pays_for_nothing(sample: Sample) -> float:
    return 1.0


def never_pays(sample: Sample) -> float:
    return 0.0


counter = itertools.count()


def changes_its_mind(sample: Sample) -> float:
    return float(next(counter) % 2)


class LosesOne(Pairwise):
    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        return [self.score(sample) for sample in samples[1:]]


def needs_a_gold(sample: Sample) -> bool:
    return sample.gold.strip() == sample.text  # None has no strip


@pytest.mark.parametrize(
    ("broken", "rule", "said"),
    [
        (raises, "hostile text", "raises ValueError"),
        (blames_us, "hostile text", "the fault is the policy's"),
        (returns_text, "right answers", "returns_text must return a Verdict"),
        (pays_for_nothing, "wrong answers", "as good as right"),
        (never_pays, "right answers", "response .* with gold .* must earn 1"),
        (changes_its_mind, "deterministic", "then ok"),
        (LosesOne(), "groups", "gave 0 verdicts"),
        (needs_a_gold, "no gold", "AttributeError"),
    ],
)
def test_a_broken_verifier_fails_its_rule_and_is_told_how(
    broken: Any, rule: str, said: str
) -> None:
    report = examine_verifier(broken, cases=RIGHT)
    assert rule in {finding.rule for finding in report.failures}
    with pytest.raises(CheckFailed, match=said):
        report.raise_if_failed()


def test_an_unknown_verifier_is_no_finding() -> None:
    with pytest.raises(UnknownVerifier, match="did you mean 'exact'"):
        check_verifier("exakt")


def test_score_in_a_script() -> None:
    assert ludus.score("exact", gold="a", response=" A ").reward == 1.0
    assert ludus.score("maths", gold="1/2", response="\\boxed{\\frac{2}{4}}").reward == 1.0


@pytest.mark.parametrize(
    "gold", [None, "", " \n", [], [""], ["a", " "], [None], {}, [{}], [[]], math.nan, [math.inf]]
)
def test_a_gold_that_says_nothing_is_invalid_and_pays_no_answer(gold: Any) -> None:
    for response in ("", "none", "{}", "[]", "nan", "inf", "a"):
        assert ludus.score("exact", gold=gold, response=response).status is Status.INVALID


@given(st.text(min_size=1))
def test_a_text_equals_itself_however_its_accents_are_encoded(text: str) -> None:
    assume(text.strip())
    for form in ("NFC", "NFD"):
        response = unicodedata.normalize(form, text)
        assert exact(Sample(response=response, gold=text, thoughts="none")).reward == 1.0


async def test_score_under_a_running_loop_with_an_async_verifier() -> None:
    register_verifier("test/async", sound_and_async)
    assert ludus.score("test/async", gold="x", response="x").reward == 1.0


@pytest.mark.parametrize(
    ("scored", "told"),
    [
        (None, r"own must return a Verdict.* got NoneType: None; is a return missing\?"),
        (float("nan"), "own must return a finite number, got nan"),
        (10**400, "own must return a finite number, got a larger integer"),
        (np.float32(0.5), r"got float32: .*; one number of an array is given by \.item\(\)"),
    ],
)
def test_what_a_verifier_returned_is_told_with_the_likely_mistake(scored: Any, told: str) -> None:
    def own(sample: Sample) -> Any:
        return scored

    register_verifier("test/own", own)
    with pytest.raises(InvalidScore, match=told):
        ludus.score("test/own", response="x")


def test_a_reward_that_is_no_number_is_told_with_the_likely_mistake() -> None:
    async def later() -> float:
        return 1.0

    coroutine: Any = later()
    with pytest.raises(TypeError, match=r"a reward is a number, got coroutine: .* await missing\?"):
        Verdict.of(coroutine)
    coroutine.close()


def test_the_decorator_without_a_name_is_refused_with_an_example() -> None:
    bare: Any = sound
    with pytest.raises(ConfigError, match=r"takes a name, @ludus\.verifier\('me/exact'\)"):
        ludus.verifier(bare)


def test_a_late_verdict_is_unavailable_and_no_zero() -> None:
    async def late(sample: Sample) -> bool:
        await asyncio.sleep(60)
        return True

    register_verifier("test/late", late)
    verdict = ludus.score("test/late", response="x", timeout_s=0.05)
    assert (verdict.status, verdict.reward) == ("unavailable", None)


def test_score_names_the_near_miss_and_wrong_options() -> None:
    with pytest.raises(UnknownVerifier, match="did you mean 'maths'"):
        ludus.score("math", response="x")
    with pytest.raises(ConfigError, match="colour"):
        ludus.score("maths", response="x", gold="x", colour="red")


def test_a_name_ludus_ships_is_refused_to_all_but_its_own_verifier() -> None:
    register_verifier("exact", exact)
    with pytest.raises(ConfigError, match=r"is one ludus ships .*sound under another name"):
        register_verifier("exact", sound)
    assert ludus.score("exact", gold="a", response=" A ").reward == 1.0


def test_a_verifier_registered_anew_is_not_the_old_one() -> None:
    def make(value: float) -> Any:
        def fixed(sample: Sample) -> float:
            return value

        return fixed

    register_verifier("test/again", make(0.25))
    assert ludus.score("test/again", response="x").reward == 0.25
    register_verifier("test/again", make(0.75))
    assert ludus.score("test/again", response="x").reward == 0.75


def test_a_verifier_is_made_once_for_equal_options_of_any_type() -> None:
    class Listing:
        made = 0

        def __init__(self, **options: Any) -> None:
            type(self).made += 1

        def score(self, sample: Sample) -> Verdict:
            return Verdict.of(1.0)

    def asked(**options: Any) -> int:
        ludus.score("test/listing", response="x", **options)
        return Listing.made

    register_verifier("test/listing", Listing)
    assert [asked(words=["a", {"b": [1]}]) for _ in range(3)] == [1, 1, 1]
    assert asked(words=["a", {"b": [True]}]) == 2  # equal to 1, and another option
    assert [asked(words={"a", "b"}), asked(words={"a"})] == [3, 4]


@pytest.mark.parametrize("given", [1.0, "good", None])
def test_a_class_that_scores_by_something_else_is_told_what_to_return(given: Any) -> None:
    class Number:
        def score(self, sample: Sample) -> Any:
            return given

    with pytest.raises(CheckFailed, match=f"score.. of Number must return a Verdict.*{given!r}"):
        check_verifier(Number())


def test_options_that_cannot_work_are_told_with_what_there_is() -> None:
    class Near:
        def __init__(self, tolerance: float = 0.1) -> None:
            if tolerance < 0:
                raise ValueError("tolerance must not be negative")

        def score(self, sample: Sample) -> Verdict:
            return Verdict.of(1.0)

    register_verifier("test/near", Near)
    with pytest.raises(ConfigError, match=r"cannot be made with.*must not be negative"):
        make_verifier("test/near", tolerance=-1.0)
    with pytest.raises(ConfigError, match="it takes: tolerance"):
        make_verifier("test/near", tolerence=1.0)


def test_what_is_no_verifier_is_refused_by_what_it_takes() -> None:
    class Judge:
        def judge(self, sample: Sample) -> bool:
            return True

    def two(response: str, gold: str) -> bool:
        return response == gold

    register_verifier("test/two", two)
    with pytest.raises(ConfigError, match=r"'test/two' must take one Sample.*'gold'"):
        make_verifier("test/two")
    register_verifier("test/judge", Judge)
    with pytest.raises(ConfigError, match=r"'test/judge' is neither .* nor has a method score"):
        make_verifier("test/judge")


def test_a_factory_is_called_with_and_without_options() -> None:
    def exactly(wanted: str = "1") -> Any:
        def score(sample: Sample) -> bool:
            return sample.text == wanted

        return score

    register_verifier("test/exactly", exactly)
    assert ludus.score("test/exactly", response="1").reward == 1.0
    assert ludus.score("test/exactly", response="1", wanted="2").reward == 0.0


def test_a_verdict_can_be_read_again_from_json() -> None:
    numbers = {"a": 1.0, "b": float("nan"), "c": float("inf")}
    verdict = Verdict.of(1.0, metrics=numbers)
    assert verdict.metrics == {"a": 1.0}
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict
    with pytest.raises(ValueError, match="parts of a reward are finite"):
        Verdict.of(1.0, parts={"a": (float("nan"), 1.0)})
    with pytest.raises(ValueError, match="parts of a reward are finite"):
        Verdict.of(1.0, parts={"a": (1.0, float("inf"))})
