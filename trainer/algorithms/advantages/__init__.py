"""Advantage and baseline estimators, with a file for each kind of credit assignment."""

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
from .returns import (
    Holes,
    compaction_advantages,
    egae_advantages,
    gae_advantages,
    reinforce_pp_advantages,
    reinforce_pp_baseline_advantages,
    returns_to_go,
)
from .segments import (
    spo_chain_advantages,
    spo_chain_segments,
    spo_probability_mask,
    vine_ppo_advantages,
)
from .single_stream import (
    single_stream_spo_advantages,
    single_stream_spo_memory,
    single_stream_spo_prior,
    single_stream_spo_sampling_weights,
    single_stream_spo_update,
)
from .token_baseline import (
    hapo_advantages,
    logit_gradient_proxy,
    otb_advantages,
)
from .tree import (
    node_depths,
    spo_tree_advantages,
    tree_values,
    treepo_advantages,
    treepo_leaf_rewards,
)

__all__ = [
    "Holes",
    "compaction_advantages",
    "dr_grpo_advantages",
    "egae_advantages",
    "gae_advantages",
    "gpg_advantages",
    "grpo_advantages",
    "hapo_advantages",
    "lite_ppo_advantages",
    "logit_gradient_proxy",
    "node_depths",
    "opo_advantages",
    "otb_advantages",
    "pass_at_k_advantages",
    "reinforce_advantages",
    "reinforce_pp_advantages",
    "reinforce_pp_baseline_advantages",
    "remax_advantages",
    "returns_to_go",
    "rloo_advantages",
    "single_stream_spo_advantages",
    "single_stream_spo_memory",
    "single_stream_spo_prior",
    "single_stream_spo_sampling_weights",
    "single_stream_spo_update",
    "spo_chain_advantages",
    "spo_chain_segments",
    "spo_probability_mask",
    "spo_tree_advantages",
    "supo_advantages",
    "tree_values",
    "treepo_advantages",
    "treepo_leaf_rewards",
    "vine_ppo_advantages",
]
