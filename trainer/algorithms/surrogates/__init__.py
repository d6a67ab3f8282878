"""Surrogate losses: what is minimised, given advantages. Each returns (sum, weight)."""

from .ppo import (
    dapo_loss,
    dual_clip_loss,
    ppo_clip_loss,
    reinforce_loss,
    two_sided_clip_loss,
)
from .ratio import (
    MAX_LOG_RATIO,
    RatioStatistics,
    clip,
    log_ratio,
    policy_ratio,
    ratio_statistics,
)

__all__ = [
    "MAX_LOG_RATIO",
    "RatioStatistics",
    "clip",
    "dapo_loss",
    "dual_clip_loss",
    "log_ratio",
    "policy_ratio",
    "ppo_clip_loss",
    "ratio_statistics",
    "reinforce_loss",
    "two_sided_clip_loss",
]
