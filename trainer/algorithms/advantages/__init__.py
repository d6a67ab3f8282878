"""Advantage and baseline estimators, one file a kind of credit."""

from .group import (
    dr_grpo_advantages,
    gpg_advantages,
    grpo_advantages,
    lite_ppo_advantages,
    opo_advantages,
    pass_at_k_advantages,
    reinforce_advantages,
    remax_advantages,
    rloo_advantages,
    supo_advantages,
)

__all__ = [
    "dr_grpo_advantages",
    "gpg_advantages",
    "grpo_advantages",
    "lite_ppo_advantages",
    "opo_advantages",
    "pass_at_k_advantages",
    "reinforce_advantages",
    "remax_advantages",
    "rloo_advantages",
    "supo_advantages",
]
