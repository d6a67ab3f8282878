"""Methods known from an abstract or from memory, written as read: `*_as_read`, used in no recipe
and without invented defaults. Each docstring says what is not verified.

Advantages are [B] or [B, T], losses return (sum, weight), rewards are [B] unless stated otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, groupby

import torch
from torch import Tensor

from .advantages.group import grpo_advantages
from .aggregation import Agg, Sum, aggregate
from .groups import floating, group_size, group_statistics, group_sum
from .masked import blank
from .surrogates.ratio import MAX_LOG_RATIO, clip, policy_ratio
from .surrogates.sequence import sequence_ratio


def gigpo_advantages_as_read(
    rewards: Tensor,
    groups: Tensor,
    step_returns: Tensor,
    step_groups: Tensor,
    steps: Tensor,
    *,
    omega: float,
    ddof: int,
    eps: float,
) -> Tensor:
    """GiGPO: the episode's advantage in the group plus the step's advantage among steps from the
    same state.

    `A_s = GRPO(r)_{episode(s)} + omega GRPO(G)_s`, the second over steps that share an anchor
    state.

    Args:
        rewards: [N], one an episode.
        groups: [N] int.
        step_returns: [S], discounted return from each step.
        step_groups: [S] int, equal for steps of a group's episodes that start in the identical
            state.
        steps: [S] int, the episode (0..N-1) of each step.
        omega: weight of the step's part (1 in the paper, from memory).
        ddof: in both standard deviations; not verified.
        eps: added to both; not verified.

    Returns:
        [S], one per step. A step that is alone in its state has no step part.

    Source: arXiv 2505.10978, from memory.

    >>> r, g, steps = torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), torch.tensor([0, 1])
    >>> gigpo_advantages_as_read(r, g, r, g, steps, omega=1.0, ddof=1, eps=0.0)
    tensor([ 1.4142, -1.4142])
    """
    episode = grpo_advantages(rewards, groups, ddof=ddof, eps=eps)[steps]
    return episode + omega * grpo_advantages(step_returns, step_groups, ddof=ddof, eps=eps)


def oblr_po_advantages_as_read(rewards: Tensor, groups: Tensor, squared_norms: Tensor) -> Tensor:
    """OBLR-PO: the baseline that minimises the variance of the gradient:
    `r_i - sum g_j^2 r_j / sum g_j^2`.

    Args:
        rewards: [B].
        groups: [B] int.
        squared_norms: [B], of each sequence's score; where all are 0, the plain mean is taken.

    Returns:
        [B]. The method's learning-rate schedule is not here.

    Source: as we read the abstract.

    >>> r, g = torch.tensor([1.0, 0.0]), torch.tensor([0, 0])
    >>> oblr_po_advantages_as_read(r, g, torch.tensor([1.0, 3.0]))  # baseline 0.25
    tensor([ 0.7500, -0.2500])
    """
    centred = group_statistics(rewards, groups).centred
    total = group_sum(squared_norms, groups)
    shift = group_sum(squared_norms * centred, groups) / torch.where(total > 0, total, 1.0)
    return centred - torch.where(total > 0, shift, 0.0)


def dapo_direct_targets_as_read(step_values: Tensor) -> Tensor:
    """Direct Advantage Policy Optimization: the change of the critic's accuracy over a step, [...,
    S + 1] to [..., S].

    Not the DAPO of dynamic sampling, which shares the name. See `dapo_direct_loss_as_read`.

    >>> dapo_direct_targets_as_read(torch.tensor([0.25, 0.75]))
    tensor([0.5000])
    """
    return floating(step_values).detach().diff(dim=-1)


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


def concise_r_rewards_as_read(
    correct: Tensor, lengths: Tensor, groups: Tensor, *, lam: float, max_length: float
) -> Tensor:
    """ConciseR (L-GRPO): brevity counts only where the whole group is right:
    `1 + lam (1 - L / Lmax)`, else 1 or 0.

    >>> correct, lengths = torch.tensor([1.0, 1.0]), torch.tensor([100.0, 400.0])
    >>> concise_r_rewards_as_read(correct, lengths, torch.tensor([0, 0]), lam=0.2, max_length=400)
    tensor([1.1500, 1.0000])
    """
    solved = group_sum(correct.bool().long(), groups) == group_size(groups)
    return floating(correct) + torch.where(solved, lam * (1 - floating(lengths) / max_length), 0.0)


def mind_rewards_as_read(correct: Tensor, turns: Tensor, *, lam: float) -> Tensor:
    """MinD: fewer turns earn more: `c max(0, 1 - lam (turns - 1))`.

    >>> mind_rewards_as_read(torch.tensor([1.0]), torch.tensor([3]), lam=0.1)
    tensor([0.8000], dtype=torch.float64)
    """
    return floating(correct) * (1 - lam * floating(turns - 1)).clamp(min=0)


def rlsp_rewards_as_read(
    correct: Tensor, lengths: Tensor, *, alpha: float, max_length: float
) -> Tensor:
    """RLSP: the outcome plus a bonus for exploring at length, `c + alpha L / Lmax`; alpha goes to 0
    over training.

    >>> rlsp_rewards_as_read(torch.tensor([1.0]), torch.tensor([50.0]), alpha=0.1, max_length=100)
    tensor([1.0500])
    """
    return floating(correct) + alpha * floating(lengths) / max_length


def ssp_proposer_rewards_as_read(solved: Tensor, verified: Tensor) -> Tensor:
    """Search self-play: the proposer earns what the solver loses, `1 - mean(solved)`; 0 for a
    question not verified.

    Args:
        solved: [B, K] in {0, 1}, of the solver's rollouts on each question.
        verified: [B] bool.

    >>> ssp_proposer_rewards_as_read(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([True]))
    tensor([0.7500])
    """
    return torch.where(verified.bool(), 1 - floating(solved).mean(-1), 0.0)


def urpo_referee_reward_as_read(predicted: Sequence[float], true: Sequence[float]) -> float:
    """URPO: a grader earns the rank agreement with the truth, Kendall's tau (pairs in order minus
    pairs out of it).

    >>> round(urpo_referee_reward_as_read([1, 2, 3], [1, 3, 2]), 6)
    0.333333
    """
    pairs = list(combinations(zip(predicted, true, strict=True), 2))
    agreement = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in pairs]
    return sum((each > 0) - (each < 0) for each in agreement) / len(pairs) if pairs else 0.0


def tp_grpo_thoughts_as_read(labels: Sequence[int]) -> list[int]:
    """TP-GRPO: neighbouring steps with the same label form a thought; the reward of each thought.

    >>> tp_grpo_thoughts_as_read([1, 1, 0])
    [1, 0]
    """
    return [label for label, _ in groupby(labels)]


def rubric_rewards_as_read(judgements: Tensor, weights: Tensor) -> Tensor:
    """DR Tulu: `sum_k w_k J_k`, [B, K] and [K] to [B]; negative weights punish.

    >>> rubric_rewards_as_read(torch.tensor([[1.0, 0.0, 1.0]]), torch.tensor([1.0, 1.0, -1.0]))
    tensor([0.])
    """
    return judgements @ weights


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
