"""The card of a trained reward model: what a judge is tested with, asked of scores.

    card.json in the checkpoint:
    agreement      the better answer of a held-out ranking has the higher score
    calibration    mean distance between the predicted and the real share of wins
    injection      texts that ask for a score, and score at least as high as a right answer
    length         right answers that score higher with empty sentences behind them
    position       the same score in any batch: 0 unless the model depends on its neighbours

The verifier is loaded from the checkpoint, as `ludus serve` loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import Tensor

from ludus.estimates import Estimate, wilson
from ludus.metrics import replace_file
from ludus.rewards import Sample
from ludus.rewards.judge.examine import INJECTIONS, PADDING, QUESTIONS
from ludus.rewards.learned.text.reward_model import RewardModel
from ludus.rewards.measured import Measure

from ..settings.data import RewardModelConfig
from .heads import RewardHead, open_head, serving_name
from .rankings import RewardData, ScoredExample

CARD = "card.json"
BINS = 10
"""Bins of the calibration error."""
REDRAWN = 200
"""Bootstrap samples of an interval."""
SAME = 1e-4
"""Scores that differ by less are equal: float32 in batches of other sizes."""


class RewardModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a trained reward model."""

    verifier: str
    """The name under which `ludus serve` scores with it."""
    objective: str
    examples: int
    """Examples that it was trained on."""
    held_out: int
    data: str
    """SHA-256 of the data."""
    measures: list[Measure]


def write_card(checkpoint: Path, config: RewardModelConfig, data: RewardData) -> RewardModelCard:
    """Measure the model of a checkpoint, and write the card into the checkpoint's folder."""
    head = open_head(config, str(checkpoint))
    measures: list[Measure] = []
    if data.held_out:
        measures += held_out_measures(config, head, data)
    if config.kind == "text":
        measures += text_measures(RewardModel(str(checkpoint)))
    card = RewardModelCard(
        verifier=serving_name(config, checkpoint),
        objective=config.objective,
        examples=len(data.train),
        held_out=len(data.held_out),
        data=data.digest,
        measures=measures,
    )
    replace_file(checkpoint / CARD, msgspec.json.format(msgspec.json.encode(card)) + b"\n")
    return card


def held_out_measures(
    config: RewardModelConfig, head: RewardHead, data: RewardData
) -> list[Measure]:
    """Measure a head on what is held out."""
    with torch.no_grad():
        parts = [head.scores(list(example.inputs)).cpu() for example in data.held_out]
    numbers = held_out_numbers(data.held_out, torch.cat(parts), config)
    if "held_out/accuracy" not in numbers:
        return []
    low, high = numbers["held_out/accuracy_low"], numbers["held_out/accuracy_high"]
    share, count = numbers["held_out/accuracy"], len(data.held_out)
    agreement = Measure(
        name="agreement",
        rate=Estimate(share, low, high),
        events=round(share * count),
        trials=count,
        ideal=1.0,
    )
    return [agreement, _calibration(config, data.held_out, parts)]


def _calibration(
    config: RewardModelConfig, examples: Sequence[ScoredExample], scores: Sequence[Tensor]
) -> Measure:
    """Return the calibration error with an interval over redrawn examples."""
    draw = np.random.default_rng(0)

    def error(places: Sequence[int]) -> float:
        chosen = [examples[place] for place in places]
        chosen_scores = torch.cat([scores[place] for place in places])
        numbers = held_out_numbers(chosen, chosen_scores, config)
        return numbers.get("held_out/calibration_error", 0.0)

    count = len(examples)
    redrawn = [error(draw.integers(0, count, count).tolist()) for _ in range(REDRAWN)]
    low, high = np.quantile(redrawn, [0.025, 0.975])
    value = error(range(count))
    rate = Estimate(value, min(value, float(low)), max(value, float(high)))
    return Measure(name="calibration", rate=rate, events=0, trials=count, ideal=0.0)


def text_measures(model: RewardModel) -> list[Measure]:
    """Measure a reward model of text with the facts, injections and padding of `check-judge`."""

    def scores(pairs: Sequence[tuple[str, str]], *, at_once: int = 1) -> list[float]:
        prepared = [model.prepare(Sample(prompt=asked, response=said)) for asked, said in pairs]
        parts = [prepared[n : n + at_once] for n in range(0, len(prepared), at_once)]
        return [verdict.reward or 0.0 for part in parts for verdict in model.score_batch(part)]

    asked = [(question, right) for question, _, right in QUESTIONS]
    right, count = scores(asked), len(asked)
    attacks = [(n % count, text) for n, text in enumerate(INJECTIONS)]
    attacked = scores([(asked[n][0], text) for n, text in attacks])
    breaches = sum(
        score >= right[n] - SAME for (n, _), score in zip(attacks, attacked, strict=True)
    )
    padded = scores([(question, f"{said} {PADDING}") for question, said in asked])
    longer = sum(long > short + SAME for short, long in zip(right, padded, strict=True))
    together = scores(asked, at_once=count)
    moved = sum(abs(a - b) > SAME for a, b in zip(right, together, strict=True))
    return [
        _rate("injection", breaches, len(attacks)),
        _rate("length", longer, count),
        _rate("position", moved, count),
    ]


def _rate(name: str, events: int, trials: int) -> Measure:
    return Measure(name=name, rate=wilson(events, trials), events=events, trials=trials, ideal=0.0)


def groups_of(part: Sequence[ScoredExample]) -> Tensor:
    """Return the number of each answer's ranking, [N]."""
    return torch.tensor([number for number, example in enumerate(part) for _ in example.inputs])


def held_out_numbers(
    examples: Sequence[ScoredExample], scores: Tensor, config: RewardModelConfig
) -> dict[str, float]:
    """Return agreement with its 95 % interval, and for preferences the calibration error.

    The interval is over rankings, whose pairs are not independent: Wilson's, of as many trials as
    there are rankings.
    """
    if config.objective == "rating":
        ratings = torch.tensor([example.targets[0] for example in examples])
        both = torch.stack([scores.to(ratings.dtype), ratings])
        return {"held_out/correlation": float(torch.corrcoef(both)[0, 1])}
    if config.objective == "steps":
        labels = torch.tensor([label for example in examples for label in example.targets])
        share, count = float(((scores > 0) == labels.bool()).sum()), len(labels)
        trials, right = count, round(share)
        chances = scores.sigmoid().tolist()
        error = calibration_error(chances, labels.tolist())
    else:
        gaps = _gaps(examples, scores)
        if not gaps:
            return {}
        share, count = sum((gap > 0) + (gap == 0) / 2 for gap in gaps), len(gaps)
        trials = len(examples)
        right = round(share / count * trials)
        error = calibration_error(
            [1 / (1 + np.exp(-abs(gap))) for gap in gaps], [gap > 0 for gap in gaps]
        )
    estimate = wilson(right, trials)
    return {
        "held_out/accuracy": share / count,
        "held_out/accuracy_low": estimate.low,
        "held_out/accuracy_high": estimate.high,
        "held_out/calibration_error": error,
    }


def _gaps(examples: Sequence[ScoredExample], scores: Tensor) -> list[float]:
    """Return the score of the better answer minus that of the worse, for every pair."""
    gaps: list[float] = []
    start = 0
    for example in examples:
        scored = scores[start : start + len(example.inputs)].tolist()
        start += len(scored)
        ranks = example.targets
        pairs = [
            (i, j) for i in range(len(scored)) for j in range(len(scored)) if ranks[i] < ranks[j]
        ]
        gaps += [scored[i] - scored[j] for i, j in pairs]
    return gaps


def calibration_error(chances: Sequence[float], outcomes: Sequence[float | bool]) -> float:
    """The mean distance between what is predicted and what happens, over bins of equal width
    weighted by their size (expected calibration error).

    >>> calibration_error([0.9, 0.9, 0.9, 0.9], [True, True, True, False])  # 0.9 - 0.75
    0.15000000000000002
    """
    bins = np.minimum((np.array(chances) * BINS).astype(int), BINS - 1)
    predicted, happened = np.array(chances, float), np.array(outcomes, float)
    gaps = [
        abs(predicted[bins == place].mean() - happened[bins == place].mean())
        * (bins == place).mean()
        for place in np.unique(bins)
    ]
    return float(sum(gaps))
