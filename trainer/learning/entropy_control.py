"""The weight of the entropy bonus, step by step."""

from __future__ import annotations

from ..algorithms import adaptive_entropy_coefficient
from ..recipes.recipe import EntropyBonus
from .batch import Batch


class EntropyControl:
    """Holds the weight of the entropy bonus, which follows a target where the recipe has one.

    The entropy of a step is estimated from the samples, as the mean of `-logprob` over their
    tokens. Nothing has to be computed for that, and every rank finds the same number.

    Args:
        settings: the recipe's entropy bonus.
    """

    def __init__(self, settings: EntropyBonus) -> None:
        self.settings = settings
        self.coefficient = settings.coefficient
        """The controller's state: the weight that it would apply where the entropy is low."""
        self.applied = settings.coefficient
        """The weight of the bonus in the current step."""

    def begin_step(self, batch: Batch) -> dict[str, float]:
        """Set the weight for the step that learns from `batch`.

        Returns:
            Metrics, where the recipe has a target: `entropy` (nats per token) and
            `entropy_coefficient` (the weight that is applied).
        """
        tokens = float(batch.mask.sum())
        if not self.settings.target or not tokens:
            return {}
        entropy = -float((batch.sampler_logp * batch.mask).sum()) / tokens
        self.coefficient, self.applied = adaptive_entropy_coefficient(
            self.coefficient, entropy, target=self.settings.target, step=self.settings.change
        )
        return {"entropy": entropy, "entropy_coefficient": self.applied}
