"""Losses of methods known from an abstract or from memory only. Each returns (sum, weight)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..aggregation import Agg, Sum, aggregate
from ..masked import blank, masked_mean
from ..surrogates.ratio import MAX_LOG_RATIO, clip, policy_ratio
from ..surrogates.sequence import sequence_ratio


def dhpo_loss_as_read(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    mixing: float | Tensor,
    eps_token: tuple[float, float],
    eps_sequence: tuple[float, float],
    agg: Agg = "sequence_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """DHPO: a mix of PPO's clip on the token ratio and on the sequence ratio, each clipped before
    they are mixed.

    `l = w PPO(rho_t; eps_token) + (1 - w) PPO(s_i; eps_sequence)`.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        mixing: w, a number or [B, T] (an entropy-guided one; its form is not verified).
        eps_token: (low, high).
        eps_sequence: (low, high).
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: as we read the abstract; the code was not released.

    >>> pi, old = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.4]]).log()
    >>> one, mask, eps = torch.ones(1), torch.ones(1, 2), (0.2, 0.2)
    >>> dhpo_loss_as_read(pi, old, one, mask, mixing=0.5, eps_token=eps, eps_sequence=eps)
    (tensor(-0.6687), tensor(1.))
    """
    token_advantages = blank(advantages.detach(), mask)
    token = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    whole = sequence_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio).unsqueeze(1)
    weight = mixing.detach() if isinstance(mixing, Tensor) else mixing
    of_token = torch.maximum(-token_advantages * token, -token_advantages * clip(token, *eps_token))
    of_sequence = torch.maximum(
        -token_advantages * whole, -token_advantages * clip(whole, *eps_sequence)
    )
    return aggregate(weight * of_token + (1 - weight) * of_sequence, mask, agg)


def r2vpo_loss_as_read(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    multiplier: float,
    delta: float,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """R2VPO: no clip, but a bound on the variance of the ratio:
    `-rho A + lambda ((rho - 1)^2 - delta)`.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        multiplier: lambda, moved by `r2vpo_multiplier_as_read`.
        delta: the variance allowed.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: as we read the abstract.

    >>> pi, one = torch.tensor([[1.5]]).log(), torch.ones(1)
    >>> r2vpo_loss_as_read(pi, torch.zeros(1, 1), one, torch.ones(1, 1), multiplier=1.0, delta=0.05)
    (tensor(-1.3000), tensor(1.))
    """
    ratio = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    penalty = multiplier * ((ratio - 1).square() - delta)
    return aggregate(-ratio * blank(advantages.detach(), mask) + penalty, mask, agg)


def r2vpo_multiplier_as_read(
    multiplier: float, logp: Tensor, old_logp: Tensor, mask: Tensor, *, eta: float, delta: float
) -> float:
    """R2VPO's dual step: `max(0, lambda + eta (mean (rho - 1)^2 - delta))`; unchanged when nothing
    is trained.

    >>> pi = torch.tensor([[1.5, 0.5]]).log()
    >>> old, mask = torch.zeros(1, 2), torch.ones(1, 2)
    >>> round(r2vpo_multiplier_as_read(1.0, pi, old, mask, eta=0.1, delta=0.05), 6)
    1.02
    """
    if not bool(mask.any()):
        return multiplier
    ratio = policy_ratio(logp.detach(), old_logp, mask)
    return max(0.0, multiplier + eta * (float(masked_mean((ratio - 1).square(), mask)) - delta))


def aipo_loss_as_read(
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

    Source: LlamaRL, arXiv 2505.24034, from memory.

    >>> logp = torch.tensor([[0.6]]).log().requires_grad_()
    >>> mu, one = torch.tensor([[0.2]]).log(), torch.ones(1)
    >>> aipo_loss_as_read(logp, mu, one, torch.ones(1, 1), cap=2.0)[0].backward(); logp.grad
    tensor([[-2.]])
    """
    ratio = policy_ratio(logp.detach(), sampler_logp, mask, max_log_ratio=max_log_ratio)
    losses = -ratio.clamp(max=cap) * blank(advantages.detach(), mask) * blank(logp, mask)
    return aggregate(losses, mask, agg)


def dapo_direct_loss_as_read(
    step_logp: Tensor, step_ref_logp: Tensor, step_targets: Tensor, mask: Tensor, *, beta: float
) -> Sum:
    """Direct Advantage Policy Optimization: `(beta log (pi / ref)(step) - A_step)^2`, mean over
    steps.

    Args:
        step_logp: [B, S], summed over each step's tokens.
        step_ref_logp: [B, S].
        step_targets: [B, S], of `dapo_direct_targets_as_read`.
        mask: [B, S] in {0, 1}, which steps there are.
        beta: scale.

    Source: as we read the abstract (December 2024).

    >>> one = torch.ones(1, 1)
    >>> dapo_direct_loss_as_read(one, 0 * one, 0.5 * one, one, beta=1.0)
    (tensor(0.2500), tensor(1.))
    """
    difference = blank(step_logp - step_ref_logp.detach(), mask)
    return aggregate((beta * difference - blank(step_targets.detach(), mask)).square(), mask)


def pruned_logp_as_read(logits: Tensor, actions: Tensor, *, ratio: float) -> tuple[Tensor, Tensor]:
    """Dynamic vocabulary pruning: log-probabilities under the tokens that are not noise, for
    sampler and trainer alike.

    Tokens with `p < ratio * max p` are dropped and the rest renormalised.

    Args:
        logits: [..., V].
        actions: [...] int.
        ratio: min-p; our reading of the rule.

    Returns:
        (log-probabilities [...], whether the action itself survived [...] bool). A token that did
        not has its full log-probability; mask its row.

    Source: as we read the abstract.

    >>> logits = torch.tensor([0.7, 0.29, 0.01]).log()
    >>> pruned_logp_as_read(logits, torch.tensor(1), ratio=0.02)  # ln(0.29 / 0.99)
    (tensor(-1.2278), tensor(True))
    """
    logp = torch.log_softmax(logits, -1)
    floor = logp.detach().max(-1, keepdim=True).values + torch.tensor(ratio).log()
    safe = torch.log_softmax(torch.where(logp.detach() >= floor, logits, -torch.inf), -1)
    at = actions.unsqueeze(-1)
    pruned, full = safe.gather(-1, at).squeeze(-1), logp.gather(-1, at).squeeze(-1)
    kept = ~torch.isneginf(pruned)
    return torch.where(kept, pruned, full), kept


def rast_logits_as_read(big: Tensor, tuned: Tensor, base: Tensor, *, lam: float) -> Tensor:
    """RAST: add the change that RL made in a small model to a big model:
    `z_big + lam (z_tuned - z_base)`.

    All three [..., V], of one tokenizer.

    >>> rast_logits_as_read(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([2.0]), lam=0.5)
    tensor([1.5000])
    """
    return big + lam * (tuned - base)
