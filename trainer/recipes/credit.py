"""From rewards of rollouts to advantages of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .. import algorithms
from ..algorithms.masked import blank
from .calls import Bound
from .recipe import AlgorithmSettings
from .returned import need, one_tensor, two_tensors

BY_ROLLOUT = frozenset(
    {"rewards", "groups", "truncated", "alpha", "beta", "greedy_rewards", "correct"}
)
"""Tensors given as [N], one a rollout."""


class Credit(NamedTuple):
    """What each token is worth."""

    advantages: Tensor
    """[B, T]."""
    returns: Tensor | None
    """[B, T], the value head's targets; None without one."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Rewards of N rollouts and the B rows they were cut into."""

    rewards: Tensor
    """[N]."""
    groups: Tensor
    """[N] int."""
    mask: Tensor
    """[B, T] in {0, 1}."""
    owners: Tensor
    """[B] int, the rollout of each row."""
    counted: Tensor
    """[N] bool: in the statistics."""
    extra: Mapping[str, Tensor]
    """By name: [N] for one a rollout, [B, T] for one a token."""


def credit(estimator: Bound, settings: AlgorithmSettings, given: Rollouts) -> Credit:
    """What `estimator` says of each token, whitened where the recipe asks for it."""
    if "mask" in estimator.required:
        made = _by_token(estimator, settings, given)
    elif "segments" in estimator.required:
        made = Credit(blank(_by_segment(estimator, given), given.mask), None)
    else:
        made = Credit(blank(_by_rollout(estimator, given)[given.owners], given.mask), None)
    if not settings.whiten:
        return made
    return Credit(algorithms.whiten(made.advantages, given.mask), made.returns)


def spread(tensors: Mapping[str, Tensor], owners: Tensor) -> dict[str, Tensor]:
    """Tensors of rollouts given to each of their rows."""
    return {key: value[owners] if key in BY_ROLLOUT else value for key, value in tensors.items()}


def _by_rollout(estimator: Bound, given: Rollouts) -> Tensor:
    """One number a rollout, [N]; 0 for those that do not count."""
    found = one_tensor(estimator(_chosen(given)), estimator.name)
    return _placed(found, given.counted)


def _by_segment(estimator: Bound, given: Rollouts) -> Tensor:
    """One number a row, [B]; 0 for those of rollouts that do not count."""
    rows = given.counted[given.owners]
    numbers = given.counted.cumsum(0) - 1  # of the rollouts that count, among themselves
    chosen = {**_chosen(given), "segments": numbers[given.owners[rows]]}
    return _placed(one_tensor(estimator(chosen), estimator.name), rows)


def _chosen(given: Rollouts) -> dict[str, Tensor]:
    """What is known of each rollout that counts."""
    each = {"lengths": _lengths(given), **given.extra}
    each = {key: value for key, value in each.items() if len(value) == len(given.groups)}
    each |= {"rewards": given.rewards, "groups": given.groups}
    return {key: value[given.counted] for key, value in each.items()}


def _placed(found: Tensor, where: Tensor) -> Tensor:
    """`found` where `where` holds, 0 elsewhere."""
    everywhere = torch.zeros(len(where), dtype=found.dtype, device=found.device)
    everywhere[where] = found
    return everywhere


def _by_token(estimator: Bound, settings: AlgorithmSettings, given: Rollouts) -> Credit:
    """A number a token."""
    mask = given.mask * given.counted[given.owners].unsqueeze(1)
    tensors = spread({"rewards": given.rewards, "groups": given.groups}, given.owners)
    tensors = {**spread(given.extra, given.owners), **tensors}
    tensors |= {"mask": mask, "rollouts": given.owners}
    tensors.setdefault("token_rewards", _on_last_token(tensors["rewards"], mask))
    if settings.kl.place == "reward":
        tensors["token_rewards"] = algorithms.kl_penalised_rewards(
            tensors["token_rewards"],
            need(tensors, "old_logp", "algorithm.kl"),
            need(tensors, "ref_logp", "algorithm.kl"),
            mask,
            coefficient=settings.kl.coefficient,
        )
    found = estimator(tensors)
    if isinstance(found, tuple):
        return Credit(*two_tensors(found, estimator.name))
    return Credit(one_tensor(found, estimator.name), None)


def _lengths(given: Rollouts) -> Tensor:
    """Trained tokens of each rollout over all its rows, [N]."""
    mask = given.mask
    zeros = torch.zeros(len(given.rewards), dtype=mask.dtype, device=mask.device)
    return zeros.index_add(0, given.owners, mask.sum(1))


def _on_last_token(rewards: Tensor, mask: Tensor) -> Tensor:
    remaining = mask.flip(1).cumsum(1).flip(1)
    return blank(rewards, (remaining == 1) & mask.bool())
