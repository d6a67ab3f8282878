"""Credit assignment: from rewards to an advantage for every token.

Rewards stay where they were earned: the reward of a turn on the last trained token of the turn,
the final reward (a verifier's, or shaping) on the last trained token of the rollout. An
estimator that takes token rewards sees a rollout as one chain, however many rows it was cut
into. Its steps are tokens or turns, as the recipe says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from .. import algorithms
from ..algorithms.masked import blank
from .calls import Bound
from .chains import Chains, Turns, earlier
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
    """All that was given, with rewards, groups, mask and rollouts as before `counted`."""


def credit(estimator: Bound, settings: AlgorithmSettings, given: Rollouts) -> Credit:
    """Return the estimator's credit for each token, whitened if the recipe says so."""
    if "token_rewards" in estimator.required:
        made = _by_reward(estimator, settings, given)
    elif "mask" in estimator.required:
        made = _by_token(estimator, given)
    elif "segments" in estimator.required:
        # A number for each row, [B]; 0 for rows of rollouts that do not count.
        rows = given.counted[given.owners]
        numbers = given.counted.cumsum(0) - 1  # numbers the counted rollouts 0, 1, ...
        chosen = replace(_chosen(given), segments=numbers[given.owners[rows]])
        made = Credit(
            blank(_placed(one_tensor(estimator(chosen), estimator.name), rows), given.mask), None
        )
    else:
        found = one_tensor(estimator(_chosen(given)), estimator.name)
        each = _placed(found, given.counted)
        made = Credit(blank(each[given.owners], given.mask), None)
    if not settings.whiten:
        return made
    return made._replace(advantages=algorithms.whiten(made.advantages, given.mask))


def _chosen(given: Rollouts) -> Inputs:
    """Return the inputs with a value for each rollout, of the counted rollouts alone."""
    chosen = given.inputs.only(Axis.ROLLOUT)
    if chosen.lengths is None:
        # The trained tokens of each rollout over all rows, [N].
        mask = given.mask
        zeros = torch.zeros(len(given.rewards), dtype=mask.dtype, device=mask.device)
        chosen = replace(chosen, lengths=zeros.index_add(0, given.owners, mask.sum(1)))
    return chosen.each(lambda value: value[given.counted])


def _placed(found: Tensor, where: Tensor) -> Tensor:
    """Return `found` where `where` is true, and 0 elsewhere."""
    everywhere = torch.zeros(len(where), dtype=found.dtype, device=found.device)
    everywhere[where] = found
    return everywhere


def _by_token(estimator: Bound, given: Rollouts) -> Credit:
    """Return a number for each token, from rewards of whole rollouts."""
    rows = replace(given.inputs.by_row(given.owners), mask=_counted_mask(given))
    return _called(estimator, rows)


def _by_reward(estimator: Bound, settings: AlgorithmSettings, given: Rollouts) -> Credit:
    """Return a number for each token, from token rewards: the estimator sees each rollout as a
    single row.
    """
    mask = _counted_mask(given)
    chains = Chains.of(mask, given.owners, len(given.rewards))
    rewards = _token_rewards(settings, given, mask)
    chained = replace(
        replace(given.inputs, token_rewards=rewards, mask=mask).each(chains.join, Axis.TOKEN),
        rollouts=torch.arange(len(given.rewards), device=mask.device),
    )
    if settings.credit.discount == "turn":
        made = _by_turn(estimator, chained)
    else:
        made = _called(estimator, chained)
    returns, read = made.returns, made.value_mask
    return Credit(
        chains.split(made.advantages, mask),
        None if returns is None else chains.split(returns, mask),
        None if read is None else chains.split(read, mask),
    )


def _by_turn(estimator: Bound, chained: Inputs) -> Credit:
    """Run the estimator with turns as steps: a reward, a value and a shared advantage for each
    turn.
    """
    where = 'algorithm.credit.discount = "turn"'
    turns = Turns(need(chained.turns, "turns", where), need(chained.mask, "mask", where))
    made = _called(
        estimator,
        replace(
            # what a turn has one of, such as a value, is read where the turn starts
            chained.each(turns.at_starts, Axis.TOKEN),
            mask=turns.steps,
            token_rewards=turns.sums(need(chained.token_rewards, "token_rewards", where)),
        ),
    )
    advantages = turns.spread(made.advantages)
    if made.returns is None:
        return Credit(advantages, None)
    starts = turns.starts.to(advantages.dtype)
    return Credit(advantages, turns.spread(made.returns) * starts, starts)


def _called(estimator: Bound, inputs: Inputs) -> Credit:
    found = estimator(inputs)
    if isinstance(found, tuple):
        return Credit(*two_tensors(found, estimator.name))
    return Credit(one_tensor(found, estimator.name), None)


def _token_rewards(settings: AlgorithmSettings, given: Rollouts, mask: Tensor) -> Tensor:
    """Return [B, T]: the rewards of turns at the turns' ends, and the rest of each rollout's reward
    at the rollout's end.
    """
    inputs = given.inputs
    if inputs.token_rewards is not None:
        rewards = inputs.token_rewards
    else:
        earned = torch.zeros_like(mask) if inputs.turn_rewards is None else inputs.turn_rewards
        sums = torch.zeros_like(given.rewards).index_add(0, given.owners, earned.sum(1))
        rest = given.rewards - sums
        rewards = earned + blank(rest[given.owners], _last_token(mask, given.owners))
    if settings.kl.place != "reward":
        return rewards
    return algorithms.kl_penalised_rewards(
        rewards,
        need(inputs.old_logp, "old_logp", "algorithm.kl"),
        need(inputs.ref_logp, "ref_logp", "algorithm.kl"),
        mask,
        coefficient=settings.kl.coefficient,
    )


def _counted_mask(given: Rollouts) -> Tensor:
    """Return [B, T]: the trained tokens of the rollouts that count in the statistics."""
    return given.mask * given.counted[given.owners].unsqueeze(1)


def _last_token(mask: Tensor, owners: Tensor) -> Tensor:
    """Return [B, T] bool: the last trained token of each rollout."""
    trained = mask.bool()
    tokens = trained.sum(1)
    later = earlier(tokens.flip(0), owners.flip(0)).flip(0)  # in later rows of the rollout
    remaining = trained.flip(1).cumsum(1).flip(1) + later.unsqueeze(1)
    return trained & (remaining == 1)
