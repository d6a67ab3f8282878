"""Corrections between the sampling policy and the learning policy: weights (float) and filters
(bool masks).
"""

from .filters import (
    dppo_mask,
    mpt_mask,
    opsm_mask,
    overlong_mask,
    ratio_band_mask,
    trust_region_mask,
    trust_region_statistic,
)
from .importance import (
    Level,
    importance_weights,
    mis_weights,
    tis_weights,
)

__all__ = [
    "Level",
    "dppo_mask",
    "importance_weights",
    "mis_weights",
    "mpt_mask",
    "opsm_mask",
    "overlong_mask",
    "ratio_band_mask",
    "tis_weights",
    "trust_region_mask",
    "trust_region_statistic",
]
