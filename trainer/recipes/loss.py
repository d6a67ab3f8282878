"""The loss of a recipe: surrogate, divergence and entropy terms with a common aggregation and
weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from .. import algorithms
from ..algorithms.aggregation import Aggregator, Sum
from ..algorithms.surrogates.ratio import RatioStatistics
from .calls import Bound, defaults
from .recipe import AlgorithmSettings
from .returned import need, two_tensors

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
    surrogate: Bound, agg: Bound | None, settings: AlgorithmSettings, tensors: Mapping[str, Tensor]
) -> Loss:
    """Return the surrogate plus the terms that the recipe adds."""
    each = aggregator(agg, tensors)
    given = {key: value for key, value in tensors.items() if key != "prompt_tokens"}
    if "rewards" in given:
        given.setdefault("correct", (given["rewards"] > 0).to(given["rewards"].dtype))
    total, weight = two_tensors(surrogate(given, **({"agg": each} if each else {})), surrogate.name)
    parts = {"policy": total.detach()}
    for name, extra in _terms(settings, tensors, each):
        total, parts[name] = total + extra, extra.detach()
    return Loss(total, weight, parts)


def value_loss(
    agg: Bound | None, coefficient: float, value_clip: float, tensors: Mapping[str, Tensor]
) -> Sum:
    """Return the value head's loss, aggregated like the policy's, so that both share a weight."""
    total, weight = algorithms.value_loss(
        tensors["values"],
        tensors["old_values"],
        tensors["returns"],
        tensors["mask"],
        value_clip=value_clip,
        agg=aggregator(agg, tensors) or "token_mean",
    )
    return coefficient * total, weight


def aggregator(agg: Bound | None, tensors: Mapping[str, Tensor]) -> Aggregator | None:
    """Return the recipe's aggregation, bound to the tensors that the function requires; None for a
    loss that takes none.
    """
    if agg is None:
        return None
    of_prompt = {key: tensors[key] for key in ("groups", "prompt_tokens") if key in tensors}

    def aggregate(losses: Tensor, mask: Tensor) -> Sum:
        return two_tensors(agg({**of_prompt, "losses": losses, "mask": mask}), agg.name)

    return aggregate


def movement(surrogate: Bound, tensors: Mapping[str, Tensor]) -> RatioStatistics:
    """Return ratio statistics with the bounds of the surrogate's own clip, or 0.2 for a surrogate
    without bounds.
    """
    low, high = _bounds(surrogate)
    logp, old_logp, mask = tensors["logp"], tensors["old_logp"], tensors["mask"]
    if surrogate.name in WHOLE_RATIOS:
        # one ratio a sequence: the geometric mean of its tokens', on each of them
        mean = algorithms.sequence_ratio(logp, old_logp, mask).log()
        logp, old_logp = mean.unsqueeze(1).expand_as(logp), old_logp.new_zeros(old_logp.shape)
    return algorithms.ratio_statistics(
        logp, old_logp, tensors["advantages"], mask, eps_low=low, eps_high=high
    )


def _terms(
    settings: AlgorithmSettings, tensors: Mapping[str, Tensor], agg: Aggregator | None
) -> list[tuple[str, Tensor]]:
    if agg is None:
        return []
    terms: list[tuple[str, Tensor]] = []
    if settings.kl.place == "loss":
        terms.append(("kl", _kl(settings, tensors, agg)))
    if settings.entropy.coefficient:
        entropy = need(tensors, "entropy", "algorithm.entropy")
        coefficient = settings.entropy.coefficient
        found = algorithms.entropy_loss(entropy, tensors["mask"], coefficient=coefficient, agg=agg)
        terms.append(("entropy", found[0]))
    return terms


def _kl(settings: AlgorithmSettings, tensors: Mapping[str, Tensor], agg: Aggregator) -> Tensor:
    return algorithms.kl_loss(
        tensors["logp"],
        need(tensors, "ref_logp", "algorithm.kl"),
        tensors["mask"],
        coefficient=settings.kl.coefficient,
        estimator=settings.kl.estimator,
        old_logp=tensors["old_logp"] if settings.kl.importance_weighted else None,
        agg=agg,
    )[0]


def _bounds(surrogate: Bound) -> tuple[float, float]:
    known = {**({} if ":" in surrogate.name else defaults(surrogate.name)), **surrogate.options}
    if known.get("bounds", "relative") != "relative":
        return 0.2, 0.2
    low, high = known.get("eps_low"), known.get("eps_high")
    return (
        low if isinstance(low, float) else 0.2,
        high if isinstance(high, float) else 0.2,
    )
