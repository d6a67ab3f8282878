"""Keeps away from the weights what is not finite, with the rows at fault, and what goes too far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ludus.agent import Episode
from ludus.errors import UpdateRefused

from ..rollout.batch import Batch

PROBED_TOKENS, PROBED_ROWS = 512, 8
"""Trained tokens, and at least so many rows, on which the divergence of an update is measured."""
TRIES = 4
"""Shares of an update that are tried before all of it is taken back."""
AIM, LEAST = 0.1, 0.1
"""The part of the bound that a share aims at, and the least part of a share that the next one is.
"""
MAX_NAMED = 8
"""Number of rows that a refusal names; more are seldom needed to see what the rows have in common.
"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An update that was not made, with the rows and episodes of the update."""

    reason: str
    batch: Batch
    """The rows at fault, or all rows where nothing tells them apart."""
    episodes: list[Episode]
    """The episodes of the rows."""
    remedy: str = "lower trainer.lr, or mend what is not finite"
    """What to do."""

    @property
    def names(self) -> list[str]:
        """Names of the episodes: the group, and the number of the rollout within the group."""
        return [
            f"{episode.group or episode.task} rollout {episode.index}" for episode in self.episodes
        ]

    def told(self, where: str) -> str:
        """Return the refusal in words, with the episodes by task and rollout, and with `where`, the
        file that holds the episodes.
        """
        shown = ", ".join(
            f"task {episode.task} (group {episode.group}, rollout {episode.index})"
            for episode in self.episodes[:MAX_NAMED]
        )
        more = len(self.episodes) - MAX_NAMED
        return f"{self.reason}; from {shown}{f' and {more} more' if more > 0 else ''}; see {where}"


ScaleBack = Callable[[float, float], None]
"""Given the share of an update that the weights have, leaves another share of it in them."""


class StepBound:
    """Holds the policy within a divergence of the policy before a step.

    The divergence is measured after each update, on some rows of the step, before anybody samples
    from the weights. An update that goes beyond the bound is scaled back, as a line search does
    (Schulman et al. 2015, TRPO, appendix C): the divergence grows with the square of a small step.

    Args:
        score: returns the log-probabilities [B, T] of rows by the weights as they are.
        batch: the rows of the step.
        rows: [R] int, the rows that are trained.
        most: the largest divergence in nats per token; 0 bounds nothing and measures nothing.
        before: [B, T], the log-probabilities of the policy before the step; None scores the rows
            that are probed.
    """

    def __init__(
        self,
        score: Callable[[Batch], Tensor],
        batch: Batch,
        rows: Tensor,
        most: float,
        before: Tensor | None = None,
    ) -> None:
        self.score = score
        self.most = most
        self.divergence = 0.0
        """Estimate (k3) of KL(before || now) after the last update, in nats per token."""
        self.shares: list[float] = []
        """The share of each update that was kept."""
        self.used = bool(most) and bool(batch.mask[rows].any())
        if self.used:
            tokens = batch.mask[rows].sum(1)
            trained = rows[tokens > 0]
            evenly = min(float(tokens.sum()) / PROBED_TOKENS, len(trained) / PROBED_ROWS)
            probed = trained[:: max(1, int(evenly))]
            self._probe = batch.take(probed)
            width = self._probe.ids.shape[1]  # a batch of few rows may be narrower
            self._before = score(self._probe) if before is None else before[probed, :width]

    def hold(self, scale_back: ScaleBack) -> None:
        """Scale the update that was just made back until the policy is within the bound."""
        if not self.used:
            return
        share, tries = 1.0, 0
        while (divergence := self._measured()) > self.most and share:
            closer = max(LEAST, math.sqrt(AIM * self.most / divergence))
            kept, tries = share * closer if tries < TRIES else 0.0, tries + 1
            scale_back(share, kept)
            share = kept
        self.divergence = divergence
        self.shares.append(share)

    @property
    def reached(self) -> bool:
        """Whether the last update was scaled back, so that another would be too."""
        return bool(self.shares) and self.shares[-1] < 1.0

    def _measured(self) -> float:
        trained = self._probe.mask.bool()
        moved = (self.score(self._probe) - self._before)[trained]
        mean = float((moved.exp() - 1 - moved).mean())
        return mean if math.isfinite(mean) else math.inf


def refuse_broken(
    tensors: Mapping[str, Tensor | None],
    batch: Batch,
    rollouts: Tensor,
    *,
    by: str = "",
    remedy: str = "",
) -> None:
    """Refuse a batch in which a number of a trained token is not finite.

    Args:
        tensors: named tensors, [B, T] per token or [N] per rollout; None is skipped.
        batch: the batch, whose mask says which tokens are trained.
        rollouts: [B] int, the rollout of each row.
        by: the function that computed the tensors, and its place in the recipe.
        remedy: what to do about a number that is not finite.

    Raises:
        UpdateRefused: with the names of the tensors, the function and the rows.
    """
    trained = batch.mask.bool()
    reasons: list[str] = []
    rows: set[int] = set()
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        by_row = tensor[rollouts].unsqueeze(1) if tensor.dim() == 1 else tensor
        broken = ~by_row.isfinite() & trained
        if bool(broken.any()):
            reasons.append(f"{name} of {int(broken.sum())} of {int(trained.sum())} trained tokens")
            rows |= set(broken.any(1).nonzero().flatten().tolist())
    if reasons:
        computed = f", computed by {by}" if by else ""
        raise UpdateRefused(f"not finite: {', '.join(reasons)}{computed}", sorted(rows), remedy)


def is_finite(parameters: Sequence[torch.nn.Parameter]) -> bool:
    """Whether every gradient is finite; parameters without a gradient do not count."""
    return all(
        bool(parameter.grad.isfinite().all())
        for parameter in parameters
        if parameter.grad is not None
    )


def broken_units(
    units: Sequence[list[int]], breaks: Callable[[list[int]], bool], *, most: int = MAX_NAMED
) -> list[int]:
    """Find the rows at fault by halving.

    Args:
        units: rows that are never split.
        breaks: whether a set of rows gives a loss or a gradient that is not finite.
        most: largest number of units to find.

    Returns:
        The rows of at most `most` units that break alone. If no unit breaks alone, the smallest set
        that was found to break together; empty if all units together do not break.
    """
    broken: list[int] = []
    count = 0

    def search(part: Sequence[list[int]]) -> bool:
        nonlocal count
        rows = [row for unit in part for row in unit]
        if count >= most or not breaks(rows):
            return False
        if len(part) == 1:
            count += 1
            broken.extend(rows)
            return True
        middle = len(part) // 2
        # A list, and not `or`: both halves are searched, since both may hold broken rows.
        halves = [search(part[:middle]), search(part[middle:])]
        if not any(halves):
            count += 1
            broken.extend(rows)  # neither half breaks by itself, but their sum is not finite
        return True

    search(units)
    return sorted(broken)


def told(loss: float, norm: float) -> str:
    """Return why an update is refused; empty if its loss and gradient are finite.

    >>> told(0.5, float("nan"))
    'the gradient is not finite (norm nan, loss 0.5)'
    """
    if not math.isfinite(loss):
        return f"the loss is not finite ({loss:g})"
    if not math.isfinite(norm):
        return f"the gradient is not finite (norm {norm:g}, loss {loss:g})"
    return ""
