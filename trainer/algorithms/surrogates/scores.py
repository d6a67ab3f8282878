"""Losses that read the log-probability itself as a score or a value: PACS, ROVER, DRPO."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ..aggregation import Agg, Rows, Sum, aggregate
from ..groups import floating, group_range, group_size, group_sum
from ..masked import blank, row_means
from .ratio import log_ratio


def pacs_loss(
    logp: Tensor,
    old_logp: Tensor,
    rewards: Tensor,
    groups: Tensor,
    mask: Tensor,
    *,
    beta: float = 1.0,
    score: Literal["sum", "mean"] = "sum",
    row_weights: Tensor | None = None,
    rows: Rows = "all",
) -> Sum:
    """PACS: predict whether a rollout is right from the gain in log-probability, relative to the
    group.

    `s_i = beta sum_t (logp - old_logp)`, `psi_i = s_i - mean_{j != i} s_j`,
    `l_i = BCE(sigmoid(psi_i), r_i)`, mean over rows. The gradient flows through the leave-one-out
    mean too.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        rewards: [B] in [0, 1].
        groups: [B] int; in a group of one psi is 0 and has no gradient.
        mask: [B, T] in {0, 1} (the authors' code does not mask, and needs zeros in the padding).
        beta: scale of the score.
        score: "sum" or "mean" over tokens.
        row_weights: [B], such as class weights.
        rows: "all" (the authors' code): a row without tokens has score 0, takes part in the
            leave-one-out mean and in the mean over rows; "live": in neither.

    Source: arXiv 2509.02522.

    >>> logp, old = torch.tensor([[0.8], [0.5]]).log(), torch.tensor([[0.4], [0.5]]).log()
    >>> rewards, groups = torch.tensor([1.0, 0.0]), torch.tensor([0, 0])
    >>> total, weight = pacs_loss(logp, old, rewards, groups, torch.ones(2, 1))
    >>> total / weight  # psi = +-ln 2, both losses -ln(2/3)
    tensor(0.4055)
    """
    difference = log_ratio(logp, old_logp, mask, max_log_ratio=None)
    scores = beta * (difference.sum(1) if score == "sum" else row_means(difference, mask))
    counted = (mask.sum(1) > 0 if rows == "live" else torch.ones_like(groups, dtype=torch.bool)).to(
        scores.dtype
    )
    members = group_sum(counted, groups)
    others = (group_sum(scores * counted, groups) - scores) / (members - 1).clamp(min=1)
    psi = torch.where(members > 1, scores - others, scores - scores)
    losses = binary_cross_entropy_with_logits(psi, rewards.detach().to(psi.dtype), reduction="none")
    weighted = losses if row_weights is None else losses * row_weights.detach()
    return (weighted * counted).sum(), counted.sum()


def rover_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    temperature: float,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
) -> Sum:
    """ROVER: the log-ratio as a Q value, regressed on the centred reward plus the next token's Q.

    `Q_t = temperature (logp_t - old_logp_t)`, `l_t = (Q_t - sg[r + Q_{t+1}])^2`, Q = 0 after the
    last trained token.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B] or [B, T], the centred rewards of `rover_advantages`.
        mask: [B, T] in {0, 1}; the next token is the next trained one.
        temperature: scale of Q; also the sampler's softmax(Q / temperature).
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.

    Source: the authors' code for arXiv 2509.24981. (The paper bootstraps with the mean of Q over
    all actions.)

    >>> logp, old = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -1.5]])
    >>> one, mask = torch.tensor([1.0]), torch.ones(1, 2)
    >>> rover_loss(logp, old, one, mask, temperature=1.0)  # (0 - 1.5)^2 + (0.5 - 1)^2
    (tensor(2.5000), tensor(2.))
    """
    values = temperature * log_ratio(logp, old_logp, mask, max_log_ratio=None)
    target = blank(advantages.detach(), mask) + _next_trained(values.detach(), mask)
    return aggregate((values - target).square(), mask, agg, weights=weights)


def rover_advantages(
    correct: Tensor, groups: Tensor, *, reward_right: float = 5.0, reward_wrong: float = -2.0
) -> Tensor:
    """ROVER's centred rewards: `5 (1 - share right)` for a right answer, `-2 (1 - share wrong)` for
    a wrong one.

    Args:
        correct: [B] bool or 0/1.
        groups: [B] int.
        reward_right: before centring.
        reward_wrong: before centring.

    Returns:
        [B].

    Source: the authors' mathematics code for arXiv 2509.24981.

    >>> rover_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.long))
    tensor([ 3.7500, -0.5000, -0.5000, -0.5000])
    """
    right = correct.bool()
    share = group_sum(right.to(floating(correct).dtype), groups) / group_size(groups)
    return torch.where(right, reward_right * (1 - share), reward_wrong * share)


def drpo_length_weights(
    correct: Tensor, lengths: Tensor, groups: Tensor, *, max_length: float, lam: float = 0.1
) -> Tensor:
    """DRPO's weights of right answers, larger for shorter answers: `softmax((1 - L / Lmax) / lam)`
    within a group's right ones.

    Args:
        correct: [B] bool or 0/1.
        lengths: [B], tokens.
        groups: [B] int.
        max_length: Lmax, tokens.
        lam: temperature; small values ask for short answers more sharply.

    Returns:
        [B], adding to 1 over the right answers of a group; 0 for wrong ones.

    Source: DRPO (decoupled reward policy optimization), the authors' code.

    >>> correct, lengths = torch.tensor([1, 1, 0]), torch.tensor([100.0, 200.0, 300.0])
    >>> drpo_length_weights(correct, lengths, torch.tensor([0, 0, 0]), max_length=400, lam=0.5)
    tensor([0.6225, 0.3775, 0.0000])
    """
    right = correct.bool()
    score = (1 - floating(lengths) / max_length) / lam
    # Subtracting the group's best score keeps the exponentials at 1 or below. In a group without a
    # right answer `best` is -inf, and `where` discards what comes of it.
    best = group_range(torch.where(right, score, -torch.inf), groups)[1]
    raw = torch.where(right, (score - best).exp(), 0.0)
    total = group_sum(raw, groups)
    return raw / torch.where(total > 0, total, 1.0)


def drpo_loss(
    logp: Tensor,
    correct: Tensor,
    groups: Tensor,
    mask: Tensor,
    *,
    max_length: float,
    lam: float = 0.1,
    tau: float = 10.0,
) -> Sum:
    """DRPO: raise the scores of right answers, short answers most, and lower the scores of wrong
    answers, likely answers most.

    Per group with both kinds, with `score_i = mean_t logp`:
    `-(sum_right w_i score_i - tau log mean_wrong exp(score / tau))`; the mean over such groups. The
    method adds `hinge_kl_penalty`.

    Args:
        logp: [B, T].
        correct: [B] bool or 0/1.
        groups: [B] int; groups all right or all wrong add nothing and are not counted.
        mask: [B, T] in {0, 1}; a row without tokens is neither right nor wrong, since its score of
            0 would be the highest.
        max_length: tokens.
        lam: see `drpo_length_weights`.
        tau: temperature over the wrong answers.

    Source: DRPO (decoupled reward policy optimization), the authors' code. (The code's loss has the
    value S / sg[S], near 1, and the same gradient as this loss.)

    >>> logp, correct = torch.tensor([[0.5], [0.25]]).log(), torch.tensor([1, 0])
    >>> groups, mask = torch.tensor([0, 0]), torch.ones(2, 1)
    >>> drpo_loss(logp, correct, groups, mask, max_length=10)  # -(ln 0.5 - ln 0.25)
    (tensor(-0.6931), tensor(1.))
    """
    lengths = mask.sum(1).to(logp.dtype)
    right, wrong = correct.bool() & (lengths > 0), ~correct.bool() & (lengths > 0)
    scores = row_means(logp, mask)
    weights = drpo_length_weights(right, lengths, groups, max_length=max_length, lam=lam)
    n_right, n_wrong = (group_sum(kind.to(logp.dtype), groups) for kind in (right, wrong))
    both = (n_wrong > 0) & (n_right > 0)
    # Relative to the group's likeliest wrong answer, whose own exponential is 1: with a small tau
    # all of them would be 0, and no wrong answer would have a gradient.
    scaled = torch.where(wrong, scores / tau, -torch.inf)
    top = torch.where(n_wrong > 0, group_range(scaled.detach(), groups)[1], 0.0)
    mass = group_sum((scaled - top).exp(), groups) / n_wrong.clamp(min=1)
    bad = tau * (torch.where(n_wrong > 0, mass, 1.0).log() + top)
    # The term of the wrong answers belongs to the group; each row adds an equal share of it, and of
    # the group's count, so that sums over rows are sums over groups.
    size = group_size(groups).to(logp.dtype)
    row = -(weights * scores) + bad / size
    return torch.where(both, row, 0.0).sum(), torch.where(both, 1 / size, 0.0).sum()


def hinge_kl_penalty(divergence: Tensor, *, delta: float = 1e-4, beta: float = 1e3) -> Tensor:
    """DRPO's soft constraint: `sg[beta max(0, kl - delta)] kl`, nothing while the divergence is
    below delta.

    Args:
        divergence: a scalar, nats.
        delta: the divergence that is allowed, nats.
        beta: how hard the excess is punished.

    Source: DRPO (decoupled reward policy optimization), the authors' code.

    >>> hinge_kl_penalty(torch.tensor(0.5), delta=0.25, beta=2.0)
    tensor(0.2500)
    """
    return (beta * (divergence - delta).clamp(min=0)).detach() * divergence


def _next_trained(values: Tensor, mask: Tensor) -> Tensor:
    """The value at the next trained slot of each row, 0 after the last."""
    trained, following = (
        mask.bool(),
        torch.zeros_like(values[:, :1]).squeeze(1) if values.shape[1] else None,
    )
    columns: list[Tensor] = []
    for t in reversed(range(values.shape[1])):
        assert following is not None
        columns.append(following)
        following = torch.where(trained[:, t], values[:, t], following)
    return torch.stack(columns[::-1], 1) if columns else values
