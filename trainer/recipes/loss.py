"""The loss of a recipe: surrogate, divergence and entropy terms with a common aggregation and
weight.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from .. import algorithms
from ..algorithms.aggregation import Aggregator, Sum
from ..algorithms.surrogates.ratio import RatioStatistics
from .calls import Bound, defaults
from .inputs import Inputs, Place, need
from .recipe import AlgorithmSettings
from .returned import two_tensors

_LOSS = Place.LOSS
WHOLE_RATIOS = frozenset({"gspo_loss", "gspo_token_loss", "luspo_loss"})
"""Losses whose clip acts on the ratio of the whole sequence."""


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
    """Return the surrogate plus the terms that the recipe adds."""
    each = aggregator(agg, inputs)
    total, weight = two_tensors(
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


def aggregator(agg: Bound | None, inputs: Inputs) -> Aggregator | None:
    """Return the recipe's aggregation, bound to the groups of `inputs`; None for a loss that takes
    none.
    """
    if agg is None:
        return None
    of_prompt = Inputs(groups=inputs.groups, prompt_tokens=inputs.prompt_tokens)

    def aggregate(losses: Tensor, mask: Tensor) -> Sum:
        return two_tensors(agg(replace(of_prompt, losses=losses, mask=mask)), agg.name)

    return aggregate


def movement(surrogate: Bound, inputs: Inputs) -> RatioStatistics:
    """Return ratio statistics with the bounds of the surrogate's own clip, or 0.2 for a surrogate
    without bounds.
    """
    low, high = _bounds(surrogate)
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
    return (
        low if isinstance(low, float) else 0.2,
        high if isinstance(high, float) else 0.2,
    )
