"""Compositions, with rewards worked out by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ludus.errors import ConfigError, RewardUnavailable, ServerFault, UnknownVerifier
from ludus.rewards.compose import Composition, LengthShaping, composed, load_composition, over_group
from ludus.rewards.protocol import GroupVerifier, Sample, Verifier
from ludus.verdict import Status, Verdict


class Length:
    """As many points as the text has words; notes how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def score(self, sample: Sample) -> Verdict:
        self.asked += 1
        return Verdict.of(float(len(sample.text.split())), "words", metrics={"n": 1.0})


class Has:
    """One point for a word; the text "lost" loses the verifier."""

    def __init__(self, word: str) -> None:
        self.word = word

    async def score(self, sample: Sample) -> Verdict:
        if sample.text == "lost":
            return Verdict.unavailable("the judge is gone")
        return Verdict.of(float(self.word in sample.text.split()), self.word)


def made(table: dict[str, Any], **verifiers: Verifier) -> Any:
    return composed(composition=msgspec.convert(table, Composition), verifiers=verifiers)


def rewards(verifier: Any, texts: Sequence[str]) -> list[float | None]:
    samples = [Sample(response=text) for text in texts]
    if isinstance(verifier, GroupVerifier):
        verdicts = asyncio.run(verifier.score_group(samples))  # pyright: ignore[reportArgumentType]
    else:
        verdicts = [asyncio.run(verifier.score(sample)) for sample in samples]
    return [verdict.reward for verdict in verdicts]


def test_a_weighted_sum_shows_its_parts() -> None:
    verifier = made(
        {"parts": [{"name": "a"}, {"name": "b", "weight": -0.5}]}, a=Has("yes"), b=Length()
    )
    verdict = asyncio.run(verifier.score(Sample(response="yes and no")))
    assert verdict.reward == 1.0 - 0.5 * 3
    assert verdict.parts == {"a": (1.0, 1.0), "b": (3.0, -0.5)}
    assert verdict.metrics == {"b/n": 1.0}


def test_a_shut_gate_leaves_the_floor_and_costs_nothing_more() -> None:
    length = Length()
    table = {"parts": [{"name": "b"}, {"name": "a", "gate": True, "weight": 0.0}], "floor": -1.0}
    verifier = made(table, a=Has("yes"), b=length)
    assert rewards(verifier, ["no way", "yes way"]) == [-1.0, 2.0]
    assert length.asked == 1


def test_a_part_that_fails_leaves_no_reward_whatever_its_weight() -> None:
    verifier = made(
        {"parts": [{"name": "a", "weight": -3.0}, {"name": "b"}]}, a=Has("x"), b=Length()
    )
    verdict = asyncio.run(verifier.score(Sample(response="lost")))
    assert verdict.status is Status.UNAVAILABLE
    assert verdict.reward is None
    assert verdict.detail == "a: the judge is gone"


def test_bounds_hold_for_parts_and_for_the_sum() -> None:
    table = {"parts": [{"name": "b", "high": 2.0}, {"name": "a", "weight": 5.0}], "high": 4.0}
    verifier = made(table, a=Has("yes"), b=Length())
    assert rewards(verifier, ["one two three", "yes"]) == [2.0, 4.0]


def test_length_costs_between_free_and_maximum() -> None:
    table = {"parts": [{"name": "a"}], "length": {"free_words": 2, "max_words": 6, "penalty": 0.8}}
    verifier = made(table, a=Has("yes"))
    texts = ["yes", "yes b", "yes b c d", "yes b c d e f", "yes b c d e f g h"]
    assert rewards(verifier, texts) == pytest.approx([1.0, 1.0, 0.6, 0.2, 0.2])


@pytest.mark.parametrize("glue", ["-", "\u200b", ",", "_", ""])
def test_words_that_are_glued_together_cost_their_length(glue: str) -> None:
    shaping = LengthShaping(free_words=5, max_words=10, penalty=0.8)
    assert shaping.of(glue.join(["word"] * 60)) == -0.8


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("mean", [-1.0, 1.0, 0.0]),
        ("zscore", [-(1.5**0.5), 1.5**0.5, 0.0]),
        ("rank", [0.0, 1.0, 0.5]),
    ],
)
def test_a_part_is_normalised_over_its_group(how: str, expected: list[float]) -> None:
    verifier = made({"parts": [{"name": "b", "normalise": how}]}, b=Length())
    assert rewards(verifier, ["a", "a b c", "a b"]) == pytest.approx(expected)
    assert asyncio.run(verifier.score(Sample(response="a"))).status is Status.INVALID


def test_a_failure_is_left_out_of_its_groups_normalisation() -> None:
    table = {"parts": [{"name": "a", "normalise": "mean"}]}
    assert rewards(made(table, a=Has("x")), ["x", "lost", "y"]) == [0.5, None, -0.5]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RewardUnavailable(Verdict.invalid("no gold")), Status.INVALID),
        (ServerFault("503"), Status.UNAVAILABLE),
        (KeyError("a bug"), Status.ERROR),
        (asyncio.CancelledError(), Status.ERROR),  # of a task that it waited for
    ],
)
def test_a_part_that_raises_costs_no_other_answer_its_reward(
    error: BaseException, status: Status
) -> None:
    class Raising(Has):
        async def score(self, sample: Sample) -> Verdict:
            if sample.text == "lost":
                raise error
            return await super().score(sample)

    table = {"parts": [{"name": "a", "normalise": "rank"}, {"name": "b"}]}
    verifier = made(table, a=Raising("x"), b=Has("y"))
    samples = [Sample(response=text) for text in ("x", "lost", "y")]
    verdicts = asyncio.run(verifier.score_group(samples))
    assert [verdict.reward for verdict in verdicts] == [1.0, None, 1.0]
    assert (verdicts[1].status, verdicts[1].detail[:2]) == (status, "a:")


def test_a_groups_verifier_that_raises_or_miscounts_leaves_no_reward() -> None:
    class Grouped:
        def __init__(self, given: object) -> None:
            self.given = given

        def score(self, sample: Sample) -> Verdict:
            return Verdict.invalid("use score_group")

        async def score_group(self, samples: Sequence[Sample]) -> Any:
            if isinstance(self.given, Exception):
                raise self.given
            return self.given

    table = {"parts": [{"name": "a"}, {"name": "b"}]}
    for given in (KeyError("a bug"), [Verdict.of(1.0)], None):
        verifier = made(table, a=Grouped(given), b=Has("x"))
        assert rewards(verifier, ["x", "y"]) == [None, None]


def test_equal_values_have_no_spread() -> None:
    assert over_group("zscore", [2.0, 2.0]) == [0.0, 0.0]
    assert over_group("rank", [2.0, 2.0]) == [0.5, 0.5]


def test_a_file_names_verifiers_of_the_registry(tmp_path: Path) -> None:
    path = tmp_path / "reward.toml"
    path.write_text(
        '[[parts]]\nname = "exact"\nweight = 2.0\n[[parts]]\nname = "maths"\ngate = true\n'
    )
    verifier = composed(str(path))
    verdict = asyncio.run(verifier.score(Sample(response="42", gold="42")))
    asyncio.run(verifier.close())
    assert verdict.reward == 3.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "parts"),
        ("parts = []", "needs parts"),
        ('[[parts]]\nname = "exact"\nweigth = 2', "weigth"),
        ('[[parts]]\nname = "exact"\n[[parts]]\nname = "exact"', "label"),
        ('[[parts]]\nname = "exact"\nlow = 2.0\nhigh = 1.0', "bounded"),
        ('[[parts]]\nname = "exact"\ngate = true\nnormalise = "rank"', "two parts"),
        ('[[parts]]\nname = "exact"\nnormalise = "softmax"', "softmax"),
        ('[[parts]]\nname="exact"\n[length]\nfree_words=9\nmax_words=5\npenalty=1', "free_words"),
        ("[[parts", "not a composition"),
        ('floor = nan\n[[parts]]\nname = "exact"\ngate = true', "floor"),
        ('floor = -inf\n[[parts]]\nname = "exact"\ngate = true', "floor"),
        ('[[parts]]\nname = "exact"\ngate = true\nat_least = nan', "at_least"),
        ('[[parts]]\nname="exact"\n[length]\nfree_words=1\nmax_words=5\npenalty=nan', "penalty"),
        ('[[parts]]\nname="exact"\n[length]\nfree_words=1\nmax_words=5\npenalty=inf', "penalty"),
        ('[[parts]]\nname="exact"\n[length]\nfree_words=1\nmax_words=5\npenalty=-1', "penalty"),
    ],
)
def test_a_file_that_cannot_work_says_why(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "reward.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_composition(path)


def test_an_unknown_verifier_is_named(tmp_path: Path) -> None:
    path = tmp_path / "reward.toml"
    path.write_text('[[parts]]\nname = "mahts"\n')
    with pytest.raises(UnknownVerifier, match="maths"):
        composed(str(path))
    with pytest.raises(ConfigError, match="give one"):
        composed()


def test_a_part_that_cannot_be_closed_keeps_no_other_open() -> None:
    class Closing(Has):
        def __init__(self, fault: str) -> None:
            super().__init__("word")
            self.fault, self.closed = fault, False

        async def close(self) -> None:
            self.closed = True
            if self.fault:
                raise RuntimeError(self.fault)

    parts = {name: Closing("stuck" if name == "b" else "") for name in "abc"}
    verifier = made({"parts": [{"name": name} for name in parts]}, **parts)
    with pytest.raises(RuntimeError, match="stuck"):
        asyncio.run(verifier.close())
    assert all(part.closed for part in parts.values())
