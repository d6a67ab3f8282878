"""What a model shows of tasks: how often it passes them, whether its answers agree on another
gold, and whether it knows their questions by heart.

A model that has read a question completes it: "Reasoning or Memorization?" (arXiv 2507.10532) shows
the first part of each prompt and compares what follows by ROUGE-L.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from ludus.errors import ConfigError
from ludus.estimates import mean_over_tasks, wilson
from ludus.messages import Message, Role, user
from ludus.rewards import Sample, Verifier
from ludus.rewards.overlap import rouge_l
from ludus.rewards.score import awaited_verdict, shared_verifier
from ludus.verdict import Verdict

from ..families.maths import Maths, MathsProblem, last_boxed
from .collection import CandidateTasks
from .models import TOO_LONG, TaskModel, at_once

INSTRUCTION = f"{Maths.system_prompt} {Maths.answer_format}"
FEWEST_HIDDEN = 5
"""The fewest hidden words of a question that a completion tells anything about."""


@dataclass(frozen=True, kw_only=True)
class MeasureSettings:
    """How tasks are measured with a model, and which are left out."""

    samples: int = 8
    """Answers to each question; 0 asks for none."""
    min_rate: float = 0.0
    """The lowest share of passed answers of a task that is kept."""
    max_rate: float = 1.0
    """The highest share of passed answers of a task that is kept."""
    agree: float = 0.0
    """Leave out a task where at least this share of the answers agree on another answer than the
    gold, and more than agree with the gold; 0 looks for none.
    """
    probe: float = 0.0
    """The share of a question that the model is shown, to complete it word for word; 0 does not
    ask. The paper shows 0.4, 0.6 and 0.8.
    """
    memorised: float = 0.9
    """The ROUGE-L from which a completed question counts as known by heart, and is left out."""
    instruction: str = INSTRUCTION
    """What the model is told before a question."""
    max_tokens: int = 1024
    """The most tokens of an answer; an answer that is cut off does not pass."""
    temperature: float = 1.0
    """The temperature of the answers; completions are greedy."""
    concurrency: int = 32
    """The most tasks that are asked about at the same time."""

    def __post_init__(self) -> None:
        if self.samples < 0 or self.max_tokens < 1 or self.concurrency < 1:
            raise ConfigError(
                "need samples >= 0, max_tokens >= 1 and concurrency >= 1, got "
                f"{self.samples}, {self.max_tokens}, {self.concurrency}"
            )
        if not 0 <= self.min_rate <= self.max_rate <= 1:
            raise ConfigError(
                f"need 0 <= min_rate <= max_rate <= 1, got {self.min_rate:g}, {self.max_rate:g}"
            )
        for name in ("agree", "probe", "memorised"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is a share from 0 to 1, got {getattr(self, name):g}")
        if self.probe == 1:
            raise ConfigError("probe=1 shows whole questions, and nothing is left to complete")
        if not self.samples and (self.agree or self.min_rate > 0 or self.max_rate < 1):
            raise ConfigError("a band of rates and agreement need samples, got samples=0")


@dataclass(frozen=True)
class TaskMeasure:
    """What a model has shown of a task."""

    passed: int = 0
    scored: int = 0
    """Answers that the verifier could score."""
    other: str = ""
    """The most frequent answer that is not the gold."""
    others: int = 0
    """How often it was given."""
    completed: float | None = None
    """ROUGE-L of the completed question; None where nothing was asked, or too little was hidden."""
    too_long: bool = False
    """Whether the model could not read the question whole."""

    @property
    def rate(self) -> float:
        """The share of passed answers."""
        return self.passed / self.scored if self.scored else 0.0

    def reason(self, settings: MeasureSettings) -> tuple[str, str] | None:
        """Return why the task is left out, with a detail; None for a task that is kept."""
        if self.too_long:
            return "not measured", "the question is too long for the model"
        if self.completed is not None and self.completed >= settings.memorised:
            return "known by heart", f"ROUGE-L {self.completed:.2f} of the hidden part"
        if not settings.samples:
            return None
        if not self.scored:
            return "not measured", "the verifier could score no answer"
        passes = f"{self.passed} of {self.scored} passed"
        share = self.others / self.scored
        if settings.agree and share >= settings.agree and self.others > self.passed:
            return "answer in doubt", f"{passes}; {self.others} say {self.other[:80]}"
        if self.rate < settings.min_rate:
            return "too hard", passes
        return ("too easy", passes) if self.rate > settings.max_rate else None


async def measure_tasks(
    candidates: CandidateTasks, model: TaskModel, settings: MeasureSettings, *, verifier: str
) -> CandidateTasks:
    """Measure tasks with a model.

    Args:
        candidates: the tasks.
        model: answers and completes.
        settings: how often it is asked, and what is left out.
        verifier: the name of the verifier that scores answers.

    Returns:
        The tasks that are kept, with the columns `pass_rate` and `pass_model`.

    Raises:
        ConfigError: no verifier has that name.
        LudusError: the model could not answer; nothing is measured by halves.
    """
    scorer = shared_verifier(verifier)
    problems = [problem for _, problem in candidates.kept]
    measures = await at_once(
        problems, partial(_measured, model=model, scorer=scorer, settings=settings),
        settings.concurrency,
    )  # fmt: skip
    reasons: dict[int, tuple[str, str]] = {}
    columns: dict[str, dict[str, Any]] = {}
    for (row, problem), measure in zip(candidates.kept, measures, strict=True):
        if reason := measure.reason(settings):
            reasons[row] = reason
        elif settings.samples:
            columns[problem.id] = {"pass_rate": measure.rate, "pass_model": model.name}
    card = _card(model, measures, settings)
    return replace(candidates.without(reasons), columns=columns, measured=card)


async def _measured(
    problem: MathsProblem, *, model: TaskModel, scorer: Verifier, settings: MeasureSettings
) -> TaskMeasure:
    try:
        return await _answered(problem, model, scorer, settings)
    except TOO_LONG:
        return TaskMeasure(too_long=True)


async def _answered(
    problem: MathsProblem, model: TaskModel, scorer: Verifier, settings: MeasureSettings
) -> TaskMeasure:
    completed = await _completed(problem.question, model, settings) if settings.probe else None
    question = [Message(role=Role.SYSTEM, content=settings.instruction), user(problem.question)]
    passed = scored = 0
    wrong: list[str] = []
    for seed in range(settings.samples):
        text, ended = await model.writer.write(
            question, max_tokens=settings.max_tokens, temperature=settings.temperature, seed=seed
        )
        verdict = await _scored(scorer, text, problem) if ended else Verdict.of(0.0, "cut off")
        if not verdict.ok:
            continue
        scored += 1
        if _passes(verdict):
            passed += 1
        elif answer := final_answer(text) if ended else "":
            wrong.append(answer)
    groups = await _alike(wrong, scorer) if settings.agree else {}
    other = max(groups, key=lambda answer: groups[answer], default="")
    return TaskMeasure(passed, scored, other, groups.get(other, 0), completed)


async def _scored(scorer: Verifier, text: str, problem: MathsProblem) -> Verdict:
    sample = Sample(response=text, gold=problem.gold, prompt=problem.question)
    return await awaited_verdict(scorer.score(sample))


def _passes(verdict: Verdict) -> bool:
    return verdict.ok and verdict.unwrap() >= 1.0


async def _alike(answers: Sequence[str], scorer: Verifier) -> dict[str, int]:
    """Count answers that the verifier takes for each other under the first of them."""
    counts: dict[str, int] = {}
    for answer in answers:
        boxed = f"\\boxed{{{answer}}}"
        for first in counts:
            gold = MathsProblem(id="", question="", gold=first)
            if answer == first or _passes(await _scored(scorer, boxed, gold)):
                counts[first] += 1
                break
        else:
            counts[answer] = 1
    return counts


async def _completed(question: str, model: TaskModel, settings: MeasureSettings) -> float | None:
    """Return ROUGE-L of the hidden part of a question and the model's completion."""
    words = question.split()
    shown = round(settings.probe * len(words))
    if shown < 1 or len(words) - shown < FEWEST_HIDDEN:
        return None
    hidden = " ".join(words[shown:])
    asked = (
        "Below is the beginning of a text. Write how it goes on, word for word, up to its end, and "
        f"nothing else.\n\n{' '.join(words[:shown])}"
    )
    text, _ = await model.writer.write(
        [user(asked)], max_tokens=32 + 4 * (len(words) - shown), temperature=0.0, seed=0
    )
    written = " ".join(text.split()).removeprefix(" ".join(words[:shown])).split()
    # What is written behind the question is no part of it.
    return rouge_l(" ".join(written[: len(words) - shown]), hidden)


def final_answer(text: str) -> str:
    r"""Return the boxed answer of a text, or its last line.

    >>> final_answer(r"So it is \boxed{4}."), final_answer("It is\n4")
    ('4', '4')
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return last_boxed(text) or (lines[-1] if lines else "")


def _card(
    model: TaskModel, measures: Sequence[TaskMeasure], settings: MeasureSettings
) -> dict[str, Any]:
    card: dict[str, Any] = {"model": model.name, "temperature": settings.temperature}
    rates = [measure.rate for measure in measures if measure.scored]
    if settings.samples and rates:
        estimate = mean_over_tasks(rates)
        card |= {"samples": settings.samples, "band": [settings.min_rate, settings.max_rate]}
        card["pass_rate"] = {"mean": fmean(rates), "low": estimate.low, "high": estimate.high}
        if len(rates) < 2:
            card["pass_rate"] = {"mean": rates[0]}
        # Rates of 0 and 1 are apart, since such tasks teach nothing.
        counts = dict.fromkeys(("0", "to 0.25", "to 0.5", "to 0.75", "below 1", "1"), 0)
        names = list(counts)
        for rate in rates:
            counts[names[bisect_left((0, 0.25, 0.5, 0.75), rate) + (rate == 1)]] += 1
        card["pass_rates"] = counts
    probed = [measure.completed for measure in measures if measure.completed is not None]
    if probed:
        heart = sum(value >= settings.memorised for value in probed)
        share = wilson(heart, len(probed))
        card["known_by_heart"] = {
            "shown": settings.probe, "probed": len(probed), "share": share.value,
            "low": share.low, "high": share.high, "rouge_l": fmean(probed),
        }  # fmt: skip
    return card
