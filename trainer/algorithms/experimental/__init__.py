"""Methods known from an abstract or from memory, written as read: `*_as_read`, used in no
recipe and without invented defaults. Each docstring says what is not verified.
"""

from .advantages import (
    dapo_direct_targets_as_read,
    gigpo_advantages_as_read,
    oblr_po_advantages_as_read,
)
from .losses import (
    aipo_loss_as_read,
    dapo_direct_loss_as_read,
    dhpo_loss_as_read,
    pruned_logp_as_read,
    r2vpo_loss_as_read,
    r2vpo_multiplier_as_read,
    rast_logits_as_read,
)
from .rewards import (
    concise_r_rewards_as_read,
    hapo_history_rewards_as_read,
    hapo_history_update_as_read,
    mind_rewards_as_read,
    palu_budget_as_read,
    rlsp_rewards_as_read,
    rubric_rewards_as_read,
    ssp_proposer_rewards_as_read,
    tp_grpo_thoughts_as_read,
    urpo_referee_reward_as_read,
)
from .selection import (
    d3s_samples_mask_as_read,
    d3s_tokens_mask_as_read,
    guide_weights_as_read,
    interruption_mask_as_read,
    pcl_mask_as_read,
    seele_hint_share_as_read,
    staleness_gate_as_read,
)

__all__ = [
    "aipo_loss_as_read",
    "concise_r_rewards_as_read",
    "d3s_samples_mask_as_read",
    "d3s_tokens_mask_as_read",
    "dapo_direct_loss_as_read",
    "dapo_direct_targets_as_read",
    "dhpo_loss_as_read",
    "gigpo_advantages_as_read",
    "guide_weights_as_read",
    "hapo_history_rewards_as_read",
    "hapo_history_update_as_read",
    "interruption_mask_as_read",
    "mind_rewards_as_read",
    "oblr_po_advantages_as_read",
    "palu_budget_as_read",
    "pcl_mask_as_read",
    "pruned_logp_as_read",
    "r2vpo_loss_as_read",
    "r2vpo_multiplier_as_read",
    "rast_logits_as_read",
    "rlsp_rewards_as_read",
    "rubric_rewards_as_read",
    "seele_hint_share_as_read",
    "ssp_proposer_rewards_as_read",
    "staleness_gate_as_read",
    "tp_grpo_thoughts_as_read",
    "urpo_referee_reward_as_read",
]
