"""A recipe resolved: the functions a trainer calls, in order: rewards are shaped, groups are
filtered, means and spreads are taken over what is kept, and what is kept makes the loss.

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

A rollout may be cut into several rows (segments); `rollouts` [B] says which of the N rollouts a row
is part of, so that each counts once in the statistics of its group.
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
"""What a trainer always has, or the resolver makes."""


class Corrected(NamedTuple):
    """What is trained, and how much it weighs."""

    mask: Tensor
    """[B, T]; also what the loss's denominator counts."""
    weights: Tensor | None
    """[B, T], detached; None is 1 everywhere."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Every function of a recipe, bound to its options. Made by `resolve`."""

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
        """The tensors it asks for beyond rewards, groups, mask, rollouts, logp, advantages and
        lengths.
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
        """The tensors that the functions of each place of the recipe ask for."""
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
        """Whether the loss compares the rows of a group: they must then be handed to it together,
        and a row must be a whole rollout.
        """
        return "groups" in self.loss_fn.required

    def shape(self, rewards: Tensor, groups: Tensor, **tensors: Tensor) -> Tensor:
        """Shape the rewards of whole groups.

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
        """Which rollouts are trained, [N] bool: a group is kept or dropped whole.

        Args:
            rewards: [N], shaped.
            groups: [N] int.
            raw: [N], what the task gave, for recipes that filter by it; None is `rewards`.
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
        """Give credit to every trained token. Means and spreads are taken over the rollouts that
        are kept; the others get 0.

        Args:
            rewards: [N], one a rollout, shaped.
            groups: [N] int.
            mask: [B, T] in {0, 1}.
            rollouts: [B] int, the rollout (0..N-1) of each row.
            kept: [N] bool, of `keep`; None keeps all.
            tensors: what else `needs` names: [N] for one a rollout (greedy_rewards, alpha, beta,
                truncated, bootstrap, and `correct`, which is rewards > 0 when not given), [B, T]
                for one a token (turn_rewards, turns, values, proxies, old_logp, ref_logp; weights,
                of `weigh`). `turn_rewards` hold each turn's reward on its last trained token, 0
                without them; what they leave of `rewards` is on the last trained token of the
                rollout. `token_rewards` take the place of both.
        """
        tensors.setdefault("correct", (rewards > 0).to(rewards.dtype))
        settings = self.recipe.algorithm
        counted = torch.ones_like(groups, dtype=torch.bool) if kept is None else kept
        if not settings.overlong.in_statistics:
            counted = counted & ~need(tensors, "truncated", "algorithm.overlong").bool()
        if not bool(counted.any()):
            nothing = torch.zeros_like(mask)
            return Credit(nothing, nothing if settings.value is not None else None)
        mask = mask * counted[rollouts].unsqueeze(1)
        given = Rollouts(rewards, groups, mask, rollouts, counted, tensors)
        return credit(self.advantage_fn, settings, given)

    def weigh(self, mask: Tensor, rollouts: Tensor, **tensors: Tensor) -> Tensor | None:
        """The correction's weights, [B, T]; None where the recipe has none.

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
        """Weigh and filter the tokens of a batch once, before its first update.

        Args:
            mask: [B, T] in {0, 1}.
            rollouts: [B] int.
            generator: of filters that draw; torch's own without it.
            tensors: [B, T] old_logp, sampler_logp, advantages; [N] truncated, rewards; as `needs`
                says.
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
        if settings.corrections.denominator == "remaining":
            kept = kept & (weights > 0) if weights is not None else kept
            return Corrected(mask * kept, weights)
        if self.filters:
            weights = kept.to(mask.dtype) * (1.0 if weights is None else weights)
        return Corrected(mask, weights)

    def loss(self, **tensors: Tensor) -> Loss:
        """The loss of one part of a batch, to be divided by the weight of the whole.

        Args:
            tensors: by the names in the signature of the recipe's loss, one row a segment: logp,
                old_logp, advantages, mask [B, T]; weights, sampler_logp, ref_logp, entropy;
                rewards, groups [B]. Where the algorithm `compares`, whole groups.

        Raises:
            ConfigError: one it needs is not there.
        """
        return whole_loss(self.loss_fn, self.agg, self.recipe.algorithm, tensors)

    def moved(self, **tensors: Tensor) -> RatioStatistics:
        """How far the policy has moved from the old one, and what share of its tokens PPO's clip
        with the recipe's bounds (0.2 where it has none) would stop.

        Args:
            tensors: logp, old_logp, advantages, mask [B, T].
        """
        return movement(self.loss_fn, tensors)

    def value_loss(self, **tensors: Tensor) -> Sum:
        """The value head's loss, aggregated like the policy's, so that both have one weight.

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
    """What corrections read: a row each, and before the first update the policy is the old one."""
    rows = spread(tensors, rollouts)
    given = {"logp": rows["old_logp"], **rows} if "old_logp" in rows else rows
    return {**given, "mask": mask}
