# pyright: basic
"""Attention of packed rows: each token reads its own row, and no masked square is computed.

With the rows of `packing` the attention is a sum over few rectangles: each node against itself
(causal), and all tokens below a node against the node (everything). A token's result is put
together from its rectangles by their log-sum-exps, as in FlashAttention (arXiv 2205.14135); the
gradient of a rectangle needs the final result and the final log-sum-exp alone, so nothing else is
kept.

Three ways to the same numbers: torch's fused kernel of the CPU, one call of a kernel for rows of
unequal lengths on CUDA in half precision, and else a call for each node.

Axes: H heads, P tokens, E channels of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from ..models.grouped_heads import grouped_attention
from ..models.layer_files import miniature
from .packing import PackedRows, PackedSpan, pack_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "ludus_packed"
"""Name of this attention in transformers' registry."""
TOLERANCE = 1e-3
"""Largest difference of log-hidden states, relative to the largest, at which a model counts as
packable: rounding of half precision is below, another attention is far above.
"""

_cpu_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_cpu_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class CannotPack(TypeError):
    """A model's attention does something that packed rows cannot have."""


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    spans: tuple[PackedSpan, ...] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend within the rows that `spans` describes; without `spans`, as the model's
    own attention does.

    Args:
        module: the attention layer.
        query: [1, H, P, E].
        key: [1, G, P, E], G dividing H.
        value: the same.
        attention_mask: not read where `spans` is given.
        dropout: for the model's own attention.
        scaling: factor of the products; None is E^-0.5.
        spans: nodes of packed rows.
        kwargs: whatever else the model passes.

    Returns:
        [1, P, H, E], and None for the attention weights.
    """
    if spans is None:
        return grouped_attention(
            module, query, key, value, attention_mask, dropout, scaling, **kwargs
        )
    if kwargs.get("sliding_window") is not None or kwargs.get("softcap") is not None:
        raise CannotPack("its layers attend to a sliding window, or cap their scores")
    kind = query.device.type
    if torch.is_autocast_enabled(kind):
        half = torch.get_autocast_dtype(kind)
        query, key, value = query.to(half), key.to(half), value.to(half)
    if kind == "cpu" and query.shape[-1] == value.shape[-1]:
        attended = _Tree.apply(query, key, value, _Rectangles(spans, scaling))
    elif kind == "cuda" and query.dtype in (torch.float16, torch.bfloat16):
        attended = _in_one_call(query, key, value, spans, scaling)
    else:
        attended = node_by_node(query, key, value, spans, scaling)
    return attended.transpose(1, 2), None


@dataclass(frozen=True, slots=True)
class _Rectangles:
    """The nodes of packed rows, and the factor of the products in them; None is E^-0.5."""

    spans: tuple[PackedSpan, ...]
    scale: float | None


class _Tree(torch.autograd.Function):
    """The sum over rectangles, by the CPU's fused kernel."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, rectangles: _Rectangles
    ) -> Tensor:
        spans, scale = rectangles.spans, rectangles.scale
        _, heads, size, width = query.shape
        # [1, P, H, E] in memory, which is how the layer after it reads the result
        out = query.new_empty(1, size, heads, width).transpose(1, 2)
        precise = torch.promote_types(query.dtype, torch.float32)
        sums = torch.empty(1, size, heads, dtype=precise).transpose(1, 2)
        for span in spans:
            own = slice(span.start, span.end)
            q, k, v = query[:, :, own], key[:, :, own], value[:, :, own]
            out[:, :, own], sums[:, :, own] = _cpu_forward(q, k, v, 0.0, True, scale=scale)
        for span in spans:
            if span.below > span.end:
                own, low = slice(span.start, span.end), slice(span.end, span.below)
                k, v = key[:, :, own], value[:, :, own]
                more, sum_of = _cpu_forward(query[:, :, low], k, v, 0.0, False, scale=scale)
                share = torch.sigmoid(sum_of - sums[:, :, low]).unsqueeze(3)
                out[:, :, low].lerp_(more, share.to(out.dtype))
                sums[:, :, low] = torch.logaddexp(sums[:, :, low], sum_of)
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.rectangles = rectangles
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        query, key, value, out, sums = ctx.saved_tensors
        (grad,) = grads
        grad_q, grad_k, grad_v = (torch.zeros_like(tensor) for tensor in (query, key, value))

        def add(low: slice, own: slice, causal: bool) -> None:
            gradients = _cpu_backward(
                grad[:, :, low],
                query[:, :, low],
                key[:, :, own],
                value[:, :, own],
                out[:, :, low],
                sums[:, :, low],
                0.0,
                causal,
                scale=ctx.rectangles.scale,
            )
            grad_q[:, :, low] += gradients[0]
            grad_k[:, :, own] += gradients[1]
            grad_v[:, :, own] += gradients[2]

        for span in ctx.rectangles.spans:
            own = slice(span.start, span.end)
            add(own, own, True)
            if span.below > span.end:
                add(slice(span.end, span.below), own, False)
        return grad_q, grad_k, grad_v, None


def node_by_node(
    query: Tensor, key: Tensor, value: Tensor, spans: tuple[PackedSpan, ...], scale: float | None
) -> Tensor:
    """Attend with a call of torch's attention for each node, on any device and in any type."""
    sizes = [span.end - span.start for span in spans]
    queries, keys, values = (tensor.split(sizes, dim=2) for tensor in (query, key, value))
    place = {span.start: number for number, span in enumerate(spans)}
    outputs: list[Tensor] = []
    for number, span in enumerate(spans):
        line = [*(place[start] for start, _ in span.above), number]
        k, v = (torch.cat([some[n] for n in line], dim=2) for some in (keys, values))
        mask = None
        if span.above:
            before = k.shape[2] - sizes[number]
            mask = torch.ones(sizes[number], k.shape[2], dtype=torch.bool, device=k.device)
            mask = mask.tril(before)
        outputs.append(
            functional.scaled_dot_product_attention(
                queries[number],
                k,
                v,
                attn_mask=mask,
                is_causal=mask is None,
                scale=scale,
                enable_gqa=key.shape[1] != query.shape[1],
            )
        )
    return torch.cat(outputs, dim=2)


def _in_one_call(
    query: Tensor, key: Tensor, value: Tensor, spans: tuple[PackedSpan, ...], scale: float | None
) -> Tensor:
    """Attend with one call of a kernel for rows of unequal lengths; the keys of shared nodes are
    repeated for each node below, and torch's gradient of that repetition is their sum.
    """
    from torch.nn.attention.varlen import varlen_attn  # torch 2.10

    index, *bounds = unequal_rows(spans, key.device)
    ends: Any = bounds
    k, v = (tensor[0].transpose(0, 1).index_select(0, index) for tensor in (key, value))
    attended: Any = varlen_attn(
        query[0].transpose(0, 1),
        k,
        v,
        *ends,
        window_size=(-1, 0),  # causal, aligned to the last key
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended.transpose(0, 1).unsqueeze(0)


@lru_cache(maxsize=1)
def unequal_rows(
    spans: tuple[PackedSpan, ...], device: torch.device
) -> tuple[Tensor, Tensor, Tensor, int, int]:
    """Return how nodes are rows of unequal lengths: the index of all keys, each node's after those
    above it; where queries and keys of each row end; and the longest row of both. Made once for
    all layers of a pass.
    """
    pieces = [[*span.above, (span.start, span.end)] for span in spans]
    index = torch.cat([torch.arange(*piece) for line in pieces for piece in line]).to(device)
    sizes_q = [span.end - span.start for span in spans]
    sizes_k = [sum(end - start for start, end in line) for line in pieces]

    def ends(sizes: list[int]) -> Tensor:
        return torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=device)

    return index, ends(sizes_q), ends(sizes_k), max(sizes_q), max(sizes_k)


def packed_hidden(model: PreTrainedModel, rows: PackedRows) -> Tensor:
    """Return the last hidden states [P, D] of packed rows; the model's attention is
    `packed_attention`.
    """
    return model.base_model(
        input_ids=rows.ids.unsqueeze(0),
        position_ids=rows.positions.unsqueeze(0),
        # a mask of four axes is passed on as it is, so that the model makes none of [P, P]
        attention_mask=rows.ids.new_zeros(1, 1, 1, 1, dtype=torch.bool),
        use_cache=False,
        spans=rows.spans,
    ).last_hidden_state[0]


def why_unpackable(model: PreTrainedModel) -> str:
    """Give a model the attention of packed rows, and compare the results with padded rows.

    Returns:
        "" where both agree; else the reason, and the model has its own attention as before.
    """
    if not isinstance(model, PreTrainedModel):
        return f"{type(model).__name__} is not a transformers model in memory"
    before = model.config._attn_implementation or "sdpa"
    layers = set(getattr(model.config.get_text_config(), "layer_types", None) or [])
    if layers - {"full_attention"}:
        return f"it has layers of the kind {', '.join(sorted(layers - {'full_attention'}))}"
    try:
        model.set_attn_implementation(NAME)
        tried = miniature(model.config) if model.device.type == "meta" else model
        tried.set_attn_implementation(NAME)
        gap = _gap(tried)
        if gap <= TOLERANCE:
            return ""
        reason = f"packed and padded rows differ by {gap:.1g} of the largest hidden state"
    except (TypeError, ValueError, AttributeError, RuntimeError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
    model.set_attn_implementation(before)
    return reason


@torch.no_grad()
def _gap(model: PreTrainedModel) -> float:
    """Return the largest difference between packed and padded hidden states of a few rows."""
    vocabulary = model.config.get_text_config().vocab_size
    ids = (torch.arange(40).reshape(2, 20) * 7 + 1) % vocabulary
    ids = torch.cat([ids, ids[:1]])
    ids[2, 9:] = ids[1, 9:]  # nine tokens in common with the first row
    lengths = torch.tensor([20, 13, 17])
    ids, lengths = ids.to(model.device), lengths.to(model.device)
    padded = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    packed = pack_rows(ids, lengths, min_shared=4)
    hidden = packed_hidden(model, packed)[packed.places]
    real = torch.arange(20, device=ids.device) < lengths.unsqueeze(1)
    return float((hidden - padded)[real].abs().max() / padded[real].abs().max())


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
