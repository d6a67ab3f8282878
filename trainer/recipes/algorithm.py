"""A resolved recipe: all functions that a trainer calls, with options bound.

    algorithm = resolve(load_recipe("dapo"), max_tokens=256)
    played = Inputs(rewards=..., groups=..., lengths=..., rollouts=..., mask=...)
    shaped = replace(played, rewards=algorithm.shape(played))       # [N], one per rollout
    kept = algorithm.keep(shaped, raw=rewards)                      # [N] bool
    credit = algorithm.advantages(shaped, kept=kept)                # [B, T]
    trained = mask * kept[rollouts].unsqueeze(1)
    mask, weights = algorithm.correct(replace(played, mask=trained, old_logp=...))
    total, weight, parts = algorithm.loss(
        Inputs(logp=..., old_logp=..., advantages=credit.advantages, mask=mask, weights=weights)
    )

The order is: rewards are shaped, groups are filtered, means and standard deviations are taken
over the kept rollouts, and the kept rollouts make the loss. A rollout may be cut into several
rows (segments); `Inputs.rollouts` [B] gives the rollout (0..N-1) of each row, so that every rollout
counts once in the statistics of its group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from ludus.errors import ConfigError

from ..algorithms.aggregation import Sum
from ..algorithms.surrogates.ratio import RatioStatistics
from .calls import Bound
from .chains import joined
from .credit import Credit, Rollouts, credit
from .inputs import Inputs, Made, Place, made_by, need
from .loss import BY_TOKEN, BY_TOKEN_AGGREGATIONS, Loss, movement, value_loss, whole_loss
from .recipe import Recipe, Shaping
from .returned import one_tensor


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
        """The names of tensors that the recipe needs, beyond what every trainer has."""
        names = {name for at in self.needs_at.values() for name in at}
        settings = self.recipe.algorithm
        names |= {"ref_logp"} if settings.kl.place != "none" else set()
        names |= {"entropy"} if settings.entropy.counts else set()
        everything_counts = settings.overlong.in_loss and settings.overlong.in_statistics
        names |= set() if everything_counts else {"truncated"}
        names |= {"bootstrap"} if settings.credit.truncation == "value" else set()
        return frozenset(names - made_by(Made.ALWAYS))

    @property
    def needs_at(self) -> dict[Place, frozenset[str]]:
        """For each place in the recipe, the tensors that the functions in that place require."""
        places: dict[Place, list[Bound | None]] = {
            Place.ADVANTAGE: [self.advantage_fn],
            Place.CORRECTIONS: [self.weights_fn, *self.filters],
            Place.LOSS: [self.loss_fn],
            Place.FILTER: [self.group_filter],
            Place.SHAPING: [function for _, function in self.shaping],
        }
        return {
            place: frozenset(name for each in functions if each for name in each.required)
            for place, functions in places.items()
        }

    @property
    def compares(self) -> bool:
        """Whether the loss compares the rollouts of a group. Their rows must be passed together."""
        return "groups" in self.loss_fn.required

    @property
    def whole(self) -> bool:
        """Whether the loss reads more of a rollout than one token at a time: a ratio of the whole
        sequence, its length, what came before a token. Its rows must be passed together.
        """
        agg, weights = self.agg, self.weights_fn
        by_token = agg is None or agg.owned or agg.name in BY_TOKEN_AGGREGATIONS
        in_pass = self.weighs_rows_alone and weights is not None
        level = weights.options.get("level", "token") if in_pass and weights else "token"
        return self.loss_fn.name not in BY_TOKEN or not by_token or level != "token"

    def shape(self, inputs: Inputs) -> Tensor:
        """Shape the rewards of whole groups; returns [N].

        Args:
            inputs: rewards and groups; lengths and truncated for functions that read these.
        """
        inputs = _with_correct(inputs)
        shaped = need(inputs.rewards, "rewards", Place.SHAPING)
        for step, function in self.shaping:
            result = one_tensor(function(replace(inputs, rewards=shaped)), function.name)
            shaped = result if step.combine == "replace" else shaped + step.weight * result
        return shaped

    def keep(self, inputs: Inputs, *, raw: Tensor | None = None) -> Tensor:
        """Return which rollouts are trained, [N] bool; a group is kept or dropped as a whole.

        Args:
            inputs: rewards, shaped, and groups.
            raw: [N], the task's rewards, for recipes that filter by these; None means the rewards
                of `inputs`.
        """
        if self.group_filter is None:
            return torch.ones_like(need(inputs.groups, "groups", Place.FILTER), dtype=torch.bool)
        if raw is not None and self.recipe.sampling.filter_by != "shaped":
            inputs = replace(inputs, rewards=raw)
        return one_tensor(self.group_filter(inputs), self.group_filter.name)

    def advantages(self, inputs: Inputs, *, kept: Tensor | None = None) -> Credit:
        """Assign credit to every trained token.

        Means and standard deviations are taken over the kept rollouts; the others get 0.

        Args:
            inputs: rewards, shaped; groups, mask and rollouts; and those of `needs`. Turn rewards
                stay on their turns, and the rest of a rollout's reward goes to the last trained
                token of the rollout; token rewards replace both.
            kept: [N] bool, of `keep`; None keeps all.
        """
        inputs, where = _with_correct(inputs), Place.ADVANTAGE
        rewards, groups = (
            need(inputs.rewards, "rewards", where),
            need(inputs.groups, "groups", where),
        )
        mask, owners = need(inputs.mask, "mask", where), need(inputs.rollouts, "rollouts", where)
        settings = self.recipe.algorithm
        counted = torch.ones_like(groups, dtype=torch.bool) if kept is None else kept
        if not settings.overlong.in_statistics:
            counted = counted & ~_truncated(inputs)
        if not bool(counted.any()):
            nothing = torch.zeros_like(mask)
            return Credit(nothing, nothing if settings.value is not None else None)
        mask = mask * counted[owners].unsqueeze(1)
        rollouts = Rollouts(rewards, groups, mask, owners, counted, inputs)
        return credit(self.advantage_fn, settings, rollouts)

    def weigh(self, inputs: Inputs) -> Tensor | None:
        """Return the correction's weights, [B, T], or None for a recipe without weights.

        Args:
            inputs: as for `correct`.
        """
        return None if self.weights_fn is None else self.weigh_rows(_by_row(inputs))

    def weigh_rows(self, rows: Inputs) -> Tensor:
        """Return the weights of a recipe that has some, for inputs with a row for each segment."""
        assert self.weights_fn is not None, "a recipe with weights"
        inputs, chains = joined(rows)
        weights = one_tensor(self.weights_fn(inputs), self.weights_fn.name)
        return weights if chains is None else chains.split(weights, _mask(rows))

    @property
    def weighs_rows_alone(self) -> bool:
        """Whether a rollout's weights depend on that rollout alone, and nothing but the loss reads
        them.
        """
        weights = self.weights_fn
        return (
            weights is not None
            and weights.name == "tis_weights"
            and not weights.options.get("normalise", False)
            and not self.filters
            and self.recipe.algorithm.corrections.denominator != "remaining"
            and "weights" not in self.advantage_fn.optional
        )

    def correct(
        self,
        inputs: Inputs,
        generator: torch.Generator | None = None,
        *,
        weigh: bool = True,
    ) -> Corrected:
        """Weight and filter the tokens of a batch once, before the first update.

        Args:
            inputs: mask and rollouts; old_logp, sampler_logp, advantages, truncated and rewards
                for functions that read these; see `needs`.
            generator: randomness for filters that draw; None uses torch's global generator.
            weigh: False leaves out the weights, which the caller computes by `weigh_rows`.
        """
        settings, where = self.recipe.algorithm, Place.CORRECTIONS
        mask = need(inputs.mask, "mask", where)
        if not settings.overlong.in_loss:
            rollouts = need(inputs.rollouts, "rollouts", where)
            mask = mask * ~_truncated(inputs)[rollouts].unsqueeze(1)
            inputs = replace(inputs, mask=mask)
        weights = self.weigh(inputs) if weigh else None
        inputs, chains = joined(_by_row(inputs))
        kept = torch.ones_like(mask, dtype=torch.bool)
        for function in self.filters:
            drawn = {"generator": generator} if function.draws else {}
            chosen = one_tensor(function(inputs, **drawn), function.name).bool()
            if chains is not None:
                chosen = chains.split(chosen, mask)
            kept = kept & (chosen if chosen.dim() == 2 else chosen.unsqueeze(1))
        if settings.corrections.denominator == "remaining":
            kept = kept & (weights > 0) if weights is not None else kept
            return Corrected(mask * kept, weights)
        if self.filters:
            weights = kept.to(mask.dtype) * (1.0 if weights is None else weights)
        return Corrected(mask, weights)

    def loss(self, inputs: Inputs, *, entropy_coefficient: float | None = None) -> Loss:
        """Compute the loss of a part of a batch, to be divided by the weight of the whole batch.

        Args:
            inputs: what the recipe's loss reads, one row a segment: logp, old_logp, advantages,
                mask [B, T]; weights, sampler_logp, ref_logp, entropy; rewards, groups, rollouts
                [B], and the counts of the whole batch (rollout_tokens, rollout_rows). Where the
                algorithm `compares`, whole groups; where it needs them `whole`, whole rollouts.
            entropy_coefficient: the weight of the entropy bonus where it follows a target; None
                takes the recipe's coefficient.

        Raises:
            ConfigError: a required tensor is missing.
        """
        settings = self.recipe.algorithm
        if entropy_coefficient is not None:
            bonus = msgspec.structs.replace(settings.entropy, coefficient=entropy_coefficient)
            settings = msgspec.structs.replace(settings, entropy=bonus)
        return whole_loss(self.loss_fn, self.agg, settings, _with_correct(inputs))

    def moved(self, inputs: Inputs) -> RatioStatistics:
        """Measure how far the policy has moved from the old policy.

        The statistics include the share of tokens that PPO's clip would stop, with the recipe's
        bounds (0.2 where the recipe has none).

        Args:
            inputs: logp, old_logp, advantages, mask [B, T].
        """
        return movement(self.loss_fn, inputs)

    def value_loss(self, inputs: Inputs) -> Sum:
        """Compute the value head's loss, aggregated like the policy's, so that both share a
        weight.

        Args:
            inputs: values, old_values, returns, mask [B, T]; groups where the mean is by prompt.

        Raises:
            ConfigError: the recipe has no value head.
        """
        head = self.recipe.algorithm.value
        if head is None:
            raise ConfigError(f"recipe {self.recipe.name!r} has no value head ([algorithm.value])")
        return value_loss(self.agg, head.coefficient, head.value_clip, inputs)


def _with_correct(inputs: Inputs) -> Inputs:
    """Return the inputs with `correct`, by the sign of the rewards if nothing else says."""
    if inputs.correct is not None or inputs.rewards is None:
        return inputs
    return replace(inputs, correct=(inputs.rewards > 0).to(inputs.rewards.dtype))


def _mask(inputs: Inputs) -> Tensor:
    return need(inputs.mask, "mask", Place.CORRECTIONS)


def _truncated(inputs: Inputs) -> Tensor:
    return need(inputs.truncated, "truncated", "algorithm.overlong").bool()


def _by_row(inputs: Inputs) -> Inputs:
    """Return the inputs of corrections, a row for each segment.

    Corrections run before the first update, when the policy still is the old policy.
    """
    rows = inputs.by_row(need(inputs.rollouts, "rollouts", Place.CORRECTIONS))
    return rows if rows.logp is not None else replace(rows, logp=rows.old_logp)
