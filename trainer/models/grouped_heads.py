"""Attention of heads in groups that share keys, under a mask, without a copy of the keys a head.

transformers repeats keys and values for each query head wherever a mask is given, since torch's
kernels for CUDA take groups only without one. The CPU's kernel takes both, and elsewhere a group is
a call of its own, whose keys are seen once for each head and stored once.

Axes: H heads, G heads of keys, Q queries, T positions, E channels of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "ludus_grouped"
"""Name of this attention in transformers' registry."""


def share_keys(model: Any) -> Any:
    """Give a model whose heads are in groups the attention of this file, where its code takes
    attention from transformers' registry; returns the model.
    """
    text = model.config.get_text_config()
    heads = getattr(text, "num_attention_heads", None)
    groups = getattr(text, "num_key_value_heads", None) or heads
    if heads != groups and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(ATTENTION)
    return model


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' `sdpa` does, to the last bit on the CPU.

    Args:
        module: the attention layer.
        query: [B, H, Q, E].
        key: [B, G, T, E], G dividing H.
        value: the same.
        attention_mask: bool or added to the products, [B or 1, H or 1, Q, T]; None for causal.
        dropout: share of the weights that is set to 0.
        scaling: factor of the products; None is E^-0.5.
        kwargs: for transformers' own attention.

    Returns:
        [B, Q, H, E], and None for the attention weights.
    """
    heads, groups = query.shape[1], key.shape[1]
    mask = attention_mask
    special = kwargs.get("softcap") is not None or kwargs.get("position_bias") is not None
    # For one query a row, transformers folds the heads of a group into the axis of queries.
    if mask is None or heads == groups or query.shape[2] == 1 or special:
        return sdpa_attention_forward(module, query, key, value, mask, dropout, scaling, **kwargs)
    if query.device.type == "cpu":
        out = scaled_dot_product_attention(
            query, key, value, mask, dropout, scale=scaling, enable_gqa=True
        )
    else:
        out = by_group(query, key, value, mask, dropout, scaling)
    return out.transpose(1, 2).contiguous(), None


def by_group(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float, scaling: float | None
) -> Tensor:
    """Attend with a call for each head of keys; the heads of a group read the same memory."""
    share = query.shape[1] // key.shape[1]
    attended: list[Tensor] = []
    for group in range(key.shape[1]):
        heads = slice(group * share, (group + 1) * share)
        keys, values = (
            tensor[:, group : group + 1].expand(-1, share, -1, -1) for tensor in (key, value)
        )
        own = mask if mask.shape[1] == 1 else mask[:, heads]
        attended.append(
            scaled_dot_product_attention(query[:, heads], keys, values, own, dropout, scale=scaling)
        )
    return torch.cat(attended, dim=1)


AttentionInterface.register(ATTENTION, grouped_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
