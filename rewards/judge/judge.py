"""The rubric judge: a verifier whose criteria are read by a language model.

Some judges pay texts such as ":" or "Solution" (the "master keys" of arXiv 2507.08794). A response
without a single content word is worth 0 without a question.
"""

from __future__ import annotations

import math
import re
import statistics
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Unpack

from ludus.background import all_or_none
from ludus.errors import BudgetExceeded, ConfigError, LudusError, RemoteError
from ludus.verdict import Verdict

from ..measured import KnownJudge
from ..protocol import Sample
from .caller import Effort
from .prompt import about_digit, about_item, about_items, about_whole
from .reading import UnreadableVerdict, read_holistic, read_item, read_items
from .rubric import Aggregation, Rubric, RubricItem, Rubrics, aggregate, fails_gate, read_rubric
from .settings import JudgeSettings, open_judge

_OPENERS = frozenset({
    "a", "an", "and", "answer", "by", "conclusion", "explanation", "final", "here", "is", "let",
    "let's", "okay", "problem", "process", "reasoning", "response", "result", "so", "solution",
    "solve", "step", "sure", "the", "this", "thought", "us", "well",
    "antwort", "l\u00f6sung", "r\u00e9ponse", "respuesta", "resposta", "risposta", "soluci\u00f3n",
    "\u043e\u0442\u0432\u0435\u0442", "\u89e3", "\u89e3\u7b54", "\u7b54\u6848",
    "\u304b\u3044\u305b\u3064",
})  # fmt: skip
"""Words that open an answer and say nothing by themselves, also in other languages."""


_SIGNS = frozenset({"Sm", "Sc"})
"""Categories of characters that may be an answer: of mathematics and currencies."""


def empty_answer(text: str) -> str:
    """Return why a response needs no judge; "" if a judge is needed.

    >>> empty_answer("Solution:")
    'the response holds nothing to grade'
    >>> empty_answer("Paris."), empty_answer("Answer: A"), empty_answer("\u2205")
    ('', '', '')
    """
    shown = "".join(
        sign for sign in unicodedata.normalize("NFKC", text) if unicodedata.category(sign) != "Cf"
    )
    words = re.findall(r"[^\W_]+(?:'[^\W_]+)?", shown.casefold())
    # No article stands at the end: that "a" is a choice. Signs beyond ASCII, such as that of the
    # empty set, are answers; a tick or a star is praise.
    is_choice = words[-1:] == ["a"]
    has_sign = any(not sign.isascii() and unicodedata.category(sign) in _SIGNS for sign in text)
    if is_choice or has_sign or not all(word in _OPENERS for word in words):
        return ""
    return "the response holds nothing to grade"


Mode = Literal["hard", "samples", "logprobs"]
Calls = Literal["item", "batch"]


class RubricJudge:
    """Scores a response by a rubric that a language model reads.

    The rubric is `sample.info["rubric"]`, or else `sample.gold` where that is a mapping with
    `items`, or else the judge's own. Gates are asked first; a response that fails one costs no
    further calls. An item that cannot be judged makes the whole verdict a failure without a reward,
    so that breaking the judge never pays, neither on merits nor on flaws.

    Args:
        rubric: path of a TOML file, or of a .jsonl file with a rubric for each question; "" where
            each sample brings its own.
        mode: "hard" takes one answer; "samples" the mean of `samples` answers; "logprobs" the
            expected score under the probabilities of the first token, E[s] = sum p(s) s, over the
            candidates that are scores (or one answer, as in "hard", where the server reports no
            probabilities).
        samples: answers an item in mode "samples"; the temperature should then be above 0.
        calls: "item" asks one question for each item. "batch" asks one for all items, which costs
            about as many times less as there are items, but one verdict may colour the next.
        settings: which judge is asked and within which bounds; see `JudgeSettings`.

    Raises:
        ConfigError: no address or model, an unknown mode, or a rubric that cannot be used.
    """

    never_blocks = True
    """A server calls `score` on its event loop: the judge only waits for another server."""

    def __init__(
        self,
        *,
        rubric: str = "",
        mode: Mode = "hard",
        samples: int = 1,
        calls: Calls = "item",
        **settings: Unpack[JudgeSettings],
    ) -> None:
        if mode not in ("hard", "samples", "logprobs"):
            raise ConfigError(f"mode must be hard, samples or logprobs, got {mode!r}")
        if calls not in ("item", "batch"):
            raise ConfigError(f"calls must be item or batch, got {calls!r}")
        if samples < 1:
            raise ConfigError(f"samples must be at least 1, got {samples}")
        if mode == "samples" and not settings.get("temperature"):
            raise ConfigError(
                "mode 'samples' draws equal answers at temperature 0; set a temperature above 0"
            )
        self.rubrics = Rubrics(rubric) if rubric else None
        self.mode: Mode = mode
        self.samples = samples if mode == "samples" else 1
        self.calls: Calls = calls
        self.caller = open_judge(**settings)

    @property
    def judges(self) -> list[KnownJudge]:
        """The model that gives the verdicts, with the measured error where a card was given."""
        return self.caller.judges

    async def score(self, sample: Sample) -> Verdict:
        """Judge `sample.text` by the rubric of the sample, or else by the judge's own."""
        try:
            given_rubric: Any = sample.info.get("rubric")
            if given_rubric is None and isinstance(sample.gold, Mapping) and "items" in sample.gold:
                given_rubric = sample.gold
            if given_rubric is not None:
                rubric = read_rubric(given_rubric)
            else:
                if self.rubrics is None:
                    raise ConfigError(
                        "no rubric: give the judge one (rubric=FILE.toml) or each sample its own "
                        "(info['rubric'])"
                    )
                rubric = self.rubrics.of(data_of(sample)["question"])
        except ConfigError as error:
            return Verdict.invalid(str(error))
        if reason := self.nothing_to_grade(sample):
            return Verdict.of(rubric.floor if rubric.gates else 0.0, reason)
        effort, draws = Effort(), list[dict[str, float]]()
        try:
            data = await self.data_of(sample)
            scores = await self._scores(rubric, data, effort, draws)
        except (UnreadableVerdict, BudgetExceeded, RemoteError) as error:
            return failure(error, effort)
        items = {item.id: item for item in rubric.items}
        parts = {
            name: (score, items[name].weight if name in items else 1.0)
            for name, score in scores.items()
        }
        # A merit that is not fully met, or a flaw that is.
        wanting = [
            i for i in rubric.items if i.id in scores and (scores[i.id] < 1) is not i.is_flaw
        ]
        unmet = "; ".join(f"{i.id} {scores[i.id]:.2g}: {i.text[:80]}" for i in wanting[:5])
        return Verdict.of(
            aggregate(rubric, scores),
            unmet or "every criterion is met",
            parts=parts,
            metrics=effort.metrics() | _noise(rubric, scores, draws),
        )

    def nothing_to_grade(self, sample: Sample) -> str:
        """Return why a sample earns 0 (with gates: the floor) unasked; "" if a judge is needed."""
        return empty_answer(sample.text)

    async def data_of(self, sample: Sample) -> Mapping[str, str]:
        """Return the texts of a sample that the judge is shown, by name."""
        return data_of(sample)

    async def close(self) -> None:
        """Close the connections and the file of judgements."""
        await self.caller.close()

    async def item_scores(
        self, rubric: Rubric, data: Mapping[str, str], effort: Effort, *, draw: int = 0
    ) -> dict[str, float]:
        """Return the score of every item in [0, 1], gates or not, from answer number `draw`.

        Raises:
            UnreadableVerdict, BudgetExceeded, RemoteError: an item could not be judged.
        """
        return await self._single_draw(rubric, rubric.items, data, effort, draw)

    async def _scores(
        self, rubric: Rubric, data: Mapping[str, str], effort: Effort, draws: list[dict[str, float]]
    ) -> dict[str, float]:
        """Return scores by item id; after a gate that failed, only the scores of the gates. What
        each answer said of the items without a gate is added to `draws`.
        """
        if rubric.aggregation is Aggregation.IMPLICIT:
            question = about_whole(data, rubric.items, advice=rubric.instructions)
            asked = [
                self.caller.ask(question, read_holistic, effort, draw=draw)
                for draw in range(self.samples)
            ]
            overall = await all_or_none(asked)
            draws += [{"overall": score} for score in overall]
            return {"overall": _mean(overall)}
        scores: dict[str, float] = {}
        if rubric.gates:
            scores = await self._mean_of_draws(rubric, rubric.gates, data, effort, [])
            if any(fails_gate(gate, scores[gate.id]) for gate in rubric.gates):
                return scores
        ungated = [item for item in rubric.items if item.id not in scores]
        if not ungated:
            return scores
        return scores | await self._mean_of_draws(rubric, ungated, data, effort, draws)

    async def _mean_of_draws(
        self,
        rubric: Rubric,
        items: Sequence[RubricItem],
        data: Mapping[str, str],
        effort: Effort,
        draws: list[dict[str, float]],
    ) -> dict[str, float]:
        draws += await all_or_none(
            [self._single_draw(rubric, items, data, effort, draw) for draw in range(self.samples)]
        )
        return {item.id: _mean([draw[item.id] for draw in draws]) for item in items}

    async def _single_draw(
        self,
        rubric: Rubric,
        items: Sequence[RubricItem],
        data: Mapping[str, str],
        effort: Effort,
        draw: int,
    ) -> dict[str, float]:
        advice = rubric.instructions
        if self.mode == "logprobs":
            expected = await all_or_none(
                [self._expected(item, data, advice, effort) for item in items]
            )
            return {item.id: score for item, score in zip(items, expected, strict=True)}
        if self.calls == "batch" and len(items) > 1:
            question = about_items(data, items, advice=advice)
            read: Callable[[str], dict[str, float]] = partial(read_items, items=items)
            return await self.caller.ask(question, read, effort, draw=draw)
        scores = await all_or_none(
            [
                self.caller.ask(
                    about_item(data, item, advice=advice),
                    partial(read_item, item=item),
                    effort,
                    draw=draw,
                )
                for item in items
            ]
        )
        return {item.id: score for item, score in zip(items, scores, strict=True)}

    async def _expected(
        self, item: RubricItem, data: Mapping[str, str], advice: str, effort: Effort
    ) -> float:
        first_token = await self.caller.first_token(about_digit(data, item, advice=advice), effort)
        expected = expected_score(first_token or {}, item.highest)
        if expected is not None:
            return expected
        return await self.caller.ask(
            about_item(data, item, advice=advice), partial(read_item, item=item), effort
        )


def _noise(
    rubric: Rubric, scores: Mapping[str, float], draws: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """Return `judge/spread`, the standard error of the reward over the judge's repeated answers;
    nothing where it was asked once.
    """
    if len(draws) < 2:
        return {}
    rewards = [aggregate(rubric, {**scores, **draw}) for draw in draws]
    return {"judge/spread": statistics.stdev(rewards) / math.sqrt(len(rewards))}


def data_of(sample: Sample) -> dict[str, str]:
    """Return the texts that a judge is shown of a sample: question and response, and a reference
    where gold is a text.
    """
    prompt = sample.prompt
    if not isinstance(prompt, str):
        prompt = "\n\n".join(f"{message.role}: {message.text}" for message in prompt)
    data = {"question": prompt, "response": sample.text}
    if isinstance(sample.gold, str) and sample.gold:
        data["reference"] = sample.gold
    return data


def expected_score(first_token: Mapping[str, float], highest: int) -> float | None:
    """Return the expected score in [0, 1] under the probabilities of the tokens that are scores;
    None if these tokens have less than half of the probability.

    >>> expected_score({"1": math.log(0.75), "0": math.log(0.25)}, highest=1)
    0.75
    """
    # Several tokens may stand for the same score (`1` and ` 1`), and each has its own probability.
    numbers = [(token.strip(), math.exp(logprob)) for token, logprob in first_token.items()]
    valid = [(int(text), p) for text, p in numbers if text.isascii() and text.isdigit()]
    valid = [(score, p) for score, p in valid if score <= highest]
    total = sum(p for _, p in valid)
    if total < 0.5:
        return None
    expected = sum(score * p for score, p in valid) / total / highest
    return min(1.0, expected)  # Rounding may leave the sum just above 1.


def failure(error: LudusError, effort: Effort) -> Verdict:
    """Return the verdict, without a reward, for an error that kept a judge from judging."""
    retryable = isinstance(error, RemoteError) and error.retryable
    if isinstance(error, BudgetExceeded):
        verdict = Verdict.error(f"{error}")
    elif isinstance(error, UnreadableVerdict):
        verdict = Verdict.unavailable(f"the judge's answer cannot be read: {error}")
    elif retryable:
        verdict = Verdict.unavailable(f"the judge did not answer: {error}")
    else:
        verdict = Verdict.error(f"the judge refused the question: {error}")
    return Verdict(
        status=verdict.status,
        detail=verdict.detail,
        retryable=verdict.retryable,
        metrics={"judge/failed": 1.0, **effort.metrics()},
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
