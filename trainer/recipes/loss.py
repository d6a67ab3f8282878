"""The loss of a recipe: surrogate, divergence and entropy terms with a common aggregation and
weight.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

from torch import Tensor

from ludus.errors import ConfigError

from .. import algorithms
from ..algorithms.aggregation import Aggregator, Owners, Sum
from ..algorithms.surrogates.ratio import RatioStatistics
from .calls import Bound, defaults, two_numbers
from .chains import Chains, joined
from .inputs import Axis, Inputs, Place, need
from .recipe import AlgorithmSettings

_LOSS = Place.LOSS
LAST = ("losses", "mask")
"""What an aggregation is called with when everything else is bound."""
WHOLE_RATIOS = frozenset({"gspo_loss", "gspo_token_loss", "luspo_loss"})
"""Losses whose clip acts on the ratio of the whole sequence."""
BY_TOKEN = frozenset(
    {
        "reinforce_loss",
        "ppo_clip_loss",
        "dapo_loss",
        "dual_clip_loss",
        "two_sided_clip_loss",
        "cispo_loss",
        "minirl_loss",
        "decoupled_ppo_loss",
        "sapo_loss",
        "kimi_loss",
        "kimi_k25_loss",
        "hapo_loss",
        "kl_cov_loss",
    }
)
"""Losses that treat every token by itself: the rows of a rollout may be in different passes."""
BY_TOKEN_AGGREGATIONS = frozenset({"token_mean", "prompt_mean"})
"""Aggregations that need no rollouts, since they read nothing of a row but its tokens."""


class Loss(NamedTuple):
    """The loss of a part of a batch. Sums and weights of all parts are added and then divided
    once.
    """

    total: Tensor
    weight: Tensor
    parts: dict[str, Tensor]
    """The detached sums that `total` is made of: policy, kl, entropy."""


def whole_loss(
    surrogate: Bound, agg: Bound | None, settings: AlgorithmSettings, inputs: Inputs
) -> Loss:
    """Return the surrogate plus the terms that the recipe adds.

    Every function sees whole rollouts, one row each, however they were cut into the rows of
    `inputs`; only a surrogate that asks for `rollouts` sees the rows.
    """
    inputs, chains = joined(inputs, surrogate)
    each = aggregator(agg, inputs, chains)
    total, weight = two_numbers(
        surrogate(inputs, **({"agg": each} if each else {})), surrogate.name
    )
    parts = {"policy": total.detach()}
    if each is not None and settings.kl.place == "loss":
        where, weighted = "algorithm.kl", settings.kl.importance_weighted
        kl = algorithms.kl_loss(
            need(inputs.logp, "logp", where),
            need(inputs.ref_logp, "ref_logp", where),
            need(inputs.mask, "mask", where),
            coefficient=settings.kl.coefficient,
            estimator=settings.kl.estimator,
            old_logp=need(inputs.old_logp, "old_logp", where) if weighted else None,
            agg=each,
        )[0]
        total, parts["kl"] = total + kl, kl.detach()
    if each is not None and settings.entropy.coefficient:
        bonus, _ = algorithms.entropy_loss(
            need(inputs.entropy, "entropy", "algorithm.entropy"),
            need(inputs.mask, "mask", "algorithm.entropy"),
            coefficient=settings.entropy.coefficient,
            agg=each,
        )
        total, parts["entropy"] = total + bonus, bonus.detach()
    return Loss(total, weight, parts)


def value_loss(agg: Bound | None, coefficient: float, value_clip: float, inputs: Inputs) -> Sum:
    """Return the value head's loss, aggregated like the policy's, so that both share a weight."""
    where = "algorithm.value"
    total, weight = algorithms.value_loss(
        need(inputs.values, "values", where),
        need(inputs.old_values, "old_values", where),
        need(inputs.returns, "returns", where),
        need(inputs.mask, "mask", where),
        value_clip=value_clip,
        agg=aggregator(agg, inputs) or "token_mean",
    )
    return coefficient * total, weight


def aggregator(
    agg: Bound | None, inputs: Inputs, chains: Chains | None = None
) -> Aggregator | None:
    """Return the recipe's aggregation with everything bound but losses and mask; None for a loss
    that takes none.

    Args:
        agg: the aggregation.
        inputs: mask, and what names the groups and the rollouts of the rows.
        chains: the rows that were joined into those of `inputs`; None if none were.

    Raises:
        ConfigError: the function does not begin with losses and mask, or needs what is not given.
    """
    if agg is None:
        return None
    if agg.required[:2] != LAST:
        raise ConfigError(
            f"algorithm.agg = {agg.name!r}: its parameters are {', '.join(agg.required)}; an "
            "aggregation is called with losses and mask, in this order"
        )
    given = replace(inputs.only(Axis.ROW), groups=inputs.groups)
    tensors = agg.chosen(given, without=frozenset(LAST))
    owned = {"owners": owners(inputs, chains)} if agg.owned else {}
    bound: Any = partial(agg.function, **tensors, **agg.options, **owned)
    return cast("Aggregator", bound)


def owners(inputs: Inputs, chains: Chains | None) -> Owners | None:
    """Return the counts of the rollouts that the rows belong to; None where every row is one.

    Args:
        inputs: as for `aggregator`.
        chains: as for `aggregator`.
    """
    if inputs.rollouts is None:
        return None
    held = None if chains is None else chains.held
    tokens, rows = inputs.rollout_tokens, inputs.rollout_rows
    if tokens is None or rows is None:
        counted = Owners.of(inputs.rollouts, need(inputs.mask, "mask", _LOSS))
        tokens = counted.tokens if tokens is None else tokens
        rows = (counted.rows if held is None else held) if rows is None else rows
    return Owners(tokens, rows, held)


def movement(surrogate: Bound, inputs: Inputs) -> RatioStatistics:
    """Return ratio statistics with the bounds of the surrogate's own clip, or 0.2 for a surrogate
    without bounds.
    """
    low, high = _bounds(surrogate)
    inputs, _ = joined(inputs, surrogate)
    logp, old_logp = need(inputs.logp, "logp", _LOSS), need(inputs.old_logp, "old_logp", _LOSS)
    mask = need(inputs.mask, "mask", _LOSS)
    if surrogate.name in WHOLE_RATIOS:
        # One ratio per sequence: the geometric mean of its tokens' ratios, given to each token.
        mean = algorithms.sequence_ratio(logp, old_logp, mask).log()
        logp, old_logp = mean.unsqueeze(1).expand_as(logp), old_logp.new_zeros(old_logp.shape)
    advantages = need(inputs.advantages, "advantages", _LOSS)
    return algorithms.ratio_statistics(logp, old_logp, advantages, mask, eps_low=low, eps_high=high)


def _bounds(surrogate: Bound) -> tuple[float, float]:
    known = {**({} if ":" in surrogate.name else defaults(surrogate.name)), **surrogate.options}
    if known.get("bounds", "relative") != "relative":
        return 0.2, 0.2
    low, high = known.get("eps_low"), known.get("eps_high")
    return (low if isinstance(low, float) else 0.2, high if isinstance(high, float) else 0.2)
