"""Baselines that differ from token to token: the optimal token baseline (OTB) and HAPO's average
over tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..groups import (
    Singleton,
    first_rows,
    floating,
    group_index,
    group_range,
    group_size,
    group_statistics,
    group_sum,
)
from ..masked import blank
from .group import grpo_advantages
from .returns import returns_to_go


def logit_gradient_proxy(logp: Tensor, logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """The squared norm of the score with respect to the logits: `1 - 2 pi(a) + sum_v pi(v)^2`.

    Args:
        logp: [...], of the sampled token.
        logits: [..., V].
        temperature: the sampler's.

    Returns:
        [...], in [0, 2].

    Source: the logit-gradient proxy of OTB (verl `optimal_token_baseline`).

    >>> logits = torch.tensor([1.0, 3.0]).log()
    >>> logit_gradient_proxy(torch.tensor(0.75).log(), logits)  # 1 - 1.5 + 0.625
    tensor(0.1250)
    """
    squares = torch.softmax(logits.detach() / temperature, -1).square().sum(-1)
    return 1 - 2 * logp.detach().exp() + squares


def otb_advantages(
    rewards: Tensor,
    groups: Tensor,
    mask: Tensor,
    proxies: Tensor,
    *,
    weights: Tensor | None = None,
    eps: float = 1e-8,
    zero_tail: bool = False,
    compact: bool = False,
    singleton: Singleton = "raw",
) -> Tensor:
    """OTB: at every token, a baseline that weighs the group's returns by the gradient gathered so
    far.

    `W_it = sum_{j <= t} g_ij m_ij w_ij^2`, `B_t = sum_i G_it W_it / (sum_i W_it + eps)` over the
    rows of the group trained at t, `A_it = (G_it - B_t) m_it`.

    Args:
        rewards: [B] (one outcome: `G_it = r_i`), or [B, T] on tokens (`G` is the return-to-go,
            undiscounted).
        groups: [B] int.
        mask: [B, T] in {0, 1}.
        proxies: [B, T], squared score norms, of `logit_gradient_proxy`.
        weights: [B, T], importance weights (TIS); they enter squared.
        eps: added to the sum of weights.
        zero_tail: beyond the second-longest row B is the longest row's own return, so A = 0; True
            sets B = 0 there (verl: off for single-turn, on for multi-turn).
        compact: count t in trained tokens rather than slots (verl's multi-turn variant), so that
            holes do not shift one row against another.
        singleton: a group of one has baseline 0, which leaves the "raw" return (verl), or gets
            "zero".

    Returns:
        [B, T].

    Source: verl `optimal_token_baseline`. (The paper's abstract weighs the *update* by the inverse
    norm; the baseline itself weighs by W.)

    >>> proxies, r = torch.tensor([[0.5, 0.02], [0.08, 0.5]]), torch.tensor([1.0, 0.0])
    >>> otb_advantages(r, torch.tensor([0, 0]), torch.ones(2, 2), proxies)
    tensor([[ 0.1379,  0.5273],
            [-0.8621, -0.4727]])
    """
    values = floating(rewards).detach()
    # [N] rewards of whole rollouts stand at every token; [N, T] rewards are summed to the end.
    returns = blank(values, mask) if values.dim() == 1 else returns_to_go(values, mask)
    scaled = proxies.detach() if weights is None else proxies.detach() * weights.detach().square()
    scaled = blank(scaled, mask).to(returns.dtype)
    baseline_of = _compacted if compact else _baseline
    baseline = baseline_of(returns, groups, mask, scaled, eps, zero_tail)
    alone = (group_size(groups) == 1).unsqueeze(1)
    lone = returns if singleton == "raw" else torch.zeros_like(returns)
    return blank(torch.where(alone, lone, returns - baseline), mask)


def _compacted(
    returns: Tensor, groups: Tensor, mask: Tensor, proxies: Tensor, eps: float, zero_tail: bool
) -> Tensor:
    """Compute the baseline over trained tokens only, and put the values back into the slots."""
    # A stable sort by "untrained" puts the trained tokens first and keeps their order.
    order = torch.argsort(mask.bool().logical_not().long(), dim=1, stable=True)
    packed = [tensor.gather(1, order) for tensor in (returns, mask, proxies)]
    baseline = _baseline(packed[0], groups, packed[1], packed[2], eps, zero_tail)
    return torch.zeros_like(baseline).scatter(1, order, baseline)


def _baseline(
    returns: Tensor, groups: Tensor, mask: Tensor, proxies: Tensor, eps: float, zero_tail: bool
) -> Tensor:
    gathered = blank(proxies.cumsum(1), mask)
    weight = _column_sums(gathered, groups)
    baseline = _column_sums(gathered * returns, groups) / torch.where(
        weight + eps > 0, weight + eps, 1.0
    )
    if not zero_tail:
        return baseline
    # The second greatest length in each row's group, equal to the greatest in a tie.
    lengths = mask.sum(1)
    index = group_index(groups)
    # Two stable sorts order the rows by group, and by falling length within a group.
    order = torch.argsort(lengths, descending=True, stable=True)
    order = order[torch.argsort(index[order], stable=True)]
    ids = index[first_rows(groups)]
    # The row behind a group's first row.
    seconds = (torch.searchsorted(index[order], ids) + 1).clamp(max=len(lengths) - 1)
    second_lengths = torch.where(index[order][seconds] == ids, lengths[order][seconds], -1)
    runner_up = second_lengths[index]
    return torch.where(mask.cumsum(1) > runner_up.unsqueeze(1), 0.0, baseline)


def hapo_advantages(
    rewards: Tensor,
    groups: Tensor,
    lengths: Tensor,
    *,
    ddof: int = 0,
    eps: float = 1e-6,
    fallback: float | None = 5.0,
) -> Tensor:
    """HAPO (heterogeneous adaptive): GRPO whose mean and standard deviation are over the group's
    tokens, not its rows.

    `A_i = (r_i - mean) / (std + eps)`, `mean = sum n_j r_j / sum n_j`, std over tokens likewise:
    long rows weigh more.

    Args:
        rewards: [B].
        groups: [B] int.
        lengths: [B], trained tokens of each row.
        ddof: 0 (the authors') or 1, in tokens.
        eps: added to the standard deviation.
        fallback: a group in which any |A| is at least this large gets `grpo_advantages` instead;
            with None no group does.

    Returns:
        [B]; 0 for rows without tokens. (The authors' code leaves padding unmasked; a loss here
        masks it anyway.)

    Source: arXiv 2509.16591. Its other half is `hapo_loss`. Not the history-aware HAPO, which
    shares the name.

    >>> hapo_advantages(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), torch.tensor([1, 3]))
    tensor([ 1.7320, -0.5773])
    """
    values, weight = floating(rewards).detach(), lengths.to(floating(rewards).dtype)
    total = group_sum(weight, groups)
    live = lengths > 0
    # Relative to the group's least reward, which gives exactly 0 where those of all rows with
    # tokens are equal; the mean over tokens is then taken of what is left.
    least = group_range(torch.where(live, values, torch.inf), groups)[0]
    anchored = torch.where(live, values - least, 0.0)
    centred = anchored - group_sum(weight * anchored, groups) / total.clamp(min=1)
    variance = group_sum(weight * centred.square(), groups) / (total - ddof).clamp(min=1)
    scale = variance.sqrt() + eps
    # Not `variance > 0`, which would take what is not a number for no spread, and hide it.
    averaged = torch.where(
        live & (variance != 0), centred / torch.where(scale == 0, 1.0, scale), 0.0
    )
    if fallback is None:
        return averaged
    extreme = group_sum((live & (averaged.abs() >= fallback)).to(values.dtype), groups) > 0
    return torch.where(extreme & live, grpo_advantages(values, groups, eps=1e-6), averaged)


def _column_sums(values: Tensor, groups: Tensor) -> Tensor:
    """Return for each row the column sums over the rows of the same group: [B, T]."""
    index = group_index(groups)
    return torch.zeros_like(values).index_add(0, index, values)[index]


def oblr_po_advantages(rewards: Tensor, groups: Tensor, proxies: Tensor, mask: Tensor) -> Tensor:
    """OBLR-PO: the baseline of a group that minimises the variance of the gradient:
    `r_i - sum_j w_j r_j / sum_j w_j`, w_j the squared norm of the score of rollout j.

    Args:
        rewards: [B].
        groups: [B] int.
        proxies: [B, T], squared norms of each token's score (`logit_gradient_proxy`); their sum
            over a rollout stands for the norm of its score, as if tokens were independent. Where
            all are 0, the plain mean is taken.
        mask: [B, T] in {0, 1}.

    Returns:
        [B, T], the same at every trained token of a row.

    Source: OBLR-PO, by its abstract, and the optimal baseline of Greensmith et al. (2004). The
    learning rate that goes with it follows the ratio of signal and noise of the gradient, for
    which the trainer has no place.

    >>> r, g = torch.tensor([1.0, 0.0]), torch.tensor([0, 0])
    >>> oblr_po_advantages(r, g, torch.tensor([[1.0], [3.0]]), torch.ones(2, 1))  # baseline 0.25
    tensor([[ 0.7500],
            [-0.2500]])
    """
    norms = blank(proxies, mask).sum(1)
    centred = group_statistics(rewards, groups).centred
    total = group_sum(norms, groups)
    shift = group_sum(norms * centred, groups) / torch.where(total > 0, total, 1.0)
    return (centred - torch.where(total > 0, shift, 0.0)).unsqueeze(1) * mask
