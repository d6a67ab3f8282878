"""Surrogate losses, which are minimised for given advantages. Each returns (sum, weight)."""

from .covariance import (
    clip_cov_mask,
    covariance_mask,
    kl_cov_loss,
    vespo_loss,
)
from .detached import (
    cispo_loss,
    decoupled_ppo_loss,
    minirl_loss,
    minpro_loss,
    topr_loss,
)
from .gates import (
    kimi_k25_loss,
    kimi_loss,
    low_probability_mask,
    lp_reg_loss,
    min_p_proxy_logp,
    sapo_loss,
)
from .heterogeneous import (
    hapo_entropy_scale,
    hapo_loss,
)
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
from .scores import (
    drpo_length_weights,
    drpo_loss,
    hinge_kl_penalty,
    pacs_loss,
    rover_advantages,
    rover_loss,
)
from .sequence import (
    gmpo_loss,
    gspo_loss,
    gspo_token_loss,
    luspo_loss,
    sequence_ratio,
)

__all__ = [
    "MAX_LOG_RATIO",
    "RatioStatistics",
    "cispo_loss",
    "clip",
    "clip_cov_mask",
    "covariance_mask",
    "dapo_loss",
    "decoupled_ppo_loss",
    "drpo_length_weights",
    "drpo_loss",
    "dual_clip_loss",
    "gmpo_loss",
    "gspo_loss",
    "gspo_token_loss",
    "hapo_entropy_scale",
    "hapo_loss",
    "hinge_kl_penalty",
    "kimi_k25_loss",
    "kimi_loss",
    "kl_cov_loss",
    "log_ratio",
    "low_probability_mask",
    "lp_reg_loss",
    "luspo_loss",
    "min_p_proxy_logp",
    "minirl_loss",
    "minpro_loss",
    "pacs_loss",
    "policy_ratio",
    "ppo_clip_loss",
    "ratio_statistics",
    "reinforce_loss",
    "rover_advantages",
    "rover_loss",
    "sapo_loss",
    "sequence_ratio",
    "topr_loss",
    "two_sided_clip_loss",
    "vespo_loss",
]
