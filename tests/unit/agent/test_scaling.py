"""maj@k, best-of-k, rounds within a budget, success against summaries: against plain counting."""

import itertools
import math
import random
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.agent.scaling import (
    Sampled,
    best_of_k,
    by_summaries,
    last_within,
    majority_at_k,
    scaling,
    vote_of,
)
from ludus.estimates import pass_at_k
from ludus.messages import ToolCall, assistant
from ludus.verdict import Verdict

SAMPLES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=7)


@given(SAMPLES, st.data())
def test_a_majority_is_the_mean_over_all_subsets(
    samples: list[tuple[str, bool]], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(samples)))
    shares: list[Fraction] = []
    for subset in itertools.combinations(samples, k):
        counts = Counter(vote for vote, _ in subset)
        tied = [vote for vote, n in counts.items() if n == max(counts.values())]
        for vote in tied:
            right = [passed for own, passed in subset if own == vote]
            shares.append(Fraction(sum(right), len(right)) / len(tied))
    expected = sum(shares) / math.comb(len(samples), k)
    votes, passed = zip(*samples, strict=True)
    assert majority_at_k(votes, passed, k) == pytest.approx(float(expected))


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=7), st.data())
def test_the_best_of_k_is_the_mean_over_all_orders(
    samples: list[tuple[int, bool]], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(samples)))
    rights: list[float] = []
    for subset in itertools.combinations(samples, k):
        top = max(score for score, _ in subset)
        tied = [passed for score, passed in subset if score == top]
        rights.append(sum(tied) / len(tied))
    scores, passed = zip(*samples, strict=True)
    # Ties are broken evenly in a subset and, in the closed form, over the group: the same only
    # where scores differ; both agree in the mean over samples of one score that are exchangeable.
    if len(set(scores)) == len(scores):
        assert best_of_k(scores, passed, k) == pytest.approx(sum(rights) / len(rights))
    perfect = best_of_k([float(one) for one in passed], passed, k)
    assert perfect == pytest.approx(pass_at_k(len(passed), sum(passed), k))


def test_where_subsets_are_many_a_majority_is_drawn() -> None:
    generator = random.Random(1)
    passed = [generator.random() < 0.7 for _ in range(40)]
    votes = ["right" if one else "wrong" for one in passed]
    wins, k = sum(passed), 9
    # hypergeometric: at least 5 of 9 drawn are right
    exact = sum(
        math.comb(wins, n) * math.comb(40 - wins, k - n) for n in range(5, k + 1)
    ) / math.comb(40, k)
    assert majority_at_k(votes, passed, k) == pytest.approx(exact, abs=0.03)
    assert majority_at_k(votes, passed, k) == majority_at_k(votes, passed, k)


def test_a_vote_is_the_last_box_or_the_whole_action() -> None:
    def vote(text: str, *calls: ToolCall) -> str:
        turns = [Turn(message=assistant("first")), Turn(message=assistant(text, calls))]
        segments = [Segment(turns=turns)]
        return vote_of(Trajectory(verdict=Verdict.of(1.0), segments=segments))

    assert vote(r"So \boxed{1} or \boxed{\frac{1}{2}}.") == vote(r"\boxed{\frac{1}{2}}")
    deep = r"\boxed{\frac{\sqrt{2}}{2}}"
    assert vote(rf"So {deep}") == vote(rf"Hence the answer is {deep}.") != vote(r"\boxed{2}")
    assert vote(r"\boxed{\left\{\frac{\sqrt{1}}{2}\right.} fits") == vote(
        r"so \boxed{\left\{\frac{\sqrt{1}}{2}\right.}"
    )
    assert vote(r"in {1, \boxed{4}") == vote(r"\boxed{4} and \boxed{5")
    assert vote(r"\boxed{\boxed{4}}") == vote(r"\boxed{ \boxed{4} }")
    assert vote(" The  Answer\nis 4 ") == vote("the answer is 4")
    search = ToolCall(name="search", arguments={"a": 1, "b": 2})
    swapped = ToolCall(name="search", arguments={"b": 2, "a": 1})
    assert vote("", search) == vote("", swapped) != vote("")
    assert vote_of(Trajectory(verdict=Verdict.of(1.0))) == ""


def one(passed: bool, tokens: int, vote: str = "", score: float | None = None) -> Sampled:
    return Sampled(passed=passed, vote=vote, tokens=tokens, score=score)


def test_rounds_and_samples_are_compared_at_the_same_tokens() -> None:
    tasks = {"a": [one(False, 10, "x", 0.1), one(True, 30, "y", 0.9)]}
    chain = [one(False, 10), one(False, 20), one(True, 10)]
    first, second = scaling(tasks, {"a": [chain]})
    # one sample costs 20: round one fits, two would take 30; two cost 40: all three fit
    assert (first.k, first.tokens, first.rounds) == (1, 20.0, 1.0)
    assert (second.k, second.tokens, second.rounds) == (2, 40.0, 3.0)
    assert first.sequential is not None
    assert second.sequential is not None
    assert (first.sequential.value, second.sequential.value) == (0.0, 1.0)
    assert second.best is not None
    assert second.best.value == 1.0
    assert second.majority.value == 0.5
    assert second.passed.value == 1.0
    assert last_within(chain, 1.0) == (chain[0], 1)  # the first round is never taken away
    (only,) = scaling({"a": [one(True, 5, score=1.0)], "b": [one(True, 5)]})
    assert only.best is not None  # of the task whose samples all have a score


def test_success_grows_with_the_summaries_that_are_allowed() -> None:
    def played(summaries: int, reward: float | None) -> Episode:
        verdict = Verdict.of(reward) if reward is not None else Verdict.unavailable("lost")
        metrics = {"summaries": float(summaries)} if summaries else {}
        return Episode(task="t", trajectories=[Trajectory(verdict=verdict, metrics=metrics)])

    episodes = [played(0, 1.0), played(1, 1.0), played(3, 1.0), played(3, 0.0), played(9, None)]
    rows = by_summaries(episodes, passing=1.0, trained=1)
    assert [row.success.value for row in rows] == [0.25, 0.5, 0.5, 0.75]
    assert [row.episodes for row in rows] == [1, 1, 0, 2]
    assert [row.beyond for row in rows] == [False, False, True, True]
    assert by_summaries(episodes[:1], passing=1.0) == []
