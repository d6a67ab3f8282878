"""Surrogates that restrain tokens which drain entropy or raise variance: Clip-Cov, KL-Cov,
VESPO.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..aggregation import Agg, Sum, aggregate
from ..masked import blank, masked_mean
from .ratio import MAX_LOG_RATIO, clip, log_ratio, policy_ratio


def covariance_mask(
    logp: Tensor, advantages: Tensor, mask: Tensor, *, share: float = 2e-4
) -> Tensor:
    """The tokens that drain entropy fastest: the top `share` by `(A - mean A)(logp - mean logp)`.

    Args:
        logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        share: the share of the trained tokens to mark; at least one is marked.

    Returns:
        [B, T] bool, True for the marked tokens. Clip-Cov drops some of them, KL-Cov penalises them.

    Source: The entropy mechanism of RL for reasoning models, arXiv 2505.22617, the covariance of
    each token.

    >>> logp, advantages = torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> covariance_mask(logp, advantages, torch.ones(1, 3))
    tensor([[ True, False, False]])
    """
    trained = mask.bool()
    count = max(1, int(share * int(trained.sum())))
    marked = torch.zeros_like(trained).flatten()
    ranked = torch.where(trained, _covariance(logp, advantages, mask), -torch.inf).flatten()
    marked[ranked.argsort(descending=True, stable=True)[:count]] = True
    return marked.view_as(trained) & trained


def clip_cov_mask(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    share: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Clip-Cov: leave out a few tokens, drawn where the covariance is high but not extreme.

    Of the trained tokens with `low < (A - mean A)(logp - mean logp) < high` that PPO does not clip
    already, `max(1, int(share * n))` are drawn, or all where there are fewer.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        share: the share of the n trained tokens to leave out.
        low: a token is drawn only if its covariance is above this.
        high: a token is drawn only if its covariance is below this.
        eps_low: the `eps_low` of the clip that goes with this mask.
        eps_high: the `eps_high` of the clip that goes with this mask.
        generator: the source of randomness; torch's global generator when not given.

    Returns:
        [B, T] bool, False for what is left out. The method multiplies `ppo_clip_loss` by it
        (`weights=`), so the tokens stay in the denominator.

    Source: The entropy mechanism of RL for reasoning models, arXiv 2505.22617, its Clip-Cov; verl
    "clip_cov".

    Covariances are 2/3 * 2, 1/3 * 1 and 1/3 * 1: the first alone is above 1.

    >>> logp, advantages = torch.tensor([[-1.0, -4.0, -4.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> clip_cov_mask(logp, logp, advantages, torch.ones(1, 3))
    tensor([[False,  True,  True]])
    """
    trained, token_advantages = mask.bool(), blank(advantages.detach(), mask)
    ratio = policy_ratio(logp.detach(), old_logp, mask)
    clipped = -token_advantages * clip(ratio, eps_low, eps_high) > -token_advantages * ratio
    covariance = _covariance(logp, advantages, mask)
    possible = (trained & ~clipped & (covariance > low) & (covariance < high)).flatten()
    candidates = possible.nonzero().squeeze(1)
    count = max(1, int(share * int(trained.sum())))
    # Drawn on the CPU, where the trainer's generator lives, whatever device the tensors are on.
    order = torch.randperm(len(candidates), generator=generator).to(candidates.device)
    drawn = candidates[order[:count]]
    kept = trained.flatten().clone()
    kept[drawn] = False
    return kept.view_as(trained)


def kl_cov_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    coefficient: float = 1.0,
    share: float = 2e-4,
    marked: Tensor | None = None,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """KL-Cov: no clip, but a pull back on the few tokens of greatest covariance:
    `-A rho + c |log rho|`.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        coefficient: c, on marked tokens only.
        share: see `covariance_mask`.
        marked: [B, T] bool, from `covariance_mask` over the whole batch; without it, the tokens are
            marked among these rows alone.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: The entropy mechanism of RL for reasoning models, arXiv 2505.22617, its KL-Cov.

    >>> logp, old = torch.tensor([[2.0]]).log(), torch.zeros(1, 1)
    >>> kl_cov_loss(logp, old, torch.tensor([1.0]), torch.ones(1, 1))  # -2 + ln 2
    (tensor(-1.3069), tensor(1.))
    """
    if marked is None:
        marked = covariance_mask(logp, advantages, mask, share=share)
    difference = log_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    losses = -blank(advantages.detach(), mask) * difference.exp()
    pulled = losses + coefficient * difference.abs()
    return aggregate(torch.where(marked.bool(), pulled, losses), mask, agg, weights=weights)


def vespo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    k_pos: float = 2.0,
    lam_pos: float = 3.0,
    k_neg: float = 3.0,
    lam_neg: float = 2.0,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """VESPO: the score function, each sequence weighted by a smooth bump of the sequence ratio.

    `l = -sg[W^k e^(lam (1 - W))] A log pi`, W the product of the row's token ratios; 1 at W = 1,
    and greatest at W = k / lam. k and lam go by the sign of the advantage.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        k_pos: the exponent where A >= 0.
        lam_pos: how fast the bump falls where A >= 0.
        k_neg: the exponent where A < 0.
        lam_neg: how fast the bump falls where A < 0.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: nats; clamps log W.

    Source: arXiv 2602.10693, section 3.4 (k is its c1, lam its c2); TRL `loss_type="vespo"`.

    >>> logp = torch.tensor([[2.0]]).log().requires_grad_()
    >>> old, one = torch.zeros(1, 1), torch.ones(1)
    >>> loss = vespo_loss(logp, old, one, torch.ones(1, 1))
    >>> loss[0].backward(); logp.grad  # -2^2 e^-3
    tensor([[-0.1991]])
    """
    whole = log_ratio(logp.detach(), old_logp, mask, max_log_ratio=None).sum(1, keepdim=True)
    if max_log_ratio is not None:
        whole = whole.clamp(-max_log_ratio, max_log_ratio)
    token_advantages = blank(advantages.detach(), mask)
    up = (token_advantages >= 0).to(
        token_advantages.dtype
    )  # `where` of two numbers would be float32
    k, lam = k_neg + (k_pos - k_neg) * up, lam_neg + (lam_pos - lam_neg) * up
    bump = (k * whole + lam * (1 - whole.exp())).exp()
    losses = -bump * token_advantages * blank(logp, mask)
    return aggregate(losses, mask, agg, weights=weights)


def _covariance(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """`(A - mean A)(logp - mean logp)` of each trained token, [B, T]."""
    token_advantages, values = blank(advantages.detach(), mask), blank(logp.detach(), mask)
    return (token_advantages - masked_mean(token_advantages, mask)) * (
        values - masked_mean(values, mask)
    )
