"""Selection of prompts and rollouts that are worth a gradient: filters, selections, budgets and
curricula.
"""

from .budgets import (
    adaptive_pool_size,
    aepo_temperature,
    dars_extra_rollouts,
    prioritised_sample,
)
from .filters import (
    active_sampling_mask,
    difficulty_band_mask,
    dynamic_sampling_mask,
    no_positive_resampling_mask,
    reward_spread_mask,
    zero_gradient_mask,
)
from .roc import (
    roc_penalties,
    roc_selection_mask,
)

__all__ = [
    "active_sampling_mask",
    "adaptive_pool_size",
    "aepo_temperature",
    "dars_extra_rollouts",
    "difficulty_band_mask",
    "dynamic_sampling_mask",
    "no_positive_resampling_mask",
    "prioritised_sample",
    "reward_spread_mask",
    "roc_penalties",
    "roc_selection_mask",
    "zero_gradient_mask",
]
