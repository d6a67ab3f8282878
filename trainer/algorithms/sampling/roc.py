"""GRPO-RoC: oversample, then keep all kinds of failures but only the cleanest successes."""

from __future__ import annotations

import torch
from torch import Tensor

from ..groups import floating


def roc_penalties(
    tool_calls: Tensor, tool_errors: Tensor, answers: Tensor, turns: Tensor, malformed: Tensor
) -> Tensor:
    """Untidiness of a rollout: the share of failed tool calls plus a format penalty, [B].

    `errors / calls` (0.5 without a call) `+ min((answers - 1) / turns, 1)` (1 when malformed).

    Args:
        tool_calls: [B] int.
        tool_errors: [B] int.
        answers: [B] int, answer blocks written; one is right.
        turns: [B] int.
        malformed: [B] bool.

    Source: rStar2-Agent, arXiv 2508.20722, the authors' code.

    >>> two, yes = torch.tensor([2, 0]), torch.tensor([False, True])
    >>> roc_penalties(two, torch.tensor([1, 0]), torch.tensor([3, 1]), torch.tensor([4, 1]), yes)
    tensor([1.0000, 1.5000], dtype=torch.float64)
    """
    errors = torch.where(tool_calls > 0, floating(tool_errors) / tool_calls.clamp(min=1), 0.5)
    form = (floating(answers - 1) / turns.clamp(min=1)).clamp(0, 1)
    return errors + torch.where(malformed.bool(), 1.0, form)


def roc_selection_mask(
    rewards: Tensor,
    penalties: Tensor,
    *,
    keep: int,
    least: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """GRPO-RoC's choice within an oversampled group: failures uniformly, successes by lowest
    penalty.

    Both kinds keep their share of the group, `round(n * keep / N)`, and at least `least` of each
    kind present; rounding never makes the total differ from `keep` (in the authors' code it can, by
    one).

    Args:
        rewards: [N] of one group; above 0 is a success.
        penalties: [N], of `roc_penalties`.
        keep: rollouts to keep.
        least: the fewest rollouts to keep of each kind that occurs.
        generator: draws among the failures.

    Returns:
        [N] bool with exactly `min(keep, N)` True.

    Source: rStar2-Agent, arXiv 2508.20722.

    >>> rewards, penalties = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0.9, 0.1, 0.5, 0.0])
    >>> roc_selection_mask(rewards, penalties, keep=2)
    tensor([False,  True, False,  True])
    """
    keep = min(keep, len(rewards))
    right = (rewards > 0).nonzero().flatten()
    wrong = (rewards <= 0).nonzero().flatten()
    n_right = _share(len(right), len(wrong), keep, least)
    best = right[penalties[right].argsort(stable=True)[:n_right]]
    drawn = wrong[torch.randperm(len(wrong), generator=generator)[: keep - n_right]]
    kept = torch.zeros(len(rewards), dtype=torch.bool, device=rewards.device)
    kept[torch.cat([best, drawn])] = True
    return kept


def _share(right: int, wrong: int, keep: int, least: int) -> int:
    """Return how many kept rollouts are right, limited by the supply of both kinds."""
    wanted = round(right * keep / max(right + wrong, 1))
    floor = max(keep - wrong, min(least, right, keep))
    ceiling = min(right, keep - min(least, wrong, keep)) if keep > 1 else min(right, keep)
    return min(max(wanted, floor), max(ceiling, keep - wrong))
