"""The correction of a recipe whose rollouts are older than the weights that learn from them."""

from __future__ import annotations

import msgspec

from .algorithm import Algorithm
from .conflicts import CORRECTED_LOSSES
from .recipe import Recipe
from .resolution import resolve

DEFAULT_WEIGHTS = "tis_weights"
"""Truncated importance weights, at most 2 per token. Multiplied by a clipped ratio to the learner
before the update, they are decoupled PPO (AReaL, arXiv 2505.24298) with a truncated first factor.
"""


def corrected(recipe: Recipe) -> Recipe:
    """Return a recipe that corrects for the difference between the learner's probabilities and
    those of the weights that sampled.

    A recipe that does so by itself stays as it is: by `corrections.weights`, by a loss that reads
    the engine's probabilities, or by `ratio_to = "sampler"`. Others get truncated importance
    weights (`tis_weights`), whether their loss has a ratio or not. A loss that takes no weights
    stays uncorrected.

    Raises:
        ConfigError: the recipe cannot be resolved.
    """
    algorithm = resolve(recipe, max_tokens=1)
    if _own(algorithm) or "weights" not in algorithm.loss_fn.optional:
        return recipe
    settings = recipe.algorithm
    corrections = msgspec.structs.replace(settings.corrections, weights=DEFAULT_WEIGHTS)
    return msgspec.structs.replace(
        recipe, algorithm=msgspec.structs.replace(settings, corrections=corrections)
    )


def told_correction(algorithm: Algorithm) -> str:
    """Say in a sentence how a recipe corrects for stale tokens, if at all."""
    if own := _own(algorithm):
        return (
            f"stale tokens are corrected by {own} (a recipe that names no correction gets "
            f'{DEFAULT_WEIGHTS}; overlap.correction = "none" leaves it out)'
        )
    return (
        f"stale tokens are not corrected: recipe {algorithm.recipe.name!r} names no correction "
        "(algorithm.corrections), and none is added; keep overlap.max_staleness small"
    )


def _own(algorithm: Algorithm) -> str:
    """Return what corrects for stale tokens in a recipe; empty if nothing does."""
    settings, loss = algorithm.recipe.algorithm, algorithm.loss_fn
    if settings.corrections.weights:
        return settings.corrections.weights
    if loss.name in CORRECTED_LOSSES or "sampler_logp" in loss.required:
        return loss.name
    return 'ratio_to = "sampler"' if settings.ratio_to == "sampler" else ""
