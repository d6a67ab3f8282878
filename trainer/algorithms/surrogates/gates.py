"""Surrogates that fade out or pull back a token's gradient instead of clipping: SAPO, Lp-Reg and
Kimi.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..aggregation import Agg, Sum, aggregate
from ..kl import kl_k3
from ..masked import blank
from .ratio import MAX_LOG_RATIO, clip, log_ratio, policy_ratio


def sapo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
    weights: Tensor | None = None,
    agg: Agg = "sequence_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """SAPO (soft gate): the ratio through a sigmoid, so that the gradient fades smoothly on both
    sides of 1.

    `l = -A f(rho)`, `f = 4 / tau sigmoid(tau (rho - 1))`; gradient weight `4 q (1 - q) rho`, 1 at
    rho = 1.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        tau_positive: sharpness where A > 0.
        tau_negative: sharpness elsewhere; greater, so that failures fade sooner.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: Soft adaptive policy optimization, arXiv 2511.20347. Not Swarm SAPO, which shares the
    name.

    >>> pi, old = torch.tensor([[1.5]]).log(), torch.zeros(1, 1)
    >>> sapo_loss(pi, old, torch.tensor([1.0]), torch.ones(1, 1))
    (tensor(-2.4898), tensor(1.))
    """
    ratio = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    token_advantages = blank(advantages.detach(), mask)
    tau = torch.full_like(token_advantages, tau_negative).masked_fill(
        token_advantages > 0, tau_positive
    )
    return aggregate(
        -token_advantages * torch.sigmoid(tau * (ratio - 1)) * 4 / tau, mask, agg, weights=weights
    )


def lp_reg_loss(
    logp: Tensor,
    old_logp: Tensor,
    proxy_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 1.0,
    eps_high: float = 9.0,
    beta: float = 1.0,
    selected: Tensor | None = None,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """Lp-Reg: tokens of low probability that a filtered copy of the policy (the proxy) would still
    sample are protected from losing their probability altogether.

    Selected tokens whose `logp < proxy_logp`: `-A rho + beta k3(logp, proxy)`, `k3 = e^d - 1 - d`,
    `d = proxy - logp`; all others: PPO's clip.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        proxy_logp: [B, T], of the sampled token under `min_p_proxy_logp`; detached.
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        eps_low: 1 means no lower bound.
        eps_high: 9: a ratio of at most 10.
        beta: weight of the pull, nats.
        selected: [B, T] bool, from `low_probability_mask` over the whole batch; without it, the
            selection is made among these rows alone.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: arXiv 2510.03222 and its code, which draws the quantile among tokens with A < 0 and uses
    k3 of the sampled token where the paper has the full KL(proxy || pi).

    >>> pi, old = torch.tensor([[0.01, 0.5]]).log(), torch.tensor([[0.02, 0.5]]).log()
    >>> proxy, every = torch.tensor([[0.05, 0.6]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> total, weight = lp_reg_loss(pi, old, proxy, torch.tensor([-1.0]), every, selected=every)
    >>> total / weight  # (2.890562 + 1.017678) / 2
    tensor(1.9541)
    """
    if selected is None:
        selected = low_probability_mask(logp, advantages, mask)
    ratio = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    token_advantages = blank(advantages.detach(), mask)
    surrogate = -token_advantages * ratio
    clipped = torch.maximum(surrogate, -token_advantages * clip(ratio, eps_low, eps_high))
    gap = log_ratio(logp, proxy_logp, mask, max_log_ratio=max_log_ratio)
    protected = selected.bool() & (gap.detach() < 0)
    # The estimator sees only the difference of its arguments; `gap` is that difference, clamped.
    pulled = surrogate + beta * kl_k3(gap, torch.zeros_like(gap))
    return aggregate(torch.where(protected, pulled, clipped), mask, agg, weights=weights)


def low_probability_mask(
    logp: Tensor, advantages: Tensor, mask: Tensor, *, share: float = 0.01, least: int = 2
) -> Tensor:
    """Lp-Reg's selection: among trained tokens with A < 0, the `int(n * share)` least likely.

    Args:
        logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        share: the share of the tokens with negative advantage to select.
        least: select nothing if fewer tokens than this would be selected.

    Returns:
        [B, T] bool. Ties go to the earlier token.

    Source: Lp-Reg's code, arXiv 2510.03222; the paper draws the quantile over the whole batch.

    >>> logp, minus = torch.tensor([[-3.0, -1.0, -2.0]]), torch.tensor([-1.0])
    >>> low_probability_mask(logp, minus, torch.ones(1, 3), share=0.7)
    tensor([[ True, False,  True]])
    """
    negative = mask.bool() & (blank(advantages.detach(), mask) < 0)
    count = int(int(negative.sum()) * share)
    chosen = torch.zeros_like(negative).flatten()
    if count >= least:
        ranked = torch.where(negative, logp.detach(), torch.inf).flatten()
        chosen[ranked.argsort(stable=True)[:count]] = True
    return chosen.view_as(negative)


def min_p_proxy_logp(
    logits: Tensor, actions: Tensor, *, ratio: float = 0.02, dropped: float = -1e4
) -> Tensor:
    """Log-probabilities under the policy after a min-p filter: tokens below `ratio * max p` are
    dropped, and the rest is renormalised.

    Args:
        logits: [..., V].
        actions: [...] int.
        ratio: the min-p threshold.
        dropped: the value for an action that was dropped.

    Returns:
        [...], detached.

    Source: Lp-Reg, arXiv 2510.03222; min-p, arXiv 2407.01082.

    >>> logits = torch.tensor([0.7, 0.29, 0.01]).log()
    >>> min_p_proxy_logp(logits, torch.tensor(1)).exp()  # 0.29 / 0.99
    tensor(0.2929)
    """
    logp = torch.log_softmax(
        logits.detach().to(torch.promote_types(logits.dtype, torch.float32)), -1
    )
    kept = logp >= logp.max(-1, keepdim=True).values + torch.tensor(ratio).log()
    filtered = torch.log_softmax(torch.where(kept, logp, -torch.inf), -1)
    chosen = filtered.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    return torch.where(torch.isneginf(chosen), dropped, chosen)


def nlpo_vocabulary(logits: Tensor, *, top_p: float = 0.9) -> Tensor:
    """NLPO's mask: the fewest likeliest tokens of a masking policy whose probabilities reach
    `top_p`; the policy may sample these alone, and is renormalised over them.

    Args:
        logits: [..., V], of the masking policy, an earlier copy of the policy.
        top_p: in (0, 1]; the likeliest token is always kept.

    Returns:
        [..., V] bool, True is kept.

    Source: NLPO, arXiv 2210.01241, Algorithm 1.

    >>> nlpo_vocabulary(torch.tensor([0.1, 0.6, 0.3]).log(), top_p=0.8)
    tensor([False,  True,  True])
    """
    probabilities = logits.detach().to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)
    ranked, order = probabilities.sort(-1, descending=True)
    kept = ranked.cumsum(-1) - ranked < top_p
    kept[..., 0] = True
    return torch.zeros_like(kept).scatter(-1, order, kept)


def kimi_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    tau: float,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
) -> Sum:
    """Kimi k1.5: the score function with a square pull towards the old policy:
    `-A log pi + tau / 2 (log pi / old)^2`.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        tau: strength of the pull.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.

    Source: arXiv 2501.12599, section 2.3.2. (There the square is of the whole answer's log-ratio;
    here each token is pulled by itself.)

    >>> logp, old, one = torch.tensor([[-1.0]]), torch.tensor([[-2.0]]), torch.tensor([1.0])
    >>> kimi_loss(logp, old, one, torch.ones(1, 1), tau=0.5)
    (tensor(1.2500), tensor(1.))
    """
    pull = log_ratio(logp, old_logp, mask, max_log_ratio=None).square() * tau / 2
    return aggregate(
        -blank(advantages.detach(), mask) * blank(logp, mask) + pull, mask, agg, weights=weights
    )


def kimi_k25_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    tau: float,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """Kimi K2.5: the plain ratio with a square pull towards the old policy:
    `-A rho + tau (log rho)^2`.

    Nothing is clipped; the method drops tokens by how far their probability has moved
    (`dppo_mask`).

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        tau: strength of the pull, without the factor 1/2 of `kimi_loss`: the same number pulls
            twice as strongly here.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: as implemented in prime-rl and SkyRL.

    >>> logp, old, one = torch.tensor([[2.0]]).log(), torch.zeros(1, 1), torch.tensor([1.0])
    >>> kimi_k25_loss(logp, old, one, torch.ones(1, 1), tau=0.5)  # -2 + (ln 2)^2 / 2
    (tensor(-1.7598), tensor(1.))
    """
    difference = log_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    losses = -blank(advantages.detach(), mask) * difference.exp() + tau * difference.square()
    return aggregate(losses, mask, agg, weights=weights)
