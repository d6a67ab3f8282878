"""The metrics of a step's updates: what left the loss, what has a signal, what moved."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..algorithms import RatioStatistics
from ..recipes.inputs import need
from .batch import Batch
from .experience import Experience


def dropped_shares(
    experience: Experience, kept: Tensor, ready: Batch, *, overlong_in_loss: bool
) -> dict[str, float]:
    """Return the shares of the sampled tokens that are not trained, by the first reason that
    applies: `dropped_filter`, `dropped_excluded`, `dropped_overlong`, `dropped_correction`.

    Args:
        experience: the experience of the step.
        kept: [N] bool, the rollouts that pass the recipe's filter of groups.
        ready: the batch whose mask and weights are those of the loss.
        overlong_in_loss: whether rollouts that a limit cut short are trained.
    """
    every, rollouts = experience.batch.mask.sum(1), experience.rollouts
    reasons = {"filter": ~kept, "excluded": experience.excluded}
    if not overlong_in_loss:
        reasons["overlong"] = experience.truncated
    remaining, shares = torch.ones_like(kept), dict[str, float]()
    for name, dropped in reasons.items():
        shares[name] = float(every[(remaining & dropped)[rollouts]].sum() / every.sum())
        remaining = remaining & ~dropped
    weights = ready.mask if ready.inputs.weights is None else ready.inputs.weights
    counted = (ready.mask * (weights > 0)).sum()
    shares["correction"] = float((every[remaining[rollouts]].sum() - counted) / every.sum())
    return {f"dropped_{name}": share for name, share in shares.items() if share}


def signal_shares(batch: Batch) -> dict[str, float]:
    """Return the share of trained tokens with an advantage (`signal`), and the share of these whose
    advantage is positive (`positive`).

    Empty where nothing is trained or has an advantage.
    """
    credited = need(batch.inputs.advantages, "advantages", "signal")[batch.mask.bool()]
    if not len(credited):
        return {}
    nonzero = credited[credited != 0]
    shares = {"signal": len(nonzero) / len(credited)}
    return shares | ({"positive": float((nonzero > 0).float().mean())} if len(nonzero) else {})


def gap_of(logp: Tensor, batch: Batch, version: int | None = None) -> tuple[float, ...]:
    """Return the summed distance in nats between learner and sampler and the number of tokens, and
    both once more for the tokens that the learner's own version has sampled.

    Args:
        logp: [B, T], the learner's log-probabilities before the step's first update.
        batch: the rows.
        version: the version of these weights; None where it is not known, and then no token counts
            as its own.
    """
    distance, fresh = (logp - batch.sampler_logp).abs() * batch.mask, torch.zeros_like(batch.mask)
    if batch.versions is not None and version is not None:
        fresh = batch.mask * (batch.versions == version)
    sums = (distance.sum(), batch.mask.sum(), (distance * fresh).sum(), fresh.sum())
    return tuple(float(number) for number in sums)


def mean_gap(gaps: Sequence[tuple[float, ...]]) -> dict[str, float]:
    """Return the mean distance per token as `old_sampler_gap`, and as `fresh_sampler_gap` that of
    the tokens which the learner's own version has sampled; each only where something was measured.

    >>> mean_gap([(1.0, 3.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)])
    {'old_sampler_gap': 0.25}
    >>> mean_gap([(1.0, 4.0, 0.5, 1.0)])
    {'old_sampler_gap': 0.25, 'fresh_sampler_gap': 0.5}
    """
    means = dict[str, float]()
    # Each tuple is that of `gap_of`: a sum of distances, then the number of tokens, twice.
    for place, name in ((0, "old_sampler_gap"), (2, "fresh_sampler_gap")):
        if tokens := sum(sums[place + 1] for sums in gaps):
            means[name] = sum(sums[place] for sums in gaps) / tokens
    return means


def movement_of(moved: RatioStatistics, batch: Batch) -> tuple[float, ...]:
    """Return the ratio and clip statistics of a pass as numbers, and the tokens they count."""
    return (*(float(number) for number in moved), float(batch.mask.sum()))


def movement_numbers(moves: Sequence[tuple[float, ...]]) -> dict[str, float]:
    """Return ratio and clip statistics of a step: means over the tokens of all passes, and the
    extremes, so that how rows are split into passes changes nothing.

    >>> passes = [(1.0, 0.5, 2.0, 0.0, 0.0, 0.0, 1.0), (2.0, 1.5, 4.0, 0.0, 0.0, 0.0, 3.0)]
    >>> found = movement_numbers(passes)
    >>> found["ratio_mean"], found["ratio_min"], found["ratio_max"]
    (1.75, 0.5, 4.0)
    """
    # A pass without trained tokens has placeholders for its extremes, and does not count.
    counted = [numbers for numbers in moves if numbers[-1]]
    if not counted:
        return {}
    *columns, counts = zip(*counted, strict=True)
    of = dict(zip(RatioStatistics._fields, columns, strict=True))
    numbers = {
        name: sum(value * count for value, count in zip(of[name], counts, strict=True))
        / sum(counts)
        for name in ("ratio_mean", "clip_low", "clip_high", "kl")
    }
    return numbers | {"ratio_min": min(of["ratio_min"]), "ratio_max": max(of["ratio_max"])}
