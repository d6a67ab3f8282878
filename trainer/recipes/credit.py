"""Credit assignment: from rewards to an advantage for every token.

Rewards stay where they were earned: the reward of a turn on the last trained token of the turn,
the final reward (a verifier's, or shaping) on the last trained token of the rollout. An
estimator that takes token rewards sees a rollout as one chain, however many rows it was cut
into. Its steps are tokens or turns, as the recipe says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from .. import algorithms
from ..algorithms.masked import blank
from .calls import Bound
from .chains import Chains, Turns, earlier, joined
from .inputs import Axis, Inputs, need
from .recipe import AlgorithmSettings
from .returned import one_tensor, two_tensors


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


def credit(estimator: Bound, settings: AlgorithmSettings, rollouts: Rollouts) -> Credit:
    """Return the estimator's credit for each token, whitened if the recipe says so."""
    if "token_rewards" in estimator.required:
        result = _by_reward(estimator, settings, rollouts)
    elif "mask" in estimator.required:
        # A number for each token, from rewards of whole rollouts.
        mask = _counted_mask(rollouts)
        by_row = rollouts.inputs.by_row(rollouts.owners)
        chained, chains = joined(replace(by_row, mask=mask, rollouts=rollouts.owners))
        result = _called(estimator, chained)
        if chains is not None:
            result = result.each(lambda value: chains.split(value, mask))
    elif "segments" in estimator.required:
        # A number for each row, [B]; 0 for rows of rollouts that do not count.
        rows = rollouts.counted[rollouts.owners]
        numbers = rollouts.counted.cumsum(0) - 1  # numbers the counted rollouts 0, 1, ...
        chosen = replace(_chosen(rollouts), segments=numbers[rollouts.owners[rows]])
        values = one_tensor(estimator(chosen), estimator.name, count=int(rows.sum()))
        result = Credit(blank(_placed(values, rows), rollouts.mask), None)
    else:
        count = int(rollouts.counted.sum())
        values = one_tensor(estimator(_chosen(rollouts)), estimator.name, count=count)
        each = _placed(values, rollouts.counted)
        result = Credit(blank(each[rollouts.owners], rollouts.mask), None)
    if not settings.whiten:
        return result
    return result._replace(advantages=algorithms.whiten(result.advantages, rollouts.mask))


def _chosen(rollouts: Rollouts) -> Inputs:
    """Return the inputs with a value for each rollout, of the counted rollouts alone."""
    chosen = rollouts.inputs.only(Axis.ROLLOUT)
    if chosen.lengths is None:
        # The trained tokens of each rollout over all rows, [N].
        mask = rollouts.mask
        zeros = torch.zeros(len(rollouts.rewards), dtype=mask.dtype, device=mask.device)
        chosen = replace(chosen, lengths=zeros.index_add(0, rollouts.owners, mask.sum(1)))
    return chosen.each(lambda value: value[rollouts.counted])


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
    result = estimator(inputs)
    if isinstance(result, tuple):
        return Credit(*two_tensors(result, estimator.name))
    return Credit(one_tensor(result, estimator.name), None)


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
        rest = rollouts.rewards - sums
        rewards = earned + blank(rest[rollouts.owners], _last_token(mask, rollouts.owners))
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


def _last_token(mask: Tensor, owners: Tensor) -> Tensor:
    """Return [B, T] bool: the last trained token of each rollout."""
    trained = mask.bool()
    tokens = trained.sum(1)
    later = earlier(tokens.flip(0), owners.flip(0)).flip(0)  # in later rows of the rollout
    remaining = trained.flip(1).cumsum(1).flip(1) + later.unsqueeze(1)
    return trained & (remaining == 1)
