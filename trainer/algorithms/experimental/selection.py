"""Choices of prompts, rollouts and tokens known from an abstract or from memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..masked import blank
from ..surrogates.ratio import clip, policy_ratio


def d3s_samples_mask_as_read(advantages: Tensor, *, keep: int) -> Tensor:
    """D3S, samples: the subset of `keep` rollouts whose advantages vary most: from both ends of the
    sorted list.

    Args:
        advantages: [N].
        keep: rollouts.

    Returns:
        [N] bool.

    Source: as we read the abstract; that the extremes maximise the variance is exact.

    >>> d3s_samples_mask_as_read(torch.tensor([-2.0, -1.0, 0.0, 1.0, 3.0]), keep=2)
    tensor([ True, False, False, False,  True])
    """
    order = advantages.argsort(stable=True)
    size, keep = len(order), min(keep, len(order))
    # Each choice takes `low` rollouts from the lower end and the others from the upper end.
    choices = [torch.cat([order[:low], order[size - keep + low :]]) for low in range(keep + 1)]
    spreads = [
        float(advantages[choice].double().var(correction=0)) if keep else 0.0 for choice in choices
    ]
    kept = torch.zeros(size, dtype=torch.bool, device=advantages.device)
    kept[choices[spreads.index(max(spreads))]] = True
    return kept


def d3s_tokens_mask_as_read(
    advantages: Tensor, entropy: Tensor, mask: Tensor, *, share: float
) -> Tensor:
    """D3S, tokens: the `ceil(share * n)` tokens with the greatest `|A| H`; ties go to the earlier
    token.

    Args:
        advantages: [B, T] or [B].
        entropy: [B, T], nats.
        mask: [B, T] in {0, 1}.
        share: the share of the trained tokens; the method relaxes it over training.

    Returns:
        [B, T] bool.

    Source: as we read the abstract.

    >>> a, h = torch.tensor([[1.0, -2.0, 1.0]]), torch.tensor([[0.5, 0.5, 0.1]])
    >>> d3s_tokens_mask_as_read(a, h, torch.ones(1, 3), share=0.34)
    tensor([[ True,  True, False]])
    """
    trained = mask.bool()
    score = torch.where(trained, (blank(advantages, mask) * blank(entropy, mask)).abs(), -torch.inf)
    count = math.ceil(share * int(trained.sum()))
    kept = torch.zeros_like(trained).flatten()
    kept[score.flatten().argsort(descending=True, stable=True)[:count]] = True
    return kept.view_as(trained) & trained


def pcl_mask_as_read(values: Tensor, *, keep: int) -> Tensor:
    """PCL: of a large pool, the `keep` prompts whose predicted success is nearest to 1/2.

    Args:
        values: [N], of a value model, in [0, 1].
        keep: prompts; all, when the pool is smaller.

    Source: as we read the abstract.

    >>> pcl_mask_as_read(torch.tensor([0.1, 0.45, 0.9, 0.6]), keep=2)
    tensor([False,  True, False,  True])
    """
    kept = torch.zeros_like(values, dtype=torch.bool)
    kept[(values - 0.5).abs().argsort(stable=True)[:keep]] = True
    return kept


def guide_weights_as_read(
    logp: Tensor, hinted_old_logp: Tensor, mask: Tensor, *, eps_low: float, eps_high: float
) -> Tensor:
    """Guide: rollouts sampled with a hint but trained without:
    `clip(pi(y | x) / old(y | x, hint))`, detached.

    A prompt whose rollouts all fail is sampled again with a hint; one that still fails is dropped.

    Args:
        logp: [B, T], of the prompt without the hint.
        hinted_old_logp: [B, T], of the sampling policy, with it.
        mask: [B, T] in {0, 1}.
        eps_low: as in PPO; 1 means no lower bound.
        eps_high: as in PPO.

    Source: as we read the abstract.

    >>> pi, old = torch.tensor([[0.1]]).log(), torch.tensor([[0.4]]).log()
    >>> guide_weights_as_read(pi, old, torch.ones(1, 1), eps_low=1.0, eps_high=0.2)
    tensor([[0.2500]])
    """
    return blank(clip(policy_ratio(logp.detach(), hinted_old_logp, mask), eps_low, eps_high), mask)


def seele_hint_share_as_read(intercept: float, slope: float) -> float:
    """SEELE: the share of a solution to give away so that half the rollouts succeed: `-a / b` of
    `sigmoid(a + b h)`.

    Args:
        intercept: a of the fit.
        slope: b; when hints do not help (b <= 0), everything is given away.

    Source: as we read the abstract.

    >>> seele_hint_share_as_read(-2.0, 4.0)
    0.5
    """
    return 1.0 if slope <= 0 else min(max(-intercept / slope, 0.0), 1.0)


def interruption_mask_as_read(mask: Tensor, forced: Tensor) -> Tensor:
    """ScaleRL's interruptions: tokens the system wrote to end the thinking ("time is up ...") are
    not trained.

    Args:
        mask: [B, T] in {0, 1}.
        forced: [B, T] bool, tokens that the system wrote.

    Returns:
        [B, T] bool.

    Source: arXiv 2510.13786, from memory (the paper interrupts between 10k and 12k tokens).

    >>> interruption_mask_as_read(torch.tensor([[1, 1, 1]]), torch.tensor([[False, True, False]]))
    tensor([[ True, False,  True]])
    """
    return mask.bool() & ~forced.bool()


def staleness_gate_as_read(version: int, *, eta: int, batch: int) -> int:
    """AReaL: how many rollouts may have been issued in all when the trainer stands at `version`:
    `(version + eta + 1) batch`.

    >>> staleness_gate_as_read(3, eta=2, batch=8)
    48
    """
    return (version + eta + 1) * batch
