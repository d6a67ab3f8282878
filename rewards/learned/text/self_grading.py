"""Self-grading (URPO): the policy is player and referee, and is trained to be a good referee."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any, Unpack

from ludus.errors import BudgetExceeded, ConfigError, RemoteError
from ludus.messages import system, user
from ludus.verdict import Verdict

from ...judge.caller import Effort, JudgeCaller
from ...judge.judge import data_of, empty_answer, failure
from ...judge.prompt import SYSTEM, JudgeQuestion, marked, object_schema
from ...judge.reading import UnreadableVerdict, verdict_of
from ...protocol import Sample
from .asking import Asker, TextAsker, open_asker
from .head import AskerOptions, AskerSettings
from .policy_text import PolicyText

NAME = "self-grading"
LOWEST, HIGHEST = 1, 10
MAX_AT_ONCE = 12


class SelfGrading:
    """Has the policy itself score the answers of a group against each other (URPO).

    One question shows all answers of a group, and the model gives each a whole number from 1 to 10;
    the reward is (mean score - 1) / 9 over `orders` orders of the answers, so that a liking for a
    place cancels out in part. In training the model is the policy with the weights it has then.
    Source: arXiv 2507.17515. Nothing here keeps a policy from talking its referee into high scores:
    mix in tasks with a verifier, and tasks for `ranking-agreement`, as the paper does.

    Args:
        orders: orders in which the answers are shown: 1, or 2 for the reverse too.
        at_once: most answers in one question; a larger group is scored in several.
        options: how the policy is asked, or another model instead of the policy; see
            `AskerSettings`.

    Raises:
        ConfigError: settings that cannot be.
    """

    resident = True
    deterministic = False

    def __init__(
        self, *, orders: int = 2, at_once: int = 8, **options: Unpack[AskerOptions]
    ) -> None:
        asker = AskerSettings(**options)
        if orders not in (1, 2):
            raise ConfigError(f"{NAME}: orders must be 1 or 2, got {orders}")
        if not 1 <= at_once <= MAX_AT_ONCE:
            raise ConfigError(f"{NAME}: at_once must be from 1 to {MAX_AT_ONCE}, got {at_once}")
        self.orders = orders
        self.at_once = at_once
        self.temperature = asker.temperature
        self.max_tokens = asker.max_tokens
        self.asker: JudgeCaller | TextAsker | None = None
        if asker.model or asker.base_url:
            self.asker = open_asker(NAME, asker)
        self._named = self.asker is not None

    def use_policy(self, policy: PolicyText) -> None:
        """Have the policy in training judge, unless a model was named."""
        if not self._named:
            self.asker = TextAsker(policy, self.temperature, self.max_tokens)

    async def score(self, sample: Sample) -> Verdict:
        """Score a single answer as a group of size 1."""
        return (await self.score_group([sample]))[0]

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Score all answers to a question together and return a verdict for each, in order."""
        if self.asker is None:
            reason = (
                f"{NAME} has no model: in 'ludus train' it is the policy; elsewhere name a model"
            )
            return [Verdict.invalid(reason)] * len(samples)
        empty = {
            n: reason for n, sample in enumerate(samples) if (reason := empty_answer(sample.text))
        }
        asked_numbers = [n for n in range(len(samples)) if n not in empty]
        parts = [
            asked_numbers[start : start + self.at_once]
            for start in range(0, len(asked_numbers), self.at_once)
        ]
        part_verdicts = await asyncio.gather(
            *(self._part(self.asker, samples, part) for part in parts)
        )
        verdicts = {n: verdict for part in part_verdicts for n, verdict in part.items()}
        return [
            Verdict.of(0.0, empty[n]) if n in empty else verdicts[n] for n in range(len(samples))
        ]

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weights held here; 0 for the policy, whose weights belong to the engine."""
        if self._named and isinstance(self.asker, TextAsker):
            return int(getattr(self.asker.policy, "memory_bytes", 0))
        return 0

    def card(self) -> dict[str, Any]:
        """Return the model that judges and the number of orders."""
        if isinstance(self.asker, JudgeCaller):
            server = self.asker.server
            card: dict[str, Any] = {"model": server.model, "base_url": server.base_url}
        elif self._named and self.asker is not None:
            card = getattr(self.asker.policy, "card", dict[str, Any])()
        else:
            card = {"weights": "those of the policy in training"}
        return {**card, "orders": self.orders}

    async def close(self) -> None:
        """Close the connections or the model that were opened by name; the policy stays open."""
        if self._named and self.asker is not None:
            await self.asker.close()

    async def _part(
        self, asker: Asker, samples: Sequence[Sample], numbers: Sequence[int]
    ) -> dict[int, Verdict]:
        effort = Effort()
        orders = [list(numbers), list(numbers)[::-1]][: self.orders if len(numbers) > 1 else 1]
        gradings = await asyncio.gather(
            *(self._ordered(asker, samples, order, effort) for order in orders),
            return_exceptions=True,
        )
        # One order without a grading fails all answers: the other alone would favour some places.
        scores: dict[int, list[float]] = {n: [] for n in numbers}
        for grading in gradings:
            if isinstance(grading, (UnreadableVerdict, BudgetExceeded, RemoteError)):
                return {n: failure(grading, effort) for n in numbers}
            if isinstance(grading, BaseException):
                raise grading
            for n, score in grading.items():
                scores[n].append(score)
        verdicts: dict[int, Verdict] = {}
        for n, values in scores.items():
            reward = (math.fsum(values) / len(values) - LOWEST) / (HIGHEST - LOWEST)
            scores_text = ", ".join(f"{score:g}" for score in values)
            metrics = {**effort.metrics(), "self_grading/spread": max(values) - min(values)}
            detail = f"graded {scores_text} of {HIGHEST}"
            verdicts[n] = Verdict.of(reward, detail, metrics=metrics)
        return verdicts

    async def _ordered(
        self, asker: Asker, samples: Sequence[Sample], order: Sequence[int], effort: Effort
    ) -> dict[int, float]:
        # All samples of a group have the same question and reference.
        data = data_of(samples[order[0]])
        del data["response"]
        names = {chr(ord("A") + place): number for place, number in enumerate(order)}
        data |= {f"response_{name}": samples[number].text for name, number in names.items()}
        read = partial(read_scores, names=list(names))
        scores = await asker.ask(about_scores(data, list(names)), read, effort)
        return {names[name]: score for name, score in scores.items()}


class RankingAgreement:
    """A verifier that scores a judgement by Kendall's tau with the true ranking (URPO).

    The response is a judgement as `about_scores` asks for one: a JSON object {"scores": {"A": 7,
    ...}} with a number for each name of `sample.gold`, a mapping from names to true scores or a
    list of names, best first. The reward is tau-b in [-1, 1], where ties of the judgement count for
    nothing; a response without one readable judgement earns -1.
    """

    never_blocks = True

    def score(self, sample: Sample) -> Verdict:
        """Return the tau, in [-1, 1], between the scores of `sample.text` and the gold."""
        try:
            true = _true_scores(sample.gold)
        except ValueError as error:
            return Verdict.invalid(f"ranking-agreement: {error}")
        # The reward depends on the order alone, so scores of any range will do.
        try:
            given_scores = read_scores(sample.text, list(true), low=-1_000_000, high=1_000_000)
        except UnreadableVerdict as error:
            return Verdict.of(-1.0, f"no judgement can be read: {error}")
        tau = kendall_tau([given_scores[name] for name in true], list(true.values()))
        return Verdict.of(tau, f"tau {tau:.2f} over {len(true)} answers")


def about_scores(data: Mapping[str, str], names: Sequence[str]) -> JudgeQuestion:
    """Ask for a score of each of several responses, which `data` has as `response_<name>`."""
    score_form = json.dumps(dict.fromkeys(names, f"{LOWEST} to {HIGHEST}"))
    text = (
        f"{marked(data)}\nHow good is each response, from {LOWEST} (worthless) to {HIGHEST} "
        f'(could not be better)?\nAnswer as JSON: {{"reason": "...", "scores": {score_form}}}'
    )
    number = {"type": "integer", "minimum": LOWEST, "maximum": HIGHEST}
    scores = object_schema(dict.fromkeys(names, number))
    schema = object_schema({"reason": {"type": "string"}, "scores": scores})
    return JudgeQuestion(messages=[system(SYSTEM), user(text)], schema=schema)


def read_scores(
    answer: str, names: Sequence[str], *, low: float = LOWEST, high: float = HIGHEST
) -> dict[str, float]:
    """Read the scores that an answer gives, exactly a score for each of `names`.

    Raises:
        UnreadableVerdict: the answer has no scores, scores that contradict each other, or a score
            that is not a number from `low` to `high`.

    >>> read_scores('{"scores": {"A": 7, "B": 2}}', ["A", "B"])
    {'A': 7.0, 'B': 2.0}
    """
    scores = verdict_of(answer, "scores")["scores"]
    if not isinstance(scores, dict) or sorted(scores) != sorted(names):
        raise UnreadableVerdict(f"scores are needed of {list(names)}, got {scores!r:.120}")
    for name, score in scores.items():
        if isinstance(score, bool) or not isinstance(score, (int, float)):
            raise UnreadableVerdict(f"the score of {name} is not a number: {score!r:.60}")
        if not low <= score <= high:
            raise UnreadableVerdict(f"the score of {name} must be {low:g} to {high:g}: {score!r}")
    return {name: float(scores[name]) for name in names}


def kendall_tau(given_scores: Sequence[float], true: Sequence[float]) -> float:
    """Return Kendall's tau-b: pairs in the same order less pairs in the opposite order, over the
    geometric mean of the two numbers of pairs that are not ties; 0 where one side is all ties.

    >>> kendall_tau([3, 2, 1], [9, 5, 7])
    0.3333333333333333
    >>> round(kendall_tau([1, 1, 2], [1, 2, 3]), 4)  # one tie: 2 / sqrt(2 * 3)
    0.8165
    """
    pairs = list(combinations(zip(given_scores, true, strict=True), 2))
    signs = [(_sign(a[0] - b[0]), _sign(a[1] - b[1])) for a, b in pairs]
    scale = math.sqrt(sum(g != 0 for g, _ in signs) * sum(t != 0 for _, t in signs))
    return sum(g * t for g, t in signs) / scale if scale else 0.0


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def _true_scores(gold: object) -> dict[str, float]:
    """Return the true score of each name in the gold.

    Raises:
        ValueError: the gold is not a ranking.
    """
    if isinstance(gold, Mapping):
        scores = dict(gold)
        if len(scores) > 1 and all(type(score) in (int, float) for score in scores.values()):
            return {str(name): float(score) for name, score in scores.items()}
    elif isinstance(gold, list) and len(set(map(str, gold))) == len(gold) > 1:
        return {str(name): -float(place) for place, name in enumerate(gold)}
    raise ValueError(
        "gold must be a list of two or more names, best first, or a mapping from names to true "
        f"scores; got {gold!r:.80}"
    )
