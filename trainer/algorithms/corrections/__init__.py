"""Corrections between the policy that sampled and the one that learns: weights (float) and filters
(bool masks).
"""

from .importance import (
    Level,
    importance_weights,
    mis_weights,
    tis_weights,
)

__all__ = [
    "Level",
    "importance_weights",
    "mis_weights",
    "tis_weights",
]
