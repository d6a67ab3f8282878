"""Passes of a recipe that the Tinker API makes by itself, so that no other pass comes before them.

Some recipes are losses of the API's own: `ppo` and `cispo` by their bounds, and `cross_entropy`
where the derivative by a log-probability does not depend on that log-probability. What else a
recipe has (masks, aggregation, truncated weights against the sampler, counts of rollouts) is a
factor of each token, which is sent inside the advantage.

That factor is not computed again from the recipe. At log-probabilities where every ratio is 1 no
clip acts, and the derivative of the recipe's whole loss is `-A w` there, with `w` all factors
together. A clip is a minimum of two terms, which commutes with a factor that is not negative.

Axes: B rows, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..algorithms.surrogates.ratio import MAX_LOG_RATIO
from ..learning.credit import LINEAR
from ..learning.learner import Loss
from ..learning.update import PassLoss
from ..recipes.algorithm import Algorithm
from ..recipes.calls import Bound, defaults
from ..recipes.loss import BY_TOKEN
from ..rollout.batch import Batch
from .losses import HIGH, LOW

CROSS_ENTROPY = "cross_entropy"
CLIPPED = {
    "ppo_clip_loss": "ppo",
    "dapo_loss": "ppo",
    "decoupled_ppo_loss": "ppo",
    "cispo_loss": "cispo",
}
"""Losses of recipes whose clip the API has, with its name there. The ratio is to `old_logp`."""


@dataclass(frozen=True, slots=True)
class NamedPass:
    """A loss of the API that has the gradient of a recipe's."""

    loss: str
    config: Mapping[str, float]
    at: Tensor
    """[B, T], log-probabilities at which each ratio is 1: those that the ratio is taken to. Of a
    loss without a ratio any.
    """

    def tensors(self, gradient: Tensor) -> dict[str, Tensor]:
        """Return what the loss reads for each token, [B, T] by name.

        Args:
            gradient: [B, T], the derivative of the recipe's loss at `at`.
        """
        if self.loss == CROSS_ENTROPY:
            return {"weights": -gradient}
        return {"logprobs": self.at, "advantages": -gradient}

    def carries(self, gradient: Tensor, batch: Batch) -> bool:
        """Whether no factor of an advantage is negative; see `tensors`."""
        advantages = batch.inputs.advantages
        if self.loss == CROSS_ENTROPY or advantages is None:
            return self.loss == CROSS_ENTROPY
        return not bool((gradient * advantages * batch.mask > 0).any())


def named_pass(loss: Loss, batch: Batch) -> NamedPass | None:
    """Return the loss of the API that a pass is; None where it has none.

    Args:
        loss: of the pass.
        batch: its rows.
    """
    if not isinstance(loss, PassLoss):
        return None
    algorithm, old_logp = loss.algorithm, batch.inputs.old_logp
    settings, surrogate = algorithm.recipe.algorithm, algorithm.loss_fn
    if settings.kl.place == "loss" or loss.bonus or settings.value is not None:
        return None
    linear = surrogate.name in LINEAR and old_logp is None  # the ratio is 1, whatever the model is
    if linear or surrogate.name == "reinforce_loss":
        if loss.weighs:
            return _truncated(algorithm, batch)
        return NamedPass(CROSS_ENTROPY, {}, batch.sampler_logp)
    if loss.weighs or old_logp is None or surrogate.name not in CLIPPED:
        return None
    options = _options(surrogate)
    low, high = options.get("eps_low"), options.get("eps_high")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    if options.get("bounds", "relative") == "relative":
        low, high = 1 - low, 1 + high
    return _bounded(CLIPPED[surrogate.name], low, high, options, old_logp)


def scored_before(loss: Loss, batch: Batch) -> Tensor | None:
    """Return the learner's log-probabilities of a pass, [B, T], where they are known: the old
    policy of a step, until its first update is made. None where they are not.
    """
    if not isinstance(loss, PassLoss) or loss.made:
        return None
    to_sampler = loss.algorithm.recipe.algorithm.ratio_to == "sampler"
    return None if to_sampler else batch.inputs.old_logp


def _truncated(algorithm: Algorithm, batch: Batch) -> NamedPass | None:
    """Return the pass of a loss whose only ratio is the weight against the sampler, held between
    bounds: the very clip of `cispo`.
    """
    weights = algorithm.weights_fn
    if weights is None or algorithm.loss_fn.name not in BY_TOKEN:
        return None
    options = _options(weights)
    if weights.name != "tis_weights" or options["level"] != "token" or options["normalise"]:
        return None
    floor, cap = options["floor"] or 0.0, options["cap"]
    if not isinstance(floor, int | float) or not isinstance(cap, int | float):
        return None
    return _bounded("cispo", floor, cap, options, batch.sampler_logp)


def _bounded(
    name: str, low: float, high: float, options: Mapping[str, object], to: Tensor
) -> NamedPass | None:
    """Return a clipped loss, unless its bounds keep out a ratio of 1 or are not those of a server's
    arithmetic.
    """
    if options["max_log_ratio"] != MAX_LOG_RATIO or not low < 1 < high or math.isinf(high):
        return None
    return NamedPass(name, {LOW: float(low), HIGH: float(high)}, to)


def _options(function: Bound) -> dict[str, object]:
    return {**defaults(function.name), **function.options}
