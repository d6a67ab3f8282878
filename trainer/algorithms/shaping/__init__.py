"""Rewards for more than being right or wrong: length, repetition, format, and the model's own
probabilities.
"""

from .length import (
    cosine_rewards,
    curriculum_budget,
    curriculum_length_rewards,
    dler_truncation_rewards,
    dot_truncation_lengths,
    grpo_lambda_rewards,
    kimi_length_rewards,
    l1_exact_rewards,
    l1_max_rewards,
    laser_d_level,
    laser_d_target,
    laser_rewards,
    overlong_penalty_rewards,
)
from .text import (
    format_reward,
    repetition_penalty,
    repetition_rewards,
    rlpr_rewards,
    sar_rewards,
)

__all__ = [
    "cosine_rewards",
    "curriculum_budget",
    "curriculum_length_rewards",
    "dler_truncation_rewards",
    "dot_truncation_lengths",
    "format_reward",
    "grpo_lambda_rewards",
    "kimi_length_rewards",
    "l1_exact_rewards",
    "l1_max_rewards",
    "laser_d_level",
    "laser_d_target",
    "laser_rewards",
    "overlong_penalty_rewards",
    "repetition_penalty",
    "repetition_rewards",
    "rlpr_rewards",
    "sar_rewards",
]
