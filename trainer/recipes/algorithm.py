"""A resolved recipe: all functions that a trainer calls, with options bound.

    algorithm = resolve(load_recipe("dapo"), max_tokens=256)
    shaped = algorithm.shape(rewards, groups, lengths=lengths)      # [N], one a rollout
    kept = algorithm.keep(shaped, groups, raw=rewards)              # [N] bool
    credit = algorithm.advantages(shaped, groups, mask, rollouts, kept=kept)  # [B, T]
    mask, weights = algorithm.correct(
        mask * kept[rollouts].unsqueeze(1), rollouts, old_logp=..., sampler_logp=...
    )
    total, weight, parts = algorithm.loss(
        logp=..., old_logp=..., advantages=..., mask=mask, weights=weights
    )

The order is: rewards are shaped, groups are filtered, means and standard deviations are taken
over the kept rollouts, and the kept rollouts make the loss. A rollout may be cut into several
rows (segments); `rollouts` [B] gives the rollout (0..N-1) of each row, so that every rollout
counts once in the statistics of its group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.errors import ConfigError

from ..algorithms.aggregation import Sum
from ..algorithms.surrogates.ratio import RatioStatistics
from .calls import Bound
from .credit import Credit, Rollouts, credit, spread
from .loss import Loss, movement, value_loss, whole_loss
from .recipe import Recipe, Shaping
from .returned import need, one_tensor

ALWAYS = frozenset(
    {
        "rewards",
        "groups",
        "mask",
        "rollouts",
        "logp",
        "advantages",
        "lengths",
        "segments",
        "token_rewards",
        "correct",
    }
)
"""Tensors that every trainer has, or that the resolved recipe computes."""


class Corrected(NamedTuple):
    """The trained tokens of a batch with weights."""

    mask: Tensor
    """[B, T]; also the tokens that the loss's denominator counts."""
    weights: Tensor | None
    """[B, T], detached; None means 1 everywhere."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """The functions of a recipe with options bound; made by `resolve`."""

    recipe: Recipe
    advantage_fn: Bound
    loss_fn: Bound
    agg: Bound | None
    weights_fn: Bound | None
    filters: tuple[Bound, ...]
    group_filter: Bound | None
    shaping: tuple[tuple[Shaping, Bound], ...]

    @property
    def needs(self) -> frozenset[str]:
        """Tensors that the recipe needs beyond rewards, groups, mask, rollouts, logp, advantages
        and lengths.
        """
        names = {name for at in self.needs_at.values() for name in at}
        settings = self.recipe.algorithm
        names |= {"ref_logp"} if settings.kl.place != "none" else set()
        names |= {"entropy"} if settings.entropy.coefficient else set()
        everything_counts = settings.overlong.in_loss and settings.overlong.in_statistics
        names |= set() if everything_counts else {"truncated"}
        names |= {"bootstrap"} if settings.credit.truncation == "value" else set()
        return frozenset(names - ALWAYS)

    @property
    def needs_at(self) -> dict[str, frozenset[str]]:
        """For each place in the recipe, the tensors that the functions in that place require."""
        places: dict[str, list[Bound | None]] = {
            "algorithm.advantage": [self.advantage_fn],
            "algorithm.corrections": [self.weights_fn, *self.filters],
            "algorithm.loss": [self.loss_fn],
            "sampling.filter": [self.group_filter],
            "shaping": [function for _, function in self.shaping],
        }
        return {
            place: frozenset(name for each in functions if each for name in each.required)
            for place, functions in places.items()
        }

    @property
    def compares(self) -> bool:
        """Whether the loss compares the rows of a group. Such rows must be passed together, and a
        row must be a whole rollout.
        """
        return "groups" in self.loss_fn.required

    def shape(self, rewards: Tensor, groups: Tensor, **tensors: Tensor) -> Tensor:
        """Shape the rewards of whole groups; returns [N].

        Args:
            rewards: [N], one a rollout.
            groups: [N] int.
            tensors: [N] each: lengths (tokens), truncated, and `correct`, which is rewards > 0 when
                not given.
        """
        shaped = rewards
        given = {"correct": (rewards > 0).to(rewards.dtype), **tensors, "groups": groups}
        for step, function in self.shaping:
            result = one_tensor(function({**given, "rewards": shaped}), function.name)
            shaped = result if step.combine == "replace" else shaped + step.weight * result
        return shaped

    def keep(self, rewards: Tensor, groups: Tensor, *, raw: Tensor | None = None) -> Tensor:
        """Return which rollouts are trained, [N] bool; a group is kept or dropped as a whole.

        Args:
            rewards: [N], shaped.
            groups: [N] int.
            raw: [N], the task's rewards, for recipes that filter by these; None means `rewards`.
        """
        if self.group_filter is None:
            return torch.ones_like(groups, dtype=torch.bool)
        read = rewards if raw is None or self.recipe.sampling.filter_by == "shaped" else raw
        found = self.group_filter({"rewards": read, "groups": groups})
        return one_tensor(found, self.group_filter.name)

    def advantages(
        self,
        rewards: Tensor,
        groups: Tensor,
        mask: Tensor,
        rollouts: Tensor,
        *,
        kept: Tensor | None = None,
        **tensors: Tensor,
    ) -> Credit:
        """Assign credit to every trained token.

        Means and standard deviations are taken over the kept rollouts; the others get 0.

        Args:
            rewards: [N], one a rollout, shaped.
            groups: [N] int.
            mask: [B, T] in {0, 1}.
            rollouts: [B] int, the rollout (0..N-1) of each row.
            kept: [N] bool, of `keep`; None keeps all.
            tensors: further tensors in `needs`: [N] for one a rollout (greedy_rewards, alpha, beta,
                truncated, bootstrap, and `correct`, which is rewards > 0 when not given), [B, T]
                for one a token (turn_rewards, turns, values, proxies, old_logp, ref_logp; weights,
                of `weigh`). `turn_rewards` hold each turn's reward on its last trained token (0
                when not given); the rest of `rewards` goes to the last trained token of the
                rollout. `token_rewards` replace both.
        """
        tensors.setdefault("correct", (rewards > 0).to(rewards.dtype))
        settings = self.recipe.algorithm
        counted = torch.ones_like(groups, dtype=torch.bool) if kept is None else kept
        if not settings.overlong.in_statistics:
            counted = counted & ~need(tensors, "truncated", "algorithm.overlong").bool()
        # Estimators would take means over nothing.
        if not bool(counted.any()):
            nothing = torch.zeros_like(mask)
            return Credit(nothing, nothing if settings.value is not None else None)
        mask = mask * counted[rollouts].unsqueeze(1)
        given = Rollouts(rewards, groups, mask, rollouts, counted, tensors)
        return credit(self.advantage_fn, settings, given)

    def weigh(self, mask: Tensor, rollouts: Tensor, **tensors: Tensor) -> Tensor | None:
        """Return the correction's weights, [B, T], or None for a recipe without weights.

        Args:
            mask: [B, T] in {0, 1}.
            rollouts: [B] int.
            tensors: as for `correct`.
        """
        if self.weights_fn is None:
            return None
        return one_tensor(self.weights_fn(_by_row(mask, rollouts, tensors)), self.weights_fn.name)

    def correct(
        self,
        mask: Tensor,
        rollouts: Tensor,
        generator: torch.Generator | None = None,
        /,
        **tensors: Tensor,
    ) -> Corrected:
        """Weight and filter the tokens of a batch once, before the first update.

        Args:
            mask: [B, T] in {0, 1}.
            rollouts: [B] int.
            generator: randomness for filters that draw; None uses torch's global generator.
            tensors: [B, T] old_logp, sampler_logp, advantages; [N] truncated, rewards; see `needs`.
        """
        settings = self.recipe.algorithm
        if not settings.overlong.in_loss:
            fine = ~need(tensors, "truncated", "algorithm.overlong").bool()
            mask = mask * fine[rollouts].unsqueeze(1)
        weights = self.weigh(mask, rollouts, **tensors)
        given = _by_row(mask, rollouts, tensors)
        kept = torch.ones_like(mask, dtype=torch.bool)
        for function in self.filters:
            drawn = {"generator": generator} if function.draws else {}
            found = one_tensor(function(given, **drawn), function.name).bool()
            kept = kept & (found if found.dim() == 2 else found.unsqueeze(1))
        # Dropped tokens leave the mask, and so the denominator; with `original` they stay in the
        # denominator with weight 0.
        if settings.corrections.denominator == "remaining":
            kept = kept & (weights > 0) if weights is not None else kept
            return Corrected(mask * kept, weights)
        if self.filters:
            weights = kept.to(mask.dtype) * (1.0 if weights is None else weights)
        return Corrected(mask, weights)

    def loss(self, **tensors: Tensor) -> Loss:
        """Compute the loss of a part of a batch, to be divided by the weight of the whole batch.

        Args:
            tensors: by the names in the signature of the recipe's loss, one row a segment: logp,
                old_logp, advantages, mask [B, T]; weights, sampler_logp, ref_logp, entropy;
                rewards, groups [B]. Where the algorithm `compares`, whole groups.

        Raises:
            ConfigError: a required tensor is missing.
        """
        return whole_loss(self.loss_fn, self.agg, self.recipe.algorithm, tensors)

    def moved(self, **tensors: Tensor) -> RatioStatistics:
        """Measure how far the policy has moved from the old policy.

        The statistics include the share of tokens that PPO's clip would stop, with the recipe's
        bounds (0.2 where the recipe has none).

        Args:
            tensors: logp, old_logp, advantages, mask [B, T].
        """
        return movement(self.loss_fn, tensors)

    def value_loss(self, **tensors: Tensor) -> Sum:
        """Compute the value head's loss, aggregated like the policy's, so that both share a
        weight.

        Args:
            tensors: values, old_values, returns, mask [B, T]; groups where the mean is by prompt.

        Raises:
            ConfigError: the recipe has no value head.
        """
        head = self.recipe.algorithm.value
        if head is None:
            raise ConfigError(f"recipe {self.recipe.name!r} has no value head ([algorithm.value])")
        return value_loss(self.agg, head.coefficient, head.value_clip, tensors)


def _by_row(mask: Tensor, rollouts: Tensor, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors for corrections, a row for each segment.

    Corrections run before the first update, when the policy still is the old policy.
    """
    rows = spread(tensors, rollouts)
    given = {"logp": rows["old_logp"], **rows} if "old_logp" in rows else rows
    return {**given, "mask": mask}
