"""Corrections between the sampling policy and the learning policy: weights (float) and filters
(bool masks).

Weights are `w = old / mu`, old being the trainer's own log-probabilities of the sampled tokens
before the first update, and mu the engine's; truncated (TIS) or masked (MIS). All are detached;
hand them to a loss as `weights=`.

Filters are masks in which True means kept: [B] of rows, [B, T] of tokens. Apply one by multiplying
the mask (the token leaves the denominator too: verl, slime) or the `weights` of a loss (it stays
there: TRL, AReaL).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from .masked import blank, masked_mean, row_means
from .surrogates.ratio import MAX_LOG_RATIO, clip, log_ratio, policy_ratio

Level = Literal["token", "sequence", "geometric"]
"""The ratio of each token, of the whole sequence (their product), or their geometric mean."""


def importance_weights(
    old_logp: Tensor,
    sampler_logp: Tensor,
    mask: Tensor,
    *,
    level: Level = "token",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """Exact weights `old / mu`: per token, or per row and spread over the tokens.

    Args:
        old_logp: [B, T], of the trainer.
        sampler_logp: [B, T], of the engine.
        mask: [B, T] in {0, 1}.
        level: "token": w_t; "sequence": prod_t w_t; "geometric": (prod_t w_t)^(1/n).
        max_log_ratio: nats; clamp the log ratio (the summed one for a sequence) to +- this.

    Returns:
        [B, T], 0 in untrained slots.

    Source: importance sampling between engine and trainer, as in verl `rollout_corr`.

    >>> old, mu = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.2]]).log()
    >>> importance_weights(old, mu, torch.ones(1, 2))
    tensor([[1.5000, 0.5000]])
    >>> importance_weights(old, mu, torch.ones(1, 2), level="sequence")
    tensor([[0.7500, 0.7500]])
    """
    exponent = log_ratio(old_logp.detach(), sampler_logp, mask, max_log_ratio=None)
    if level != "token":
        total = exponent.sum(-1, keepdim=True)
        if level == "geometric":
            total = total / mask.sum(-1, keepdim=True).clamp(min=1)
        elif level != "sequence":
            raise ValueError(f"level is 'token', 'sequence' or 'geometric', got {level!r}")
        exponent = total.expand_as(exponent)
    if max_log_ratio is not None:
        exponent = exponent.clamp(-max_log_ratio, max_log_ratio)
    return blank(exponent.exp(), mask)


def tis_weights(
    old_logp: Tensor,
    sampler_logp: Tensor,
    mask: Tensor,
    *,
    cap: float = 2.0,
    floor: float | None = None,
    level: Level = "token",
    normalise: bool = False,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """Truncated importance sampling: `min(w, cap)`, and with a floor `max(w, floor)`.

    Args:
        old_logp: [B, T], of the trainer.
        sampler_logp: [B, T], of the engine.
        mask: [B, T] in {0, 1}.
        cap: the greatest weight (verl 2); infinity makes it exact importance sampling.
        floor: the least weight; None (verl) or a number (TRL, slime and OpenRLHF have one).
        level: see `importance_weights`.
        normalise: divide by the mean weight of the batch's trained tokens. Do it before splitting
            the batch.
        max_log_ratio: see `importance_weights`.

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training".

    >>> old, mu = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.2]]).log()
    >>> tis_weights(old, mu, torch.ones(1, 2), cap=1.2)
    tensor([[1.2000, 0.5000]])
    """
    exact = importance_weights(
        old_logp, sampler_logp, mask, level=level, max_log_ratio=max_log_ratio
    )
    weights = blank(exact.clamp(min=floor, max=cap), mask)
    if not normalise:
        return weights
    mean = masked_mean(weights, mask)
    return weights / torch.where(mean > 0, mean, torch.ones_like(mean))


def mis_weights(
    old_logp: Tensor,
    sampler_logp: Tensor,
    mask: Tensor,
    *,
    low: float = 0.5,
    high: float = 5.0,
    level: Level = "token",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """Masked importance sampling (IcePop): the weight inside [low, high], 0 outside:
    `w 1[low <= w <= high]`.

    A weight of 0 keeps the token in the denominator (TRL, AReaL). Trainers that average over the
    kept tokens only (verl, slime) also multiply the mask by `weights > 0`; their loss is larger by
    the factor N / N_kept.

    Args:
        old_logp: [B, T], of the trainer.
        sampler_logp: [B, T], of the engine.
        mask: [B, T] in {0, 1}.
        low: the least weight kept.
        high: the greatest weight kept.
        level: see `importance_weights`.
        max_log_ratio: see `importance_weights`.

    Source: IcePop (Ring-1T, 2025), bounds 0.5 and 5.

    >>> old, mu = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.2]]).log()
    >>> mis_weights(old, mu, torch.ones(1, 2), low=0.6, high=2.0)
    tensor([[1.5000, 0.0000]])
    """
    weights = importance_weights(
        old_logp, sampler_logp, mask, level=level, max_log_ratio=max_log_ratio
    )
    return torch.where((weights >= low) & (weights <= high), weights, torch.zeros_like(weights))


def guide_weights(
    logp: Tensor, sampler_logp: Tensor, mask: Tensor, *, eps_low: float, eps_high: float
) -> Tensor:
    """Guide: rollouts sampled with a hint but trained without:
    `clip(pi(y | x) / old(y | x, hint))`, detached.

    A prompt whose rollouts all fail is sampled again with a hint; one that still fails is dropped.

    Args:
        logp: [B, T], of the prompt without the hint.
        sampler_logp: [B, T], of the policy that sampled, with the hint.
        mask: [B, T] in {0, 1}.
        eps_low: as in PPO; 1 means no lower bound.
        eps_high: as in PPO.

    Source: Guide, arXiv 2506.13923, by its abstract: off-policy samples with a hint, corrected.

    >>> pi, old = torch.tensor([[0.1]]).log(), torch.tensor([[0.4]]).log()
    >>> guide_weights(pi, old, torch.ones(1, 1), eps_low=1.0, eps_high=0.2)
    tensor([[0.2500]])
    """
    return blank(clip(policy_ratio(logp.detach(), sampler_logp, mask), eps_low, eps_high), mask)


def trust_region_mask(
    logp: Tensor,
    sampler_logp: Tensor,
    mask: Tensor,
    *,
    threshold: float,
    statistic: Literal["max_k2", "mean_k3"] = "mean_k3",
) -> Tensor:
    """Trust-region masking: drop the whole sequence when any token left the sampler's
    neighbourhood.

    With `x = log pi - log mu` (trainer minus engine): kept when `max_t x^2 / 2 <= threshold`
    ("max_k2") or `mean_t (e^x - 1 - x) <= threshold` ("mean_k3").

    Args:
        logp: [B, T], of the trainer.
        sampler_logp: [B, T], of the engine.
        mask: [B, T] in {0, 1}.
        threshold: nats; the paper's scale for k3 is 0.001 to 0.01.
        statistic: which divergence.

    Returns:
        [B] bool; a row without tokens is kept.

    Source: arXiv 2512.23075; verl `rollout_corr`.

    >>> pi, mu = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.2]]).log()
    >>> trust_region_mask(pi, mu, torch.ones(1, 2), threshold=0.15)  # mean k3 is 0.143841
    tensor([True])
    >>> trust_region_mask(pi, mu, torch.ones(1, 2), threshold=0.15, statistic="max_k2")  # 0.240227
    tensor([False])
    """
    return trust_region_statistic(logp, sampler_logp, mask, statistic=statistic) <= threshold


def trust_region_statistic(
    logp: Tensor, sampler_logp: Tensor, mask: Tensor, *, statistic: Literal["max_k2", "mean_k3"]
) -> Tensor:
    """The divergence `trust_region_mask` compares with the threshold, [B]; 0 for a row without
    tokens.

    Source: arXiv 2512.23075.

    >>> pi, mu = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.2]]).log()
    >>> trust_region_statistic(pi, mu, torch.ones(1, 2), statistic="mean_k3")
    tensor([0.1438])

    Raises:
        ValueError: an unknown statistic.
    """
    x = log_ratio(logp.detach(), sampler_logp, mask, max_log_ratio=None)
    if statistic == "max_k2":
        return (x.square() / 2).amax(1) if x.shape[1] else x.sum(1)
    if statistic == "mean_k3":
        return row_means(torch.expm1(x) - x, mask)
    raise ValueError(f"statistic is 'max_k2' or 'mean_k3', got {statistic!r}")


def ratio_band_mask(
    old_logp: Tensor,
    sampler_logp: Tensor,
    mask: Tensor,
    *,
    low: float,
    high: float,
    level: Literal["sequence", "geometric"] = "geometric",
) -> Tensor:
    """Keep the sequences whose ratio old / mu lies in [low, high]; the bounds are on trainer over
    engine.

    The ratio is `(prod_t w_t)^(1/n)` ("geometric", Geo-RS) or `prod_t w_t` ("sequence"). The mask
    is used together with `tis_weights` (OpenRLHF "seq-mask-tis") or without any weights (verl). A
    row that is more likely under the trainer has a ratio above 1; bounds on engine over trainer
    become `1 / high` and `1 / low` here.

    Args:
        old_logp: [B, T], of the trainer.
        sampler_logp: [B, T], of the engine.
        mask: [B, T] in {0, 1}.
        low: least ratio kept.
        high: greatest ratio kept.
        level: which ratio.

    Returns:
        [B] bool; a row without tokens (ratio 1) is kept when 1 is in the band.

    Source: Geo-RS of verl `rollout_corr` and OpenRLHF.

    >>> old, mu = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.2]]).log()
    >>> ratio_band_mask(old, mu, torch.ones(1, 2), low=0.9, high=1.1)  # 0.866025
    tensor([False])
    """
    difference = log_ratio(old_logp.detach(), sampler_logp, mask, max_log_ratio=None)
    x = row_means(difference, mask) if level == "geometric" else difference.sum(1)
    return (x.exp() >= low) & (x.exp() <= high)


def opsm_mask(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, *, delta: float
) -> Tensor:
    """Off-policy sequence masking: drop a failed sequence that the policy has already moved away
    from.

    Dropped when A < 0 and `mean_t (log mu - log pi) > delta`.

    Args:
        logp: [B, T], of the trainer.
        sampler_logp: [B, T], of the engine.
        advantages: [B], or [B, T] (its row mean counts).
        mask: [B, T] in {0, 1}.
        delta: nats per token.

    Returns:
        [B] bool.

    Source: DeepSeek-V3.2, arXiv 2512.02556, its off-policy sequence masking.

    >>> pi, mu = torch.tensor([[0.1], [0.1]]).log(), torch.tensor([[0.4], [0.4]]).log()
    >>> opsm_mask(pi, mu, torch.tensor([-1.0, 1.0]), torch.ones(2, 1), delta=0.5)
    tensor([False,  True])
    """
    drift = -row_means(log_ratio(logp.detach(), sampler_logp, mask, max_log_ratio=None), mask)
    failed = (advantages if advantages.dim() == 1 else row_means(advantages, mask)) < 0
    return ~(failed & (drift > delta))


def dppo_mask(
    logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor, *, delta: float
) -> Tensor:
    """DPPO: stop training a token whose *probability* (not ratio) has already moved by delta in the
    direction of the advantage.

    Dropped when A > 0 and `pi - mu > delta`, or A < 0 and `mu - pi > delta` (binary total
    variation).

    Args:
        logp: [B, T], of the trainer.
        sampler_logp: [B, T], of the engine.
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        delta: probability.

    Returns:
        [B, T] bool.

    Source: the DPPO masks of prime-rl and SkyRL.

    >>> pi, mu = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.3, 0.3]]).log()
    >>> dppo_mask(pi, mu, torch.tensor([[1.0, -1.0]]), torch.ones(1, 2), delta=0.1)
    tensor([[False,  True]])
    """
    moved = blank(logp.detach().exp() - sampler_logp.detach().exp(), mask)
    return mask.bool() & ~(moved * blank(advantages.detach(), mask).sign() > delta)


def overlong_mask(truncated: Tensor) -> Tensor:
    """Overlong filtering: rows cut by the length limit leave the loss: `not truncated`.

    Whether their rewards stay in the group's statistics is a second decision: keep them there by
    computing advantages before masking (TRL, SUPO), leave them out by dropping the rows first.

    Args:
        truncated: [B] bool.

    Returns:
        [B] bool.

    Source: DAPO, arXiv 2503.14476, section 3.4.

    >>> overlong_mask(torch.tensor([True, False]))
    tensor([False,  True])
    """
    return ~truncated.bool()


def mpt_mask(
    logp: Tensor,
    rewards: Tensor,
    entropy: Tensor,
    mask: Tensor,
    *,
    sigma: float,
    probability: float = 0.99,
) -> Tensor:
    """Mastered positive tokens (UloRL): do not train tokens of a right answer that the policy is
    already certain of.

    Dropped when the token's probability is at least `probability`, the reward is 1 and the row's
    mean entropy is below `sigma`.

    Args:
        logp: [B, T], of the sampled tokens.
        rewards: [B]; 1 or more is right.
        entropy: [B], the mean over the row's tokens, or [B, T] (the mean is taken here); nats.
        mask: [B, T] in {0, 1}.
        sigma: nats; below it the policy is thought to collapse.
        probability: a token this likely is mastered.

    Returns:
        [B, T] bool.

    Source: UloRL, arXiv 2507.19766, Eq. 9 and 10.

    >>> logp, entropy = torch.tensor([[0.995, 0.5]]).log(), torch.tensor([0.1])
    >>> mpt_mask(logp, torch.tensor([1.0]), entropy, torch.ones(1, 2), sigma=0.2)
    tensor([[False,  True]])
    """
    mean = entropy if entropy.dim() == 1 else row_means(entropy, mask)
    sure = (rewards >= 1) & (mean < sigma)
    return mask.bool() & ~(sure.unsqueeze(1) & (logp.detach().exp() >= probability))


def d3s_samples_mask(advantages: Tensor, groups: Tensor, mask: Tensor, *, keep: int) -> Tensor:
    """D3S, samples: of each group the `keep` rollouts whose advantages vary most, which are from
    both ends of the sorted list.

    Args:
        advantages: [B, T] or [B], the same for all tokens of a rollout.
        groups: [B] int.
        mask: [B, T] in {0, 1}.
        keep: rollouts of a group; a group of fewer keeps all.

    Returns:
        [B] bool.

    Source: D3S, by its abstract; that the extremes maximise the variance is exact.

    >>> a, groups = torch.tensor([-2.0, -1.0, 0.0, 1.0, 3.0]), torch.zeros(5, dtype=torch.long)
    >>> d3s_samples_mask(a, groups, torch.ones(5, 1), keep=2)
    tensor([ True, False, False, False,  True])
    """
    each = (blank(advantages, mask).sum(1) / mask.sum(1).clamp(min=1)).double()
    kept = torch.zeros(len(each), dtype=torch.bool, device=each.device)
    for group in groups.unique():
        rows = (groups == group).nonzero().squeeze(1)
        order = rows[each[rows].argsort(stable=True)]
        count = min(keep, len(order))
        # Each choice takes `low` rollouts from the lower end and the others from the upper end.
        choices = [
            torch.cat([order[:low], order[len(order) - count + low :]]) for low in range(count + 1)
        ]
        spreads = [float(each[choice].var(correction=0)) if count else 0.0 for choice in choices]
        kept[choices[spreads.index(max(spreads))]] = True
    return kept


def d3s_tokens_mask(advantages: Tensor, entropy: Tensor, mask: Tensor, *, share: float) -> Tensor:
    """D3S, tokens: the `ceil(share * n)` tokens with the greatest `|A| H`; ties go to the earlier
    token.

    Args:
        advantages: [B, T] or [B].
        entropy: [B, T], nats.
        mask: [B, T] in {0, 1}.
        share: the share of the trained tokens; the method relaxes it over training.

    Returns:
        [B, T] bool.

    Source: D3S, by its abstract, which names both factors; their product is ours.

    >>> a, h = torch.tensor([[1.0, -2.0, 1.0]]), torch.tensor([[0.5, 0.5, 0.1]])
    >>> d3s_tokens_mask(a, h, torch.ones(1, 3), share=0.34)
    tensor([[ True,  True, False]])
    """
    trained = mask.bool()
    score = torch.where(trained, (blank(advantages, mask) * blank(entropy, mask)).abs(), -torch.inf)
    count = math.ceil(share * int(trained.sum()))
    kept = torch.zeros_like(trained).flatten()
    kept[score.flatten().argsort(descending=True, stable=True)[:count]] = True
    return kept.view_as(trained) & trained


def pruned_mask(proxy_logp: Tensor, mask: Tensor, *, dropped: float = -1e4) -> Tensor:
    """Dynamic vocabulary pruning: leave out the rollouts of which a token is not in the pruned
    vocabulary, where sampler and trainer differ most.

    Args:
        proxy_logp: [B, T], `min_p_proxy_logp` of the old policy.
        mask: [B, T] in {0, 1}.
        dropped: what `proxy_logp` says of a token that was left out.

    Returns:
        [B] bool.

    Source: dynamic vocabulary pruning, by its abstract: tokens of the tail, here by min-p, leave
    the objective. The method also renormalises what is left, in sampler and trainer; this does not.

    >>> pruned_mask(torch.tensor([[-0.1, -0.2], [-0.1, -1e4]]), torch.ones(2, 2))
    tensor([ True, False])
    """
    return ~((proxy_logp <= dropped) & mask.bool()).any(1)
