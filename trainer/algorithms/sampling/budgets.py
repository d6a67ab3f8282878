"""Allocation of rollouts to prompts, and the choice of the next prompts."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor


def dars_extra_rollouts(
    accuracy: Tensor,
    *,
    rollouts: int = 8,
    max_rollouts: int = 32,
    schedule: Literal["equal_treatment", "hardness_weighted"] = "equal_treatment",
    spread: Literal["variance", "std"] = "variance",
) -> Tensor:
    """DARS: more rollouts for hard prompts, whose groups weigh little in GRPO.

    With u the accuracy (0 counts as 0.5 / N), `S = 2 u (1 - u)` and its peak `P = 1 / 2`
    ("variance"), or `S = 2 sqrt(u (1 - u))` and `P = 1` ("std"): equal treatment
    `ceil((P N - N S) / S)`, hardness weighted `ceil((2 (1 - u) P N - N S) / S)`, none for
    u >= 1/2, at most `max_rollouts - N`.

    Args:
        accuracy: [P], share right among the first N rollouts of each prompt.
        rollouts: N, already made.
        max_rollouts: the most rollouts per prompt, the first N included.
        schedule: which formula.
        spread: what the weight S of a group in GRPO's gradient is measured by.

    Returns:
        [P] int.

    Source: arXiv 2508.13755; the authors' ray_dars_trainer.py, schedule_ET and schedule_HW.

    >>> u = torch.tensor([0.0, 0.125, 0.25, 0.5])
    >>> dars_extra_rollouts(u)
    tensor([24, 11,  3,  0])
    >>> dars_extra_rollouts(u, schedule="hardness_weighted")
    tensor([24, 24,  8,  0])
    >>> dars_extra_rollouts(u, spread="std")
    tensor([9, 5, 2, 0])
    """
    u = torch.where(accuracy <= 0, 0.5 / rollouts, accuracy.double())
    variance = u * (1 - u)
    weight = 2 * variance if spread == "variance" else 2 * variance.sqrt()
    peak = rollouts * (0.5 if spread == "variance" else 1.0)
    target = peak if schedule == "equal_treatment" else 2 * (1 - u) * peak
    extra = (target - rollouts * weight) / torch.where(weight > 0, weight, 1.0)
    # Rounding may put the quotient slightly above an integer, and `ceil` would add a rollout.
    counted = torch.ceil(extra - 1e-9).clamp(min=0, max=max_rollouts - rollouts)
    return torch.where(u >= 0.5, 0, counted).long()


def prioritised_sample(
    weights: Tensor, count: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Draw `count` prompts without replacement, with probabilities proportional to `weights`.

    Args:
        weights: [N], not negative; of `single_stream_spo_sampling_weights`, for instance.
        count: at most the number of positive weights.
        generator: source of randomness.

    Returns:
        [count] int, indices.

    Source: single-stream SPO's sampler, arXiv 2509.13232.

    >>> prioritised_sample(torch.tensor([0.0, 1.0, 0.0]), 1)
    tensor([1])

    Raises:
        ValueError: fewer prompts have a positive weight than are asked for.
    """
    possible = int((weights > 0).sum())
    if count > possible:
        raise ValueError(f"{count} prompts asked for, but only {possible} have a positive weight")
    return torch.multinomial(weights, count, replacement=False, generator=generator)


def aepo_temperature(
    entropy: float, *, target: float, high: float = 1.2, low: float = 0.8
) -> float:
    """AEPO's controller: sample hotter when the batch entropy is at or below target, else cooler.

    `high if H <= target else low`, scalars. Right answers drawn at this temperature join the batch
    with advantage 1.

    Args:
        entropy: the mean entropy of the batch, in nats per token.
        target: nats per token.
        high: temperature that raises entropy.
        low: temperature that lowers it.

    Source: arbitrary entropy policy optimization, the authors' code.

    >>> aepo_temperature(0.3, target=0.5)
    1.2
    """
    return high if entropy <= target else low


def adaptive_pool_size(target: int, valid_ratio: float, *, max_groups: int) -> int:
    """Dynamic sampling's next pool: `ceil(target / valid_ratio)`, at most `max_groups`.

    Args:
        target: usable groups wanted.
        valid_ratio: running share of generated groups that were usable.
        max_groups: the largest pool.

    Source: CodeV-R1's adaptive DAPO.

    >>> adaptive_pool_size(128, 0.4, max_groups=1000)
    320
    """
    # Rounding may put the quotient slightly above an integer, and `ceil` would add a group.
    return (
        max_groups if valid_ratio <= 0 else min(max_groups, math.ceil(target / valid_ratio - 1e-9))
    )
