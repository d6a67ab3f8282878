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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from ludus.errors import ConfigError

from .. import algorithms
from ..algorithms.aggregation import Owners, Sum
from ..algorithms.masked import blank
from ..algorithms.surrogates.ratio import RatioStatistics
from .calls import Bound, one_tensor, options_for, two_tensors
from .chains import Chains, Turns, earlier, joined
from .inputs import Axis, Inputs, Made, Place, made_by, need
from .loss import BY_TOKEN, BY_TOKEN_AGGREGATIONS, Loss, movement, value_loss, whole_loss
from .recipe import AlgorithmSettings, Recipe, Shaping


class Corrected(NamedTuple):
    """The trained tokens of a batch with weights."""

    mask: Tensor
    """[B, T]; also the tokens that the loss's denominator counts."""
    weights: Tensor | None
    """[B, T], detached; None means 1 everywhere."""


class Credit(NamedTuple):
    """The credit of each token."""

    advantages: Tensor
    """[B, T]: the advantage of each token."""
    returns: Tensor | None
    """[B, T], the value head's targets; None without a value head."""
    value_mask: Tensor | None = None
    """[B, T] in {0, 1}: the tokens at which the value head is read and trained; None means every
    trained token.
    """

    def each(self, change: Callable[[Tensor], Tensor]) -> Credit:
        """Return the credit with `change` applied to each tensor."""
        returns, read = self.returns, self.value_mask
        return Credit(
            change(self.advantages),
            None if returns is None else change(returns),
            None if read is None else change(read),
        )


class Assigned(NamedTuple):
    """What a recipe makes of a step: which rollouts are trained, and what the loss reads."""

    shaped: Tensor
    """[N]: the rewards after shaping."""
    kept: Tensor
    """[N] bool: the rollouts that pass the recipe's filter of groups."""
    mask: Tensor
    """[B, T] in {0, 1}: the tokens that are trained."""
    inputs: Inputs
    """What the loss reads beside the models' outputs, with the values of rollouts repeated for each
    row and the counts of the whole batch.
    """
    together: Tensor | None
    """[B] int: rows with the same number share a pass; None where a row may be alone in one."""
    value_scale: float = 1.0
    """The weight of the policy's term over that of the value's term. They differ where the value
    head is read at some tokens only.
    """


class PassOutcome(NamedTuple):
    """What a pass adds to the gradient, and how far the policy has moved."""

    total: Tensor
    """The sum of the loss over the rows of the pass, the value's term included."""
    weight: Tensor
    moved: RatioStatistics | None


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Rewards of N rollouts and the B rows that belong to these."""

    rewards: Tensor
    """[N]: the reward of each rollout, after shaping."""
    groups: Tensor
    """[N] int: the group of each rollout."""
    mask: Tensor
    """[B, T] in {0, 1}."""
    owners: Tensor
    """[B] int, the rollout of each row."""
    counted: Tensor
    """[N] bool: whether the rollout counts in the statistics."""
    inputs: Inputs
    """Every tensor that a function may ask for. Its rewards, groups, mask and rollouts are those of
    all N rollouts, whether `counted` or not.
    """


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
    max_tokens: int | None = None
    """The longest response, for options given as a share of it."""

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
        """Whether the loss compares the rollouts of a group, whose rows must then share a pass."""
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
        return _assigned(self.advantage_fn, settings, rollouts)

    def credit(
        self,
        known: Inputs,
        *,
        excluded: Tensor | None = None,
        generator: torch.Generator | None = None,
        weigh: bool = True,
    ) -> Assigned:
        """Shape, filter, assign credit and correct, in this order, for a whole step.

        Args:
            known: what was played, and what models say of it before the step's first update.
            excluded: [N] bool, rollouts that count in the statistics and stay out of the loss; None
                excludes none.
            generator: as for `correct`.
            weigh: as for `correct`.
        """
        known, where = _with_correct(known), Place.ADVANTAGE
        rollouts, mask = need(known.rollouts, "rollouts", where), need(known.mask, "mask", where)
        groups = need(known.groups, "groups", where)
        shaped = self.shape(known)
        kept = self.keep(Inputs(rewards=shaped, groups=groups), raw=known.rewards)
        if "weights" in self.advantage_fn.optional:
            known = replace(known, weights=self.weigh(known))
        credit = self._assigned_credit(replace(known, rewards=shaped), kept)
        trained = kept if excluded is None else kept & ~excluded
        corrected = self.correct(
            replace(
                known, mask=mask * trained[rollouts].unsqueeze(1), advantages=credit.advantages
            ),
            generator,
            weigh=weigh,
        )
        by_row = replace(known, rewards=shaped).only(Axis.ROLLOUT).by_row(rollouts)
        inputs = self._read_by_loss(known, by_row, credit, corrected)
        several = len(rollouts.unique()) < len(rollouts)
        whole = rollouts if self.whole and several else None
        together = inputs.groups if self.compares else whole
        if credit.value_mask is None:
            inputs = replace(inputs, rollout_values=inputs.rollout_tokens)
            return Assigned(shaped, kept, corrected.mask, inputs, together)
        read = corrected.mask * credit.value_mask
        inputs = replace(inputs, rollout_values=Owners.of(rollouts, read).tokens)
        scale = self._weight_of_values(inputs, corrected.mask, read)
        return Assigned(shaped, kept, corrected.mask, inputs, together, scale)

    def _read_by_loss(
        self, known: Inputs, by_row: Inputs, credit: Credit, corrected: Corrected
    ) -> Inputs:
        """Return what the loss reads beside the models' outputs.

        Args:
            known: as for `credit`.
            by_row: the values of rollouts, shaped, for each row.
            credit: the credit of each token.
            corrected: the trained tokens with their weights.
        """
        rollouts = need(known.rollouts, "rollouts", Place.LOSS)
        groups, mask = need(by_row.groups, "groups", Place.LOSS), corrected.mask
        owners, to_sampler = Owners.of(rollouts, mask), self.recipe.algorithm.ratio_to == "sampler"
        return Inputs(
            advantages=credit.advantages,
            returns=credit.returns,
            value_mask=credit.value_mask,
            old_values=known.values,
            weights=corrected.weights,
            old_logp=known.sampler_logp if to_sampler else known.old_logp,
            ref_logp=known.ref_logp,
            proxy_logp=known.proxy_logp,
            groups=groups,
            rewards=by_row.rewards,
            correct=by_row.correct,
            rollouts=rollouts,
            rollout_tokens=owners.tokens,
            rollout_rows=owners.rows,
            prompt_tokens=Owners.of(groups, mask).tokens,
            **self._chosen_tokens(mask, credit.advantages, known),
        )

    def _assigned_credit(self, inputs: Inputs, kept: Tensor) -> Credit:
        """Assign credit with statistics of each environment, where a run has several; rollouts
        beside their group have what they were granted.
        """
        granted = inputs.granted
        if granted is None:
            return self._of_environments(inputs, kept)
        credit = self._of_environments(inputs, kept & granted.isnan())
        rollouts = need(inputs.rollouts, "rollouts", Place.ADVANTAGE)
        mask = need(inputs.mask, "mask", Place.ADVANTAGE)
        given = granted[rollouts].unsqueeze(1).to(credit.advantages.dtype)
        advantages = torch.where(given.isnan(), credit.advantages, given * mask)
        return credit._replace(advantages=advantages)

    def _of_environments(self, inputs: Inputs, counted: Tensor) -> Credit:
        """Assign credit to the rollouts that count, each environment by itself."""
        environments = inputs.environments
        if environments is None:
            return self.advantages(inputs, kept=counted)
        own = [
            self.advantages(inputs, kept=counted & (environments == number))
            for number in environments.unique()
        ]
        returns = [each.returns for each in own if each.returns is not None]
        read = [each.value_mask for each in own if each.value_mask is not None]
        return Credit(
            torch.stack([each.advantages for each in own]).sum(0),
            torch.stack(returns).sum(0) if returns else None,
            torch.stack(read).amax(0) if read else None,
        )

    def _chosen_tokens(self, mask: Tensor, advantages: Tensor, known: Inputs) -> dict[str, Tensor]:
        """Return the tensors for losses that mark or scale tokens by comparing all of them.

        Computed here, for the whole batch: splits into updates and passes change nothing.
        """
        loss, tensors = self.loss_fn, dict[str, Tensor]()
        if "marked" in loss.optional:
            logp = need(known.old_logp, "old_logp", loss.name)
            share: dict[str, Any] = options_for(algorithms.covariance_mask, loss)
            tensors["marked"] = algorithms.covariance_mask(logp, advantages, mask, **share)
        if "selected" in loss.optional:
            logp = need(known.old_logp, "old_logp", loss.name)
            tensors["selected"] = algorithms.low_probability_mask(logp, advantages, mask)
        if "scale" in loss.optional:
            entropy = need(known.entropy, "entropy", loss.name)
            options: dict[str, Any] = options_for(algorithms.hapo_entropy_scale, loss)
            tensors["scale"] = algorithms.hapo_entropy_scale(entropy, mask, **options)
        return tensors

    def _weight_of_values(self, inputs: Inputs, mask: Tensor, read: Tensor) -> float:
        """Return the weight of the policy's term over that of the value's term.

        Only the weights matter here, so that values are zeros.
        """
        zero = torch.zeros_like(mask)
        inputs = replace(inputs, values=zero, old_values=zero, returns=zero)
        policy_weight = self.value_loss(replace(inputs, mask=mask, rollout_values=None))[1]
        value_weight = self.value_loss(replace(inputs, mask=read))[1]
        return float(policy_weight / value_weight) if value_weight else 1.0

    def weigh(self, inputs: Inputs) -> Tensor | None:
        """Return the correction's weights, [B, T], or None for a recipe without weights.

        Args:
            inputs: as for `correct`.
        """
        return None if self.weights_fn is None else self.weigh_rows(_by_row(inputs))

    def weigh_rows(self, rows: Inputs) -> Tensor:
        """Return the weights of a recipe that has some, for inputs with a row for each segment."""
        assert self.weights_fn is not None, "a recipe with weights"
        inputs, chains = joined(rows, self.weights_fn)
        weights = one_tensor(self.weights_fn(inputs), self.weights_fn.name)
        if chains is None:
            return weights
        return chains.split(weights, need(rows.mask, "mask", Place.CORRECTIONS))

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
        self, inputs: Inputs, generator: torch.Generator | None = None, *, weigh: bool = True
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
        rows = _by_row(inputs)
        kept = torch.ones_like(mask, dtype=torch.bool)
        for function in self.filters:
            inputs, chains = joined(rows, function)
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

    def on_pass(
        self,
        inputs: Inputs,
        *,
        weigh: bool = False,
        entropy_coefficient: float | None = None,
        value_scale: float = 1.0,
        measure: bool = False,
    ) -> PassOutcome:
        """Weigh, measure and sum the loss of a pass.

        Args:
            inputs: as for `loss`; values, where a value head is trained.
            weigh: whether the correction's weights are computed here, by the learner in the pass.
            entropy_coefficient: as for `loss`.
            value_scale: as `Assigned` has it.
            measure: whether to measure how far the policy has moved.
        """
        if weigh:
            inputs = replace(inputs, weights=self.weigh_rows(inputs))
        moved = self.moved(inputs) if measure else None
        loss = self.loss(inputs, entropy_coefficient=entropy_coefficient)
        if inputs.values is None or inputs.returns is None:
            return PassOutcome(loss.total, loss.weight, moved)
        # The value's term has the policy's aggregation, and so, once it is scaled, its weight.
        read = need(inputs.mask, "mask", Place.LOSS)
        read = read if inputs.value_mask is None else read * inputs.value_mask
        value_total, _ = self.value_loss(replace(inputs, mask=read))
        return PassOutcome(loss.total + value_scale * value_total, loss.weight, moved)

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
            inputs: values, old_values, returns, mask [B, T]; groups where the mean is by prompt;
                rollouts, with rollout_values where the rows are a part of the batch.

        Raises:
            ConfigError: the recipe has no value head.
        """
        head = self.recipe.algorithm.value
        if head is None:
            raise ConfigError(f"recipe {self.recipe.name!r} has no value head ([algorithm.value])")
        # What a sequence holds here are the tokens at which values are read.
        inputs = replace(inputs, rollout_tokens=inputs.rollout_values)
        return value_loss(self.agg, head.coefficient, head.value_clip, inputs)


def _assigned(estimator: Bound, settings: AlgorithmSettings, rollouts: Rollouts) -> Credit:
    """Return the estimator's credit for each token, whitened if the recipe says so."""
    if "parents" in estimator.required:
        result = Credit(_by_node(estimator, rollouts), None)
    elif "token_rewards" in estimator.required:
        result = _by_reward(estimator, settings, rollouts)
    elif "mask" in estimator.required:
        # A number for each token, from rewards of whole rollouts.
        mask = _counted_mask(rollouts)
        by_row = rollouts.inputs.by_row(rollouts.owners)
        chained, chains = joined(replace(by_row, mask=mask, rollouts=rollouts.owners), estimator)
        result = _called(estimator, chained)
        if chains is not None:
            result = result.each(lambda value: chains.split(value, mask))
    elif "segments" in estimator.required:
        # A number for each row, [B]; 0 for rows of rollouts that do not count.
        rows = rollouts.counted[rollouts.owners]
        numbers = rollouts.counted.cumsum(0) - 1  # numbers the counted rollouts 0, 1, ...
        chosen = replace(_chosen(rollouts), segments=numbers[rollouts.owners[rows]])
        values = one_tensor(estimator(chosen), estimator.name, shape=[int(rows.sum())])
        result = Credit(_spread(_placed(values, rows), rollouts.mask), None)
    else:
        count = int(rollouts.counted.sum())
        values = one_tensor(estimator(_chosen(rollouts)), estimator.name, shape=[count])
        each = _placed(values, rollouts.counted)
        result = Credit(_spread(each[rollouts.owners], rollouts.mask), None)
    if not settings.whiten:
        return result
    return result._replace(advantages=algorithms.whiten(result.advantages, rollouts.mask))


def _by_node(estimator: Bound, rollouts: Rollouts) -> Tensor:
    """Return [B, T]: the advantage of each token's node, times the node's weight.

    Nodes without a leaf that counts leave the tree, so that values and weights are those of what
    lives.
    """
    inputs, where = rollouts.inputs, Place.ADVANTAGE
    parents = need(inputs.parents, "parents", where)
    nodes, leaves = need(inputs.nodes, "nodes", where), need(inputs.leaves, "leaves", where)
    ends, living = leaves[rollouts.counted], torch.zeros_like(parents, dtype=torch.bool)
    ways = ends
    while len(ways):
        living[ways] = True
        ways = parents[ways]
        ways = ways[ways >= 0]
    numbers = living.cumsum(0) - 1
    above = parents[living]
    above = torch.where(above >= 0, numbers[above.clamp(min=0)], -1)
    earned = rollouts.rewards.new_zeros(int(living.sum()))
    earned[numbers[ends]] = rollouts.rewards[rollouts.counted]
    played_for_value = torch.zeros_like(living[living])
    if inputs.continuations is not None:
        played_for_value[numbers[ends]] = inputs.continuations[rollouts.counted]
    known = Inputs(rewards=earned, parents=above, continuations=played_for_value)
    values = one_tensor(estimator(known), estimator.name, shape=[len(earned)])
    weights = algorithms.tree_node_weights(above, played_for_value)
    weighed = values * weights.to(values.dtype)
    everywhere = _placed(weighed, living)
    sampled = torch.where(nodes >= 0, everywhere[nodes.clamp(min=0)], everywhere.new_zeros(()))
    return sampled * rollouts.mask


def _chosen(rollouts: Rollouts) -> Inputs:
    """Return the inputs with a value for each rollout, of the counted rollouts alone."""
    chosen = rollouts.inputs.only(Axis.ROLLOUT)
    if chosen.lengths is None:
        # The trained tokens of each rollout over all rows, [N].
        mask = rollouts.mask
        zeros = torch.zeros(len(rollouts.rewards), dtype=mask.dtype, device=mask.device)
        chosen = replace(chosen, lengths=zeros.index_add(0, rollouts.owners, mask.sum(1)))
    return chosen.each(lambda value: value[rollouts.counted])


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """Return the number of each row, [B], at its trained tokens, and 0 elsewhere."""
    return torch.where(mask.bool(), values.unsqueeze(1), values.new_zeros(()))


def _placed(values: Tensor, places: Tensor) -> Tensor:
    """Return `values`, in order, at the true entries of `places`, and 0 elsewhere."""
    everywhere = torch.zeros(len(places), dtype=values.dtype, device=values.device)
    everywhere[places] = values
    return everywhere


def _by_reward(estimator: Bound, settings: AlgorithmSettings, rollouts: Rollouts) -> Credit:
    """Return a number for each token, from token rewards: the estimator sees each rollout as a
    single row.
    """
    mask = _counted_mask(rollouts)
    chains = Chains.of(mask, rollouts.owners, len(rollouts.rewards))
    rewards = _token_rewards(settings, rollouts, mask)
    chained = replace(
        replace(rollouts.inputs, token_rewards=rewards, mask=mask).each(chains.join, Axis.TOKEN),
        rollouts=torch.arange(len(rollouts.rewards), device=mask.device),
    )
    if settings.credit.discount == "turn":
        result = _by_turn(estimator, chained)
    else:
        result = _called(estimator, chained)
    return result.each(lambda value: chains.split(value, mask))


def _by_turn(estimator: Bound, chained: Inputs) -> Credit:
    """Run the estimator with turns as steps: a reward, a value and a shared advantage for each
    turn.
    """
    where = 'algorithm.credit.discount = "turn"'
    turns = Turns(need(chained.turns, "turns", where), need(chained.mask, "mask", where))
    result = _called(
        estimator,
        replace(
            # what a turn has one of, such as a value, is read where the turn starts
            chained.each(turns.at_starts, Axis.TOKEN),
            mask=turns.steps,
            token_rewards=turns.sums(need(chained.token_rewards, "token_rewards", where)),
        ),
    )
    advantages = turns.spread(result.advantages)
    if result.returns is None:
        return Credit(advantages, None)
    starts = turns.starts.to(advantages.dtype)
    return Credit(advantages, turns.spread(result.returns) * starts, starts)


def _called(estimator: Bound, inputs: Inputs) -> Credit:
    result, name = estimator(inputs), estimator.name
    shape = need(inputs.mask, "mask", Place.ADVANTAGE).shape
    if isinstance(result, tuple):
        advantages, returns = two_tensors(result, name)
        return Credit(one_tensor(advantages, name, shape=shape), one_tensor(returns, name))
    return Credit(one_tensor(result, name, shape=shape), None)


def _token_rewards(settings: AlgorithmSettings, rollouts: Rollouts, mask: Tensor) -> Tensor:
    """Return [B, T]: the rewards of turns at the turns' ends, and the rest of each rollout's reward
    at the rollout's end.
    """
    inputs = rollouts.inputs
    if inputs.token_rewards is not None:
        rewards = inputs.token_rewards
    else:
        earned = torch.zeros_like(mask) if inputs.turn_rewards is None else inputs.turn_rewards
        sums = torch.zeros_like(rollouts.rewards).index_add(0, rollouts.owners, earned.sum(1))
        of_rollout = rollouts.rewards - sums
        trained = mask.bool()
        tokens = trained.sum(1)
        # Trained tokens in later rows of the rollout.
        later = earlier(tokens.flip(0), rollouts.owners.flip(0)).flip(0)
        remaining = trained.flip(1).cumsum(1).flip(1) + later.unsqueeze(1)
        last_token = trained & (remaining == 1)
        rewards = earned + blank(of_rollout[rollouts.owners], last_token)
    if settings.kl.place != "reward":
        return rewards
    return algorithms.kl_penalised_rewards(
        rewards,
        need(inputs.old_logp, "old_logp", "algorithm.kl"),
        need(inputs.ref_logp, "ref_logp", "algorithm.kl"),
        mask,
        coefficient=settings.kl.coefficient,
    )


def _counted_mask(rollouts: Rollouts) -> Tensor:
    """Return [B, T]: the trained tokens of the rollouts that count in the statistics."""
    return rollouts.mask * rollouts.counted[rollouts.owners].unsqueeze(1)


def _with_correct(inputs: Inputs) -> Inputs:
    """Return the inputs with `correct`, by the sign of the rewards if nothing else says."""
    if inputs.correct is not None or inputs.rewards is None:
        return inputs
    return replace(inputs, correct=(inputs.rewards > 0).to(inputs.rewards.dtype))


def _truncated(inputs: Inputs) -> Tensor:
    return need(inputs.truncated, "truncated", "algorithm.overlong").bool()


def _by_row(inputs: Inputs) -> Inputs:
    """Return the inputs of corrections, a row for each segment.

    Corrections run before the first update, when the policy still is the old policy.
    """
    rows = inputs.by_row(need(inputs.rollouts, "rollouts", Place.CORRECTIONS))
    return rows if rows.logp is not None else replace(rows, logp=rows.old_logp)
