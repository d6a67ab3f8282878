"""The preference judge compares the answers of a group: in pairs, in a circle or as a list."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, pairwise
from typing import Literal, TypeVar, Unpack

from ludus.errors import BudgetExceeded, ConfigError, LudusError, RemoteError, RequestRejected
from ludus.verdict import Verdict

from ..measured import KnownJudge
from ..protocol import Sample
from .caller import Effort
from .judge import data_of, empty_answer, failure
from .prompt import about_list, about_pair
from .reading import UnreadableVerdict, read_choice, read_ranking
from .settings import JudgeSettings, open_judge

T = TypeVar("T")
Scheme = Literal["all_pairs", "circular", "listwise"]
Rating = Literal["win_rate", "bradley_terry"]
CRITERION = (
    "The response answers the question better: right, complete, clear, and no longer than needed."
)
POINTS = {"A": 1.0, "tie": 0.5, "B": 0.0}
MAX_LISTED = 12
"""Most answers of one list; longer ones are beyond what a judge ranks well."""


@dataclass(slots=True)
class Comparisons:
    """The results of comparisons: `points[i, j]` is the share of i's win over j, in [0, 1]."""

    points: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    failed: dict[int, LudusError] = field(default_factory=dict[int, LudusError])
    """The reason why an answer has no reward."""
    refused: dict[tuple[int, int], LudusError] = field(
        default_factory=dict[tuple[int, int], LudusError]
    )
    """Comparisons that the judge refused or answered unreadably, by one of two answers' fault."""
    flips: int = 0
    """Pairs whose winner changed with the order in which they were shown."""

    def add(self, first: int, second: int, points: float) -> None:
        """Record that `first` won the share `points`, in [0, 1], of a win over `second`."""
        self.points[first, second] = points
        self.points[second, first] = 1 - points

    def blame(self) -> None:
        """Find the answers to blame for refused comparisons: those in most of them, first.

        Where nothing tells two answers apart, both are blamed. An answer that is left with no
        comparison has no reward either. What was compared counts for the other answer, also where
        one of the two is to blame for another comparison.
        """
        left = dict(self.refused)
        while left:
            counts = Counter(number for pair in left for number in pair)
            most = max(counts.values())
            for number in [number for number, times in counts.items() if times == most]:
                self.failed[number] = next(error for pair, error in left.items() if number in pair)
            left = {pair: e for pair, e in left.items() if self.failed.keys().isdisjoint(pair)}
        for (first, second), error in self.refused.items():
            for number in (first, second):
                if not any(number in pair for pair in self.points):
                    self.failed.setdefault(number, error)


class PreferenceJudge:
    """Compares the answers of a group; a reward is a share of wins.

    Every pair is shown in both orders and each order counts half, so that a judge's liking for a
    place cancels out; ties count half. With `rating = "win_rate"` the reward is the mean share of
    wins, which is the reward of self-play preference optimisation. With "bradley_terry" the reward
    is the mean probability of winning against the others under the fitted strengths, which is
    steadier where not all pairs are compared.

    Where the judge refuses a comparison or answers it unreadably, the answer that such comparisons
    have in common is to blame and has no reward; the others are rated on what was compared. Where
    the judge is not to be had, the answers that miss a comparison have no reward.

    Args:
        criterion: what better means; `sample.info["criterion"]` goes first.
        scheme: "all_pairs" asks n (n - 1) questions, "circular" 2 n (each answer with its two
            neighbours), "listwise" two rankings of the whole list, in opposite orders, at most 12
            answers.
        rating: "win_rate" or "bradley_terry".
        settings: which judge is asked and within which bounds; see `JudgeSettings`.

    Raises:
        ConfigError: no address or model, or an unknown scheme or rating.
    """

    never_blocks = True

    def __init__(
        self,
        *,
        criterion: str = CRITERION,
        scheme: Scheme = "all_pairs",
        rating: Rating = "win_rate",
        **settings: Unpack[JudgeSettings],
    ) -> None:
        if scheme not in ("all_pairs", "circular", "listwise"):
            raise ConfigError(f"scheme must be all_pairs, circular or listwise, got {scheme!r}")
        if rating not in ("win_rate", "bradley_terry"):
            raise ConfigError(f"rating must be win_rate or bradley_terry, got {rating!r}")
        self.criterion = criterion
        self.scheme: Scheme = scheme
        self.rating: Rating = rating
        self.caller = open_judge(**settings)

    @property
    def judges(self) -> list[KnownJudge]:
        """The model that gives the verdicts, with the measured error where a card was given."""
        return self.caller.judges

    def score(self, sample: Sample) -> Verdict:
        """Return an invalid verdict, since a single answer has nothing to be compared with."""
        return Verdict.invalid(
            "a preference judge compares the answers of a group; use score_group (POST "
            "/v1/score_group), or a rubric judge for single answers"
        )

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Judge all answers to a question together and return a verdict for each, in order."""
        if len(samples) < 2:
            too_few = Verdict.invalid(f"a comparison needs two answers, got {len(samples)}")
            return [too_few] * len(samples)
        if self.scheme == "listwise" and len(samples) > MAX_LISTED:
            too_many = f"listwise takes at most {MAX_LISTED} answers, got {len(samples)}"
            return [Verdict.invalid(f"{too_many}; use all_pairs or circular")] * len(samples)
        effort, comparisons = Effort(), Comparisons()
        asked_numbers = [n for n, sample in enumerate(samples) if not empty_answer(sample.text)]
        # An empty answer loses to every other answer and ties with empty answers; nobody is asked.
        for first, second in combinations(range(len(samples)), 2):
            if first not in asked_numbers or second not in asked_numbers:
                ahead = (first in asked_numbers) - (second in asked_numbers)
                comparisons.add(first, second, 0.5 + 0.5 * ahead)
        if self.scheme == "listwise" and len(asked_numbers) > 1:
            await self._list(samples, asked_numbers, comparisons, effort)
        else:
            pairs = list(combinations(asked_numbers, 2))
            if self.scheme == "circular" and len(asked_numbers) > 2:
                # Each answer is compared with the next, and the last with the first.
                pairs = list(pairwise([*asked_numbers, asked_numbers[0]]))
            await self._pairs(samples, pairs, comparisons, effort)
        comparisons.blame()
        count = len(samples)
        rate = win_rates if self.rating == "win_rate" else bradley_terry
        rewards = rate(count, comparisons.points)
        compared = len(comparisons.points) // 2
        metrics = {
            **effort.metrics(),
            "judge/comparisons": float(compared),
            "judge/position_flips": comparisons.flips / compared if compared else 0.0,
        }
        return [
            failure(comparisons.failed[number], effort)
            if number in comparisons.failed
            else Verdict.of(
                rewards[number], f"wins {rewards[number]:.2f} of its comparisons", metrics=metrics
            )
            for number in range(count)
        ]

    async def close(self) -> None:
        """Close the connections and the file of judgements."""
        await self.caller.close()

    async def _pairs(
        self,
        samples: Sequence[Sample],
        pairs: Sequence[tuple[int, int]],
        comparisons: Comparisons,
        effort: Effort,
    ) -> None:
        """Compare the answers of every pair, all at the same time."""
        await asyncio.gather(
            *(self._pair(samples, first, second, comparisons, effort) for first, second in pairs)
        )

    async def _pair(
        self,
        samples: Sequence[Sample],
        first: int,
        second: int,
        comparisons: Comparisons,
        effort: Effort,
    ) -> None:
        """Compare two answers in both orders."""
        try:
            forward, backward = await _both(
                self._prefer(samples[first], samples[second], effort),
                self._prefer(samples[second], samples[first], effort),
            )
        except (UnreadableVerdict, RequestRejected) as error:
            comparisons.refused[first, second] = error  # one of the two is to blame
            return
        except (BudgetExceeded, RemoteError) as error:
            comparisons.failed[first] = comparisons.failed[second] = error
            return
        # Both numbers are the share of the answer that was shown first, so an answer that wins in
        # both orders has 1 and 0. Any other sum means that the order decided.
        comparisons.flips += forward + backward != 1.0
        comparisons.add(first, second, (forward + 1 - backward) / 2)

    async def _prefer(self, shown_first: Sample, shown_second: Sample, effort: Effort) -> float:
        data = data_of(shown_first)
        texts = {"response_A": data.pop("response"), "response_B": shown_second.text}
        question = about_pair({**data, **texts}, self._criterion(shown_first))
        read = partial(read_choice, field="better", choices=list(POINTS))
        return POINTS[await self.caller.ask(question, read, effort)]

    async def _list(
        self,
        samples: Sequence[Sample],
        asked_numbers: Sequence[int],
        comparisons: Comparisons,
        effort: Effort,
    ) -> None:
        """Rank the whole list twice, in opposite orders; each ranking decides every pair."""
        try:
            places = await _both(
                self._places(samples, asked_numbers, effort),
                self._places(samples, asked_numbers[::-1], effort),
            )
        except (UnreadableVerdict, RequestRejected):
            # Some answer of the list is refused; pairs show which.
            await self._pairs(samples, list(combinations(asked_numbers, 2)), comparisons, effort)
            return
        except (BudgetExceeded, RemoteError) as error:
            comparisons.failed |= dict.fromkeys(asked_numbers, error)
            return
        for first, second in combinations(asked_numbers, 2):
            wins = [place[first] < place[second] for place in places]
            comparisons.flips += len(set(wins)) > 1
            comparisons.add(first, second, sum(wins) / len(wins))

    async def _places(
        self, samples: Sequence[Sample], order: Sequence[int], effort: Effort
    ) -> dict[int, int]:
        names = [chr(ord("A") + place) for place in range(len(order))]
        data = data_of(samples[order[0]])
        del data["response"]
        named_places = zip(names, order, strict=True)
        data |= {f"response_{name}": samples[number].text for name, number in named_places}
        question = about_list(data, self._criterion(samples[order[0]]), names)
        ranking = await self.caller.ask(question, partial(read_ranking, names=names), effort)
        return {order[names.index(name)]: place for place, name in enumerate(ranking)}

    def _criterion(self, sample: Sample) -> str:
        return str(sample.info.get("criterion") or self.criterion)


async def _both(forward: Awaitable[T], backward: Awaitable[T]) -> tuple[T, T]:
    """Return two answers once both have ended, so that none is asked for when a verdict is there.

    Raises:
        Exception: what the first that failed has raised.
    """
    first, second = await asyncio.gather(forward, backward, return_exceptions=True)
    for answer in (first, second):
        if isinstance(answer, BaseException):
            raise answer
    return first, second  # type: ignore[return-value]


def win_rates(count: int, points: Mapping[tuple[int, int], float]) -> list[float]:
    """Return each answer's mean share of wins over compared rivals; 0.5 without comparisons.

    >>> win_rates(3, {(0, 1): 1.0, (1, 0): 0.0, (1, 2): 0.5, (2, 1): 0.5})
    [1.0, 0.25, 0.5]
    """
    shares: dict[int, list[float]] = defaultdict(list)
    for (first, _), share in points.items():
        shares[first].append(share)
    return [math.fsum(shares[n]) / len(shares[n]) if shares[n] else 0.5 for n in range(count)]


def bradley_terry(
    count: int, points: Mapping[tuple[int, int], float], *, prior: float = 0.5, rounds: int = 200
) -> list[float]:
    """Return each answer's mean probability of beating another compared answer under fitted
    strengths; 0.5 without one.

    P(i beats j) = p_i / (p_i + p_j), fitted by the minorisation of Hunter (2004, eq. 5):
    p_i <- W_i / sum_j n_ij / (p_i + p_j), where W_i are the wins of i. A phantom answer of strength
    1 draws `2 * prior` comparisons with everyone, so that nobody's strength is 0 or infinite.

    Args:
        count: how many answers there are.
        points: share of i's win over j, for both orders of every pair that was compared.
        prior: wins and losses of every answer against the phantom.
        rounds: steps of the iteration, which converges far earlier.

    >>> [round(reward, 3) for reward in bradley_terry(2, {(0, 1): 1.0, (1, 0): 0.0})]
    [0.819, 0.181]
    """
    strength = [1.0] * count
    wins = [prior] * count
    rivals: dict[int, list[int]] = defaultdict(list)
    for (first, second), share in points.items():
        wins[first] += share
        rivals[first].append(second)
    for _ in range(rounds):
        strength = [
            wins[n]
            / (
                2 * prior / (strength[n] + 1)
                + math.fsum(1 / (strength[n] + strength[rival]) for rival in rivals[n])
            )
            for n in range(count)
        ]
    # Nothing is known of an answer that was not compared: it would draw every reward to 0.5.
    compared = {number for pair in points for number in pair}
    chances = [
        [strength[n] / (strength[n] + strength[m]) for m in compared if m != n]
        for n in range(count)
    ]
    return [math.fsum(row) / len(row) if row else 0.5 for row in chances]
