"""Surrogates whose coefficient is detached: every token keeps a gradient `c A`, however far the
ratio has moved.

All are `l = -sg[c] A log pi`; they differ in c. Their values contain log pi and mean little:
compare gradients.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..aggregation import Agg, Sum, aggregate
from ..masked import blank
from .ppo import ppo_clip_loss
from .ratio import MAX_LOG_RATIO, clip, log_ratio, policy_ratio


def cispo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 1.0,
    eps_high: float = 0.28,
    bounds: Literal["relative", "absolute"] = "relative",
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """CISPO: clip the importance weight, not the update: `l = -sg[clip(rho, low, high)] A log pi`.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        eps_low: see `bounds`; relative 1 or more means no lower bound, as in the paper.
        eps_high: see `bounds`.
        bounds: "relative": the ratio is held in [1 - eps_low, 1 + eps_high] (verl, slime, SkyRL;
            open-instruct above only). "absolute": in [eps_low, eps_high]; TRL's `epsilon_high` = 5
            is eps_low 0, eps_high 5 here.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: MiniMax-M1, arXiv 2506.13585, equations 4 and 5.

    >>> logp = torch.tensor([[0.6, 0.1]]).log().requires_grad_()
    >>> old, advantages = torch.tensor([[0.4, 0.4]]).log(), torch.tensor([[1.0, -1.0]])
    >>> total, weight = cispo_loss(logp, old, advantages, torch.ones(1, 2))
    >>> (total / weight).backward(); logp.grad  # coefficients 1.28 and 0.25
    tensor([[-0.6400,  0.1250]])

    Raises:
        ValueError: an unknown `bounds`, or bounds in the wrong order.
    """
    ratio = policy_ratio(logp.detach(), old_logp, mask, max_log_ratio=max_log_ratio)
    if bounds == "relative":
        low, high = 1 - eps_low, 1 + eps_high
    elif bounds == "absolute":
        low, high = eps_low, eps_high
    else:
        raise ValueError(f"bounds is 'relative' or 'absolute', got {bounds!r}")
    if not torch.as_tensor(low <= high).all():  # bounds of each token are tensors
        raise ValueError(f"the ratio cannot be held in [{low}, {high}] ({bounds} bounds)")
    return _weighted_score(logp, ratio.clamp(low, high), advantages, mask, weights, agg)


def minpro_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 1.0,
    eps_high: float = 4.0,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """MinPRO: the ratio of a token times the least ratio in the prefix, as a cheap bound on the
    prefix's product.

    `l = -sg[clip(m_t rho_t, 1 - eps_low, 1 + eps_high)] A log pi`, `m_t = min_{j < t} rho_j` over
    trained tokens, 1 for the first.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1; 1 means no lower bound.
        eps_high: how far above 1. [0, 5] is a wide
            choice.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: the objective as a survey quotes it; the value of the empty minimum is ours.

    >>> rho, zero = torch.tensor([[0.5, 1.5, 1.0]]).log(), torch.zeros(1, 3)
    >>> logp = rho.clone().requires_grad_()
    >>> minpro_loss(logp, zero, torch.tensor([-1.0]), torch.ones(1, 3))[0].backward()
    >>> logp.grad  # 1 * 0.5, 0.5 * 1.5, 0.5 * 1
    tensor([[0.5000, 0.7500, 0.5000]])
    """
    difference = log_ratio(logp.detach(), old_logp, mask, max_log_ratio=max_log_ratio)
    coefficient = clip((difference + _least_before(difference, mask)).exp(), eps_low, eps_high)
    return _weighted_score(logp, coefficient, advantages, mask, weights, agg)


def topr_loss(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    ratio: Literal["token", "sequence"] = "token",
    cap: float = 1.0,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """TOPR: reinforce successes fully, failures only as far as still likely under the policy.

    `l = -A log pi` for rows with r > 0, `-sg[clip(rho, 0, cap)] A log pi` for r <= 0.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        rewards: [B].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        ratio: "token" (ROLL) or "sequence", the product over the row (the paper).
        cap: the greatest weight of a failure.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: arXiv 2503.14286.

    >>> pi, old = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.4]]).log()
    >>> minus = torch.tensor([-1.0])
    >>> total, weight = topr_loss(pi, old, minus, minus, torch.ones(1, 2))
    >>> total / weight  # (1 * ln 0.6 + 0.25 * ln 0.1) / 2
    tensor(-0.5432)

    Raises:
        ValueError: an unknown `ratio`.
    """
    if ratio not in ("token", "sequence"):
        raise ValueError(f"ratio is 'token' or 'sequence', got {ratio!r}")
    difference = log_ratio(logp.detach(), old_logp, mask, max_log_ratio=None)
    if ratio == "sequence":
        difference = difference.sum(1, keepdim=True).expand_as(difference)
    if max_log_ratio is not None:
        difference = difference.clamp(-max_log_ratio, max_log_ratio)
    failed = (rewards <= 0).unsqueeze(1)
    coefficient = torch.where(failed, difference.exp().clamp(max=cap), 1.0)
    return _weighted_score(logp, coefficient, advantages, mask, weights, agg)


def minirl_loss(
    logp: Tensor,
    old_logp: Tensor,
    sampler_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """MiniRL: exact weights against the sampler, with PPO's clip against old deciding which tokens
    still count.

    `l = -M_t sg[pi / mu] A log pi`, M_t = 0 where A > 0 and pi / old > 1 + eps_high, or A < 0 and
    pi / old < 1 - eps_low. The dropped tokens stay in the denominator.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        sampler_logp: [B, T], of the engine (mu).
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1.
        eps_high: how far above 1.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: Stabilizing RL with LLMs, through its implementation proposed to verl.

    >>> logp = torch.tensor([[1.3, 1.1]]).log().requires_grad_()
    >>> zero, advantage = torch.zeros(1, 2), torch.tensor([1.0])
    >>> minirl_loss(logp, zero, zero, advantage, torch.ones(1, 2))[0].backward(); logp.grad
    tensor([[-0.0000, -1.1000]])
    """
    ratio = policy_ratio(logp.detach(), old_logp, mask, max_log_ratio=max_log_ratio)
    sign = blank(advantages.detach(), mask)
    out = ((sign > 0) & (ratio > 1 + eps_high)) | ((sign < 0) & (ratio < 1 - eps_low))
    exact = policy_ratio(logp.detach(), sampler_logp, mask, max_log_ratio=max_log_ratio)
    return _weighted_score(logp, torch.where(out, 0.0, exact), advantages, mask, weights, agg)


def decoupled_ppo_loss(
    logp: Tensor,
    old_logp: Tensor,
    sampler_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    cap: float = torch.inf,
    outside: Literal["truncate", "mask"] = "truncate",
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """Decoupled PPO: clip against a recent policy, correct for the sampling policy.

    `l = sg[old / mu] max(-A rho, -A clip(rho))`, `rho = pi / old`.

    Args:
        logp: [B, T].
        old_logp: [B, T], of the proximal policy.
        sampler_logp: [B, T], of the engine (mu), possibly some versions behind.
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1.
        eps_high: how far above 1.
        cap: the greatest weight old / mu.
        outside: weights above the cap are truncated to it, or their tokens masked (and stay in the
            denominator).
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: AReaL, arXiv 2505.24298, the decoupled PPO objective.

    >>> pi, mu = torch.tensor([[0.6]]).log(), torch.tensor([[0.3]]).log()
    >>> decoupled_ppo_loss(pi, pi, mu, torch.tensor([1.0]), torch.ones(1, 1))
    (tensor(-2.0000), tensor(1.))
    """
    exact = policy_ratio(old_logp.detach(), sampler_logp, mask, max_log_ratio=max_log_ratio)
    weights = (
        exact.clamp(max=cap) if outside == "truncate" else torch.where(exact <= cap, exact, 0.0)
    )
    return ppo_clip_loss(
        logp,
        old_logp,
        advantages,
        mask,
        eps_low=eps_low,
        eps_high=eps_high,
        weights=weights,
        agg=agg,
        max_log_ratio=max_log_ratio,
    )


def _weighted_score(
    logp: Tensor,
    coefficient: Tensor,
    advantages: Tensor,
    mask: Tensor,
    weights: Tensor | None,
    agg: Agg,
) -> Sum:
    losses = -coefficient.detach() * blank(advantages.detach(), mask) * blank(logp, mask)
    return aggregate(losses, mask, agg, weights=weights)


def _least_before(difference: Tensor, mask: Tensor) -> Tensor:
    """The least log ratio among the trained tokens before each slot; 0 before the first."""
    if not difference.shape[1]:
        return difference
    seen = torch.where(mask.bool(), difference, torch.inf).cummin(1).values
    before = torch.cat([torch.full_like(seen[:, :1], torch.inf), seen[:, :-1]], dim=1)
    # Infinite still means that no trained token came before.
    return torch.where(torch.isinf(before), 0.0, before)


def aipo_loss(
    logp: Tensor,
    sampler_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    cap: float,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """AIPO (LlamaRL): importance weights with an upper bound against the sampler:
    `-sg[min(pi / mu, cap)] A log pi`.

    Args:
        logp: [B, T].
        sampler_logp: [B, T], of the engine (mu).
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        cap: the greatest weight.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: LlamaRL, arXiv 2505.24034, whose objective weighs the score function by
    `min(pi / mu, rho)`; that the weight takes no gradient is the form of CISPO.

    >>> logp = torch.tensor([[0.6]]).log().requires_grad_()
    >>> mu, one = torch.tensor([[0.2]]).log(), torch.ones(1)
    >>> aipo_loss(logp, mu, one, torch.ones(1, 1), cap=2.0)[0].backward(); logp.grad
    tensor([[-2.]])
    """
    ratio = policy_ratio(logp.detach(), sampler_logp, mask, max_log_ratio=max_log_ratio)
    losses = -ratio.clamp(max=cap) * blank(advantages.detach(), mask) * blank(logp, mask)
    return aggregate(losses, mask, agg)
