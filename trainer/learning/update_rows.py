"""The rows that each update of a step learns from, and the rows that have nothing to teach."""

from __future__ import annotations

import torch
from torch import Tensor

from ..recipes import Algorithm, UpdateSettings
from ..recipes.inputs import need
from .batch import Batch

LINEAR = frozenset(
    {
        "reinforce_loss",
        "ppo_clip_loss",
        "dapo_loss",
        "dual_clip_loss",
        "two_sided_clip_loss",
        "cispo_loss",
        "gspo_loss",
        "gspo_token_loss",
        "luspo_loss",
    }
)
"""Losses that are the advantage times a factor: a row without advantage has no gradient."""


def idle_rows(batch: Batch, algorithm: Algorithm, *, bonus: float) -> Tensor:
    """Return the rows whose gradient is zero whatever the model outputs, [B] bool.

    Such rows have no advantage anywhere, and the loss has no term for KL or entropy.

    Args:
        batch: the rows, with their advantages.
        algorithm: a resolved recipe.
        bonus: the weight of the entropy in the loss of this step.
    """
    settings = algorithm.recipe.algorithm
    if (
        settings.loss not in LINEAR
        or settings.kl.place == "loss"
        or bonus
        or settings.value is not None
    ):
        return torch.zeros(len(batch), dtype=torch.bool)
    advantages = need(batch.inputs.advantages, "advantages", settings.loss)
    return ((advantages * batch.mask) == 0).all(1)


def rows_of_updates(
    batch: Batch, updates: UpdateSettings, generator: torch.Generator
) -> list[Tensor]:
    """Return the indices of the rows of each update.

    Groups are not split, so that segments, and rollouts that a loss compares, stay together.
    Groups that train no token are left out, since an update of such groups alone would change
    nothing. If no group trains a token, there is one update, of a single group.

    Args:
        batch: the rows, with the groups they belong to.
        updates: how the updates of a step share its groups.
        generator: draws the order of the groups.
    """
    row_groups = need(batch.inputs.groups, "groups", "updates")
    trained = row_groups[batch.mask.any(1)].unique()
    groups = trained if len(trained) else row_groups.unique()[:1]
    shares: list[Tensor] = []
    for _ in range(updates.epochs):
        order = groups[torch.randperm(len(groups), generator=generator)]
        shares += [share for share in order.tensor_split(updates.splits) if len(share)]
    return [torch.isin(row_groups, share).nonzero().squeeze(1) for share in shares]
