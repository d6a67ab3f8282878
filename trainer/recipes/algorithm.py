"""A recipe resolved: the functions a trainer calls, in order.

    algorithm = resolve(load_recipe("dapo"), max_tokens=256)
    rewards = algorithm.shape(rewards, groups, lengths=lengths)              # [N], one a rollout
    kept = algorithm.keep(rewards, groups)                                   # [N] bool
    credit = algorithm.advantages(rewards, groups, mask, rollouts)           # [B, T], one row a
    segment mask, weights = algorithm.correct(mask, rollouts, old_logp=..., sampler_logp=...,
    advantages=...) total, weight, parts = algorithm.loss(logp=..., old_logp=..., advantages=...,
    mask=mask, weights=weights)

A rollout may be cut into several rows (segments); `rollouts` [B] says which of the N rollouts a row
is part of, so that each counts once in the statistics of its group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.errors import ConfigError

from .. import algorithms
from ..algorithms.aggregation import Aggregator, Sum
from ..algorithms.masked import blank
from ..algorithms.surrogates.ratio import RatioStatistics
from .calls import Bound, bind, default_agg, defaults
from .conflicts import refuse_conflicts
from .recipe import Recipe, Shaping


class Credit(NamedTuple):
    """What each token is worth."""

    advantages: Tensor
    """[B, T]."""
    returns: Tensor | None
    """[B, T], the value head's targets; None without one."""


class Corrected(NamedTuple):
    """What is trained, and how much it weighs."""

    mask: Tensor
    """[B, T]; also what the loss's denominator counts."""
    weights: Tensor | None
    """[B, T], detached; None is 1 everywhere."""


class Loss(NamedTuple):
    """One part of a batch; sums and weights of all parts are added, then divided once."""

    total: Tensor
    weight: Tensor
    parts: dict[str, Tensor]
    """The detached sums `total` is made of: policy, kl, entropy."""


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
        bound = [self.advantage_fn, self.loss_fn, self.weights_fn, *self.filters]
        names = {name for each in bound if each is not None for name in each.required}
        names |= {name for _, each in self.shaping for name in each.required}
        settings = self.recipe.algorithm
        names |= {"ref_logp"} if settings.kl.place != "none" else set()
        names |= {"entropy"} if settings.entropy.coefficient else set()
        names |= (
            {"truncated"}
            if not (settings.overlong.in_loss and settings.overlong.in_statistics)
            else set()
        )
        return frozenset(names - _ALWAYS)

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
            result = _tensor(function({**given, "rewards": shaped}), function.name)
            shaped = result if step.combine == "replace" else shaped + step.weight * result
        return shaped

    def keep(self, rewards: Tensor, groups: Tensor) -> Tensor:
        """Which rollouts are trained, [N] bool: a group is kept or dropped whole."""
        if self.group_filter is None:
            return torch.ones_like(groups, dtype=torch.bool)
        found = self.group_filter({"rewards": rewards, "groups": groups})
        return _tensor(found, self.group_filter.name)

    def advantages(
        self, rewards: Tensor, groups: Tensor, mask: Tensor, rollouts: Tensor, **tensors: Tensor
    ) -> Credit:
        """Give credit to every trained token.

        Args:
            rewards: [N], one a rollout, shaped.
            groups: [N] int.
            mask: [B, T] in {0, 1}.
            rollouts: [B] int, the rollout (0..N-1) of each row.
            tensors: what else `needs` names: [N] for one a rollout (greedy_rewards, alpha, beta,
                truncated), [B, T] for one a token (token_rewards, values, proxies, old_logp,
                ref_logp). Token rewards are, when not given, the rollout's whole reward on the last
                trained token of each of its rows.
        """
        settings = self.recipe.algorithm
        counted = torch.ones_like(groups, dtype=torch.bool)
        if not settings.overlong.in_statistics:
            counted = ~_need(tensors, "truncated", "algorithm.overlong").bool()
        if self._by_rollout:
            each = {"lengths": _lengths(mask, rollouts, len(rewards)), **tensors}
            rows = self._outcome(rewards, groups, counted, each)[rollouts]
            credit = Credit(blank(rows, mask), None)
        else:
            seen = mask * counted[rollouts].unsqueeze(1)
            credit = self._token_credit(rewards, groups, seen, rollouts, tensors)
        if not settings.whiten:
            return credit
        return Credit(algorithms.whiten(credit.advantages, mask), credit.returns)

    def correct(self, mask: Tensor, rollouts: Tensor, **tensors: Tensor) -> Corrected:
        """Weigh and filter the tokens of a batch once, before its first update.

        Args:
            mask: [B, T] in {0, 1}.
            rollouts: [B] int.
            tensors: [B, T] old_logp, sampler_logp, advantages; [N] truncated, rewards; as `needs`
                says.
        """
        settings = self.recipe.algorithm
        if not settings.overlong.in_loss:
            fine = ~_need(tensors, "truncated", "algorithm.overlong").bool()
            mask = mask * fine[rollouts].unsqueeze(1)
        rows = {
            key: value[rollouts] if key in _BY_ROLLOUT else value for key, value in tensors.items()
        }
        given = {"logp": rows["old_logp"], **rows} if "old_logp" in rows else rows
        given["mask"] = mask
        weights = _tensor(self.weights_fn(given), self.weights_fn.name) if self.weights_fn else None
        kept = torch.ones_like(mask, dtype=torch.bool)
        for function in self.filters:
            found = _tensor(function(given), function.name).bool()
            kept = kept & (found if found.dim() == 2 else found.unsqueeze(1))
        if self.filters and settings.corrections.denominator == "original":
            weights = kept.to(rows["old_logp"].dtype) * (1.0 if weights is None else weights)
        elif settings.corrections.denominator == "remaining":
            kept = kept & (weights > 0) if weights is not None else kept
            mask = mask * kept
        return Corrected(mask, weights)

    def loss(self, **tensors: Tensor) -> Loss:
        """The loss of one part of a batch, to be divided by the weight of the whole.

        Args:
            tensors: by the names in the signature of the recipe's loss, one row a segment: logp,
                old_logp, advantages, mask [B, T]; weights, sampler_logp, ref_logp, entropy;
                rewards, groups [B].

        Raises:
            ConfigError: one it needs is not there.
        """
        settings = self.recipe.algorithm
        agg = self._aggregator(tensors)
        given = {
            key: value for key, value in tensors.items() if key not in ("groups", "prompt_tokens")
        }
        given |= {"groups": tensors["groups"]} if "groups" in self.loss_fn.required else {}
        total, weight = _sum(
            self.loss_fn(given, **({"agg": agg} if agg else {})), self.loss_fn.name
        )
        parts = {"policy": total.detach()}
        if settings.kl.place == "loss" and agg is not None:
            extra = self._kl(tensors, agg)[0]
            total, parts["kl"] = total + extra, extra.detach()
        if settings.entropy.coefficient and agg is not None:
            entropy = _need(tensors, "entropy", "algorithm.entropy")
            extra = algorithms.entropy_loss(
                entropy, tensors["mask"], coefficient=settings.entropy.coefficient, agg=agg
            )[0]
            total, parts["entropy"] = total + extra, extra.detach()
        return Loss(total, weight, parts)

    def moved(self, **tensors: Tensor) -> RatioStatistics:
        """How far the policy has moved from the old one, and what share of its tokens PPO's clip
        with the recipe's bounds (0.2 where it has none) would stop.

        Args:
            tensors: logp, old_logp, advantages, mask [B, T].
        """
        known = {**_defaults(self.loss_fn), **self.loss_fn.options}
        relative = known.get("bounds", "relative") == "relative"
        low, high = (known.get(name) if relative else None for name in ("eps_low", "eps_high"))
        logp, old_logp, mask = tensors["logp"], tensors["old_logp"], tensors["mask"]
        if self.loss_fn.name in WHOLE_RATIOS:
            # one ratio a sequence: the geometric mean of its tokens', on each of them
            mean = algorithms.sequence_ratio(logp, old_logp, mask).log()
            logp, old_logp = mean.unsqueeze(1).expand_as(logp), torch.zeros_like(old_logp)
        return algorithms.ratio_statistics(
            logp,
            old_logp,
            tensors["advantages"],
            mask,
            eps_low=low if isinstance(low, float) else 0.2,
            eps_high=high if isinstance(high, float) else 0.2,
        )

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
        total, weight = algorithms.value_loss(
            tensors["values"],
            tensors["old_values"],
            tensors["returns"],
            tensors["mask"],
            value_clip=head.value_clip,
            agg=self._aggregator(tensors) or "token_mean",
        )
        return head.coefficient * total, weight

    @property
    def _by_rollout(self) -> bool:
        return "mask" not in self.advantage_fn.required

    def _outcome(
        self, rewards: Tensor, groups: Tensor, counted: Tensor, tensors: Mapping[str, Tensor]
    ) -> Tensor:
        every = torch.arange(int(counted.sum()), device=groups.device)
        given = {key: value[counted] for key, value in tensors.items() if len(value) == len(groups)}
        given |= {"rewards": rewards[counted], "groups": groups[counted], "segments": every}
        found = _tensor(self.advantage_fn(given), self.advantage_fn.name)
        spread = torch.zeros(len(groups), dtype=found.dtype, device=found.device)
        spread[counted] = found
        return spread

    def _token_credit(
        self,
        rewards: Tensor,
        groups: Tensor,
        mask: Tensor,
        rollouts: Tensor,
        tensors: Mapping[str, Tensor],
    ) -> Credit:
        given = {
            key: value[rollouts] if key in _BY_ROLLOUT else value for key, value in tensors.items()
        }
        given |= {
            "rewards": rewards[rollouts],
            "groups": groups[rollouts],
            "mask": mask,
            "rollouts": rollouts,
        }
        given.setdefault("token_rewards", _on_last_token(given["rewards"], mask))
        divergence = self.recipe.algorithm.kl
        if divergence.place == "reward":
            given["token_rewards"] = algorithms.kl_penalised_rewards(
                given["token_rewards"],
                _need(given, "old_logp", "algorithm.kl"),
                _need(given, "ref_logp", "algorithm.kl"),
                mask,
                coefficient=divergence.coefficient,
            )
        found = self.advantage_fn(given)
        if isinstance(found, tuple):
            advantages, returns = _sum(found, self.advantage_fn.name)
            return Credit(advantages, returns)
        return Credit(_tensor(found, self.advantage_fn.name), None)

    def _kl(self, tensors: Mapping[str, Tensor], agg: Aggregator) -> Sum:
        settings = self.recipe.algorithm.kl
        return algorithms.kl_loss(
            tensors["logp"],
            _need(tensors, "ref_logp", "algorithm.kl"),
            tensors["mask"],
            coefficient=settings.coefficient,
            estimator=settings.estimator,
            old_logp=tensors["old_logp"] if settings.importance_weighted else None,
            agg=agg,
        )

    def _aggregator(self, tensors: Mapping[str, Tensor]) -> Aggregator | None:
        if self.agg is None:
            return None
        of_prompt = {key: tensors[key] for key in ("groups", "prompt_tokens") if key in tensors}
        agg = self.agg

        def aggregate(losses: Tensor, mask: Tensor) -> Sum:
            return _sum(agg({**of_prompt, "losses": losses, "mask": mask}), agg.name)

        return aggregate


def resolve(recipe: Recipe, *, max_tokens: int | None = None) -> Algorithm:
    """Find every function a recipe names, check its options, and refuse what cannot work together.

    Args:
        recipe: of `load_recipe`.
        max_tokens: the longest response, for options given as "max_tokens".

    >>> from .recipe import load_recipe
    >>> resolve(load_recipe("grpo")).advantage_fn.name
    'grpo_advantages'

    Raises:
        ConfigError: an unknown function or option, or settings in conflict; the message says why.
    """
    settings, sampling = recipe.algorithm, recipe.sampling
    find = partial(bind, max_tokens=max_tokens)
    loss = find(settings.loss, "_loss", settings.loss_options, where="algorithm.loss")
    weights, filters = settings.corrections.weights, settings.corrections.filters
    where = "algorithm.corrections"
    refuse_conflicts(recipe)
    return Algorithm(
        recipe=recipe,
        advantage_fn=find(
            settings.advantage,
            "_advantages",
            settings.advantage_options,
            where="algorithm.advantage",
        ),
        loss_fn=loss,
        agg=_find_agg(recipe, loss, max_tokens) if loss.aggregates else None,
        weights_fn=find(weights, "_weights", settings.corrections.weight_options, where=where)
        if weights
        else None,
        filters=tuple(find(each.name, "_mask", each.options, where=where) for each in filters),
        group_filter=find(
            sampling.filter, "_mask", sampling.filter_options, where="sampling.filter"
        )
        if sampling.filter
        else None,
        shaping=tuple(
            (each, find(each.name, "_rewards", each.options, where="shaping"))
            for each in recipe.shaping
        ),
    )


_ALWAYS = frozenset(
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
WHOLE_RATIOS = frozenset({"gspo_loss", "gspo_token_loss", "luspo_loss"})
"""Losses whose clip is on the ratio of the whole sequence."""
_BY_ROLLOUT = frozenset(
    {"rewards", "groups", "truncated", "alpha", "beta", "greedy_rewards", "correct"}
)
"""Tensors given as [N], one a rollout."""


def _find_agg(recipe: Recipe, loss: Bound, max_tokens: int | None) -> Bound:
    name, options = (
        recipe.algorithm.agg or default_agg(loss.function),
        dict(recipe.algorithm.agg_options),
    )
    if name.endswith("_all_rows"):
        name, options = name.removesuffix("_all_rows"), {**options, "rows": "all"}
    return bind(name, "", options, where="algorithm.agg", max_tokens=max_tokens)


def _defaults(function: Bound) -> dict[str, object]:
    return {} if ":" in function.name else defaults(function.name)


def _lengths(mask: Tensor, rollouts: Tensor, count: int) -> Tensor:
    """Trained tokens of each rollout over all its rows, [N]."""
    return torch.zeros(count, dtype=mask.dtype, device=mask.device).index_add(
        0, rollouts, mask.sum(1)
    )


def _on_last_token(rewards: Tensor, mask: Tensor) -> Tensor:
    remaining = mask.flip(1).cumsum(1).flip(1)
    return blank(rewards, (remaining == 1) & mask.bool())


def _need(tensors: Mapping[str, Tensor], name: str, where: str) -> Tensor:
    if name not in tensors:
        raise ConfigError(f"{where} needs {name}, which was not given")
    return tensors[name]


def _tensor(found: object, name: str) -> Tensor:
    if not isinstance(found, Tensor):
        raise ConfigError(f"{name} returned a {type(found).__name__}, not a tensor")
    return found


def _sum(found: object, name: str) -> Sum:
    match found:
        case (Tensor() as first, Tensor() as second):
            return first, second
        case _:
            raise ConfigError(f"{name} returned a {type(found).__name__}, not two tensors")
