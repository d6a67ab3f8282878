"""Advantages from token-level rewards: returns-to-go, REINFORCE++ and generalised advantage
estimation. All [B, T].

A row may have holes: untrained slots (tool output) between trained ones. By default they are
skipped: the step after a token is the next *trained* token, and neither return nor value chain is
cut. A reward on an untrained slot is not seen; put a turn's reward on its last trained token.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..groups import (
    Singleton,
    first_rows,
    floating,
    group_index,
    group_statistics,
    settle_singletons,
)
from ..masked import blank, whiten

Holes = Literal["skip", "step"]
"""Whether an untrained slot inside a row is no step at all, or a step of reward 0 and value 0."""


def returns_to_go(token_rewards: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Discounted sum of this and later rewards: `G_t = r_t + gamma G_{t+1}` over trained tokens.

    Args:
        token_rewards: [B, T].
        mask: [B, T] in {0, 1}; holes are skipped.
        gamma: discount per trained token.

    Returns:
        [B, T], 0 in untrained slots.

    Source: Williams 1992; that holes are skipped is ours.

    The first turn keeps its credit across a tool's output (some trainers multiply the running
    return by the mask and lose it):

    >>> returns_to_go(torch.tensor([[0.0, 0.0, 0.0, 1.0]]), torch.tensor([[1, 0, 0, 1]]))
    tensor([[1., 0., 0., 1.]])
    """
    rewards, trained = blank(floating(token_rewards), mask), mask.bool()
    running = (
        torch.zeros_like(rewards[:, 0]) if rewards.shape[1] else rewards.new_zeros(len(rewards))
    )
    columns: list[Tensor] = []
    for t in reversed(range(rewards.shape[1])):
        running = torch.where(trained[:, t], rewards[:, t] + gamma * running, running)
        columns.append(running)
    return blank(torch.stack(columns[::-1], dim=1), mask) if columns else rewards


def reinforce_pp_advantages(
    token_rewards: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    ddof: int = 1,
    eps: float = 1e-8,
    floor: Literal["add", "clamp"] = "add",
) -> Tensor:
    """REINFORCE++: returns-to-go, whitened over all trained tokens of the global batch.

    `A_t = (G_t - mean) / sqrt(var + eps)`. A KL penalty, if any, is already in the rewards
    (`kl_penalised_rewards`).

    Args:
        token_rewards: [B, T].
        mask: [B, T] in {0, 1}.
        gamma: discount per trained token.
        ddof: as in `whiten`: 1 verl, 0 OpenRLHF.
        eps: as in `whiten`.
        floor: as in `whiten`: "add" verl, "clamp" OpenRLHF.

    Source: arXiv 2501.03262.

    >>> r, mask = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[1, 1], [1, 0]])
    >>> reinforce_pp_advantages(r, mask)
    tensor([[ 0.5774,  0.5774],
            [-1.1547,  0.0000]])
    """
    returns = returns_to_go(token_rewards.detach(), mask, gamma=gamma)
    return whiten(returns, mask, ddof=ddof, eps=eps, floor=floor)


def reinforce_pp_baseline_advantages(
    rewards: Tensor,
    groups: Tensor,
    mask: Tensor,
    *,
    ddof: int = 1,
    eps: float = 1e-8,
    floor: Literal["add", "clamp"] = "add",
    singleton: Singleton = "zero",
    rollouts: Tensor | None = None,
) -> Tensor:
    """REINFORCE++-baseline: rewards centred in each group, then whitened over the batch's tokens
    (also DLER).

    `A = whiten(r_i - mean_g)`; the statistics weigh tokens, so a long answer weighs more in them.

    Args:
        rewards: [B].
        groups: [B] int.
        mask: [B, T] in {0, 1}.
        ddof: as in `whiten`.
        eps: as in `whiten`.
        floor: as in `whiten`.
        singleton: what a group of one brings to the whitening: "zero", or its "raw" reward.
        rollouts: [B] int, the rollout each row is a segment of, so that it counts once in its
            group's mean; every row is its own, when not given.

    Returns:
        [B, T].

    Source: arXiv 2501.03262; DLER, arXiv 2510.15110.

    >>> mask = torch.tensor([[1, 1], [1, 0]])
    >>> reinforce_pp_baseline_advantages(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), mask)
    tensor([[ 0.5774,  0.5774],
            [-1.1547,  0.0000]])
    """
    if rollouts is None:
        rollouts = torch.arange(len(groups), device=groups.device)
    first = first_rows(rollouts)
    of_rollouts, of_group = rewards[first], groups[first]
    centred = group_statistics(of_rollouts, of_group).centred
    settled = settle_singletons(centred, of_rollouts, of_group, singleton)[group_index(rollouts)]
    return whiten(blank(settled, mask), mask, ddof=ddof, eps=eps, floor=floor)


def gae_advantages(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    holes: Holes = "skip",
    bootstrap: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation: (advantages, returns).

    `delta_t = r_t + gamma V_{t+1} - V_t`, `A_t = delta_t + gamma lam A_{t+1}`, return `A_t + V_t`.

    Args:
        token_rewards: [B, T].
        values: [B, T], of the state before each token; detached.
        mask: [B, T] in {0, 1}.
        gamma: discount per step.
        lam: the weight of longer estimates; 0.95 in papers, 1.0 in verl's configuration.
        holes: "skip" (verl) or "step" (OpenRLHF): untrained slots between trained ones are no
            steps, or steps of reward 0 and value 0.
        bootstrap: [B], the value after the last trained token; 0 when not given (the episode ended
            there).

    Returns:
        Two tensors [B, T], 0 in untrained slots. The advantages are not whitened; `whiten` does
        that, and is not meant for the returns.

    Source: arXiv 1506.02438, equation 16; cut after T steps, arXiv 1707.06347, equation 11.

    >>> r, v = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.2, 0.5, 0.8]])
    >>> gae_advantages(r, v, torch.ones(1, 3))
    (tensor([[0.7655, 0.4900, 0.2000]]), tensor([[0.9655, 0.9900, 1.0000]]))

    Raises:
        ValueError: `holes` is neither "skip" nor "step".
    """
    steps = _steps(mask, holes)
    return _estimated(token_rewards, values, mask, steps, gamma=gamma, lam=lam, bootstrap=bootstrap)


def egae_advantages(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    truncated: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    holes: Holes = "skip",
) -> tuple[Tensor, Tensor]:
    """Extended GAE of Truncated PPO: a row cut at the end of a window is bootstrapped with the
    row's last value.

    As `gae_advantages`, with `V(s_end) := V(s_{end - 1})` in truncated rows, so that their last
    delta is `r + (gamma - 1) V`; finished rows end in value 0.

    Args:
        token_rewards: [B, T].
        values: [B, T].
        mask: [B, T] in {0, 1}.
        truncated: [B] bool, rows whose answer goes on beyond the window.
        gamma: discount per step.
        lam: see `gae_advantages`.
        holes: see `gae_advantages`.

    Returns:
        (advantages, returns). The method trains the value on finished rows only, with Monte-Carlo
        returns.

    Source: T-PPO, arXiv 2506.15050, through a note that quotes it.

    >>> r, v = torch.zeros(1, 3), torch.tensor([[0.2, 0.5, 0.8]])
    >>> egae_advantages(r, v, torch.ones(1, 3), torch.tensor([True]))[0]
    tensor([[0.5850, 0.3000, 0.0000]])
    >>> egae_advantages(r, v, torch.ones(1, 3), torch.tensor([False]))[0]
    tensor([[-0.1370, -0.4600, -0.8000]])
    """
    bootstrap = torch.where(truncated.bool(), _last(blank(values.detach(), mask), mask), 0.0)
    return gae_advantages(
        token_rewards, values, mask, gamma=gamma, lam=lam, holes=holes, bootstrap=bootstrap
    )


def compaction_advantages(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    rollouts: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 0.0,
    length_factor: float = 1.5,
) -> tuple[Tensor, Tensor]:
    """Cross-trajectory GAE of CompactionRL: GAE inside each segment, as if the reward came at its
    end, shrunk by the tokens that came after the segment.

    `A_{s,t} = (gamma lam_s)^{N_s} GAE_{s,t}`, with N_s the trained tokens in later segments of the
    rollout and `lam_s = 1 - 1 / (length_factor L_s)`, L_s the segment's trained tokens.

    Args:
        rewards: [B], the reward of each row's rollout.
        values: [B, T], of the state before each token; detached.
        mask: [B, T] in {0, 1}; holes are skipped.
        rollouts: [B] int, the rollout each row is a segment of; the rows of one are in time order.
        gamma: discount per step.
        lam: a fixed lambda for all segments; 0, the default, takes lam_s, as the paper has it.
        length_factor: 1.5 in the paper.

    Returns:
        (advantages, returns), both [B, T] and 0 in untrained slots. The returns are those of the
        segments alone, without the factor; the paper's targets of the value head were not read.

    Source: arXiv 2607.05378, through two notes that quote it. `gae_advantages` in a recipe sees the
    rows of a rollout joined instead, with values read on both sides of each boundary.

    Segments of 2 and 1 tokens with lam = 0.5: the later one has 1 - 0.6; inside the earlier one
    `0.5 + 0.5 * (1 - 0.5)` and `0.5`, halved once since one token came after.

    >>> values, mask = torch.tensor([[0.0, 0.5], [0.6, 0.0]]), torch.tensor([[1, 1], [1, 0]])
    >>> owners = torch.tensor([0, 0])
    >>> compaction_advantages(torch.ones(2), values, mask, owners, lam=0.5)[0]
    tensor([[0.3750, 0.2500],
            [0.4000, 0.0000]])

    Raises:
        ValueError: `length_factor` is not above 0. Below 1, lam_s of a single token is 0.
    """
    if length_factor <= 0:
        raise ValueError(f"length_factor is above 0, got {length_factor}")
    trained = mask.bool()
    tokens = trained.sum(1)
    scale = floating(values)
    own = (1 - 1 / (length_factor * tokens.clamp(min=1).to(scale.dtype))).clamp(min=0)
    traces = torch.full_like(own, lam) if lam else own
    # Counted from the end of the row, the last trained token is the first.
    is_last = trained & (trained.flip(1).cumsum(1).flip(1) == 1)
    token_rewards = blank(rewards.to(scale.dtype).unsqueeze(1).expand_as(scale), is_last)
    local, returns = _estimated(
        token_rewards, values, mask, trained, gamma=gamma, lam=traces, bootstrap=None
    )
    order = torch.arange(len(rollouts), device=rollouts.device)
    # [B, B]: whether the column's row is a later segment of the same rollout as the row's.
    is_later = (rollouts.unsqueeze(1) == rollouts) & (order.unsqueeze(1) < order)
    after = (is_later * tokens).sum(1)
    return local * (gamma * traces).pow(after).unsqueeze(1), returns


def _estimated(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    steps: Tensor,
    *,
    gamma: float,
    lam: float | Tensor,
    bootstrap: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return (advantages, returns) over `steps`, [B, T] bool; lam is a number, or [B]."""
    rewards = blank(floating(token_rewards).detach(), mask)
    state_values = blank(values.detach(), mask)
    next_value = rewards.new_zeros(len(rewards)) if bootstrap is None else bootstrap.detach()
    running = torch.zeros_like(next_value)
    columns: list[Tensor] = []
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + gamma * next_value - state_values[:, t]
        # An untrained slot keeps the running values: the hole is skipped.
        running = torch.where(steps[:, t], delta + gamma * lam * running, running)
        next_value = torch.where(steps[:, t], state_values[:, t], next_value)
        columns.append(running)
    advantages = blank(torch.stack(columns[::-1], dim=1), mask) if columns else rewards
    return advantages, advantages + state_values


def _steps(mask: Tensor, holes: str) -> Tensor:
    trained = mask.bool()
    if holes == "skip":
        return trained
    if holes != "step":
        raise ValueError(f"holes is 'skip' or 'step', got {holes!r}")
    # Every slot up to the last trained token is a step; the padding behind it is not.
    return trained.flip(1).cumsum(1).flip(1) > 0


def _last(values: Tensor, mask: Tensor) -> Tensor:
    if not mask.shape[1]:
        return values.new_zeros(len(values))
    # The greatest place of a trained token; 0, where `values` are blank, in a row without any.
    places = torch.arange(mask.shape[1], device=mask.device) * mask.bool()
    return values.gather(1, places.argmax(1, keepdim=True)).squeeze(1)


def distillation_advantages(
    old_logp: Tensor, ref_logp: Tensor, mask: Tensor, *, bound: float = 0.0
) -> Tensor:
    """On-policy distillation: by how much the teacher finds a sampled token likelier than the
    policy, `log t(a) - log s(a)`, at each token by itself.

    With the score function its mean is minus the gradient of `KL(s || t)` at each state that the
    policy has reached; what a token does to later states is left out (discount 0).

    Args:
        old_logp: [B, T], of the policy.
        ref_logp: [B, T], of the teacher.
        mask: [B, T] in {0, 1}.
        bound: the greatest size of an advantage, in nats; 0 bounds nothing.

    Returns:
        [B, T].

    Source: generalized knowledge distillation, arXiv 2306.13649, with samples of the student and
    the reverse divergence; as a per-token advantage since "On-policy distillation" (2025).

    >>> s, t = torch.tensor([[0.5]]).log(), torch.tensor([[0.25]]).log()
    >>> distillation_advantages(s, t, torch.ones(1, 1))
    tensor([[-0.6931]])
    """
    gap = blank(ref_logp - old_logp, mask).detach()
    return gap.clamp(-bound, bound) if bound else gap
