"""How many tokens a model can hold at a time, by the model's size and the memory that is free.

Settings that bound tokens (`trainer.tokens_per_pass`, `local.kept_tokens`, `local.prefill_tokens`)
are chosen here unless they are set. The estimates are for decoders of the Llama kind.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


MAX_PASS = 16_384
MAX_KEPT = 200_000
"""Bounds that hold however much memory is free; that longer passes gain nothing is a judgement,
not a measurement.
"""
MIN_PASS = 512

PASS_SHARE = {"cpu": 1 / 4, "cuda": 1 / 2}
"""Share of the free memory that the tokens of a pass with gradient may take. A machine's memory has
other users.
"""
KEPT_SHARE, PREFILL_SHARE = 1 / 10, 1 / 20
"""Shares of the free memory for kept keys and values, and for the tokens of a prompt pass."""
HIDDEN_KEPT, MIDDLE_KEPT = 16, 5
"""Number of tensors of the hidden and of the feed-forward size that a layer keeps for the backward
pass. The estimate is 1.93 MB per token of SmolLM2-135M in float32; 1.7 to 2.0 MB were measured.
"""
HIDDEN_AT_ONCE, MIDDLE_AT_ONCE = 12, 3
"""The same for a pass without gradient, which holds one layer at a time."""

# Limit and use of the process's control group, in the two versions of the kernel's interface. The
# file `memory.stat` beside them says what of the use are pages of files.
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)

_INACTIVE = re.compile(r"^(?:total_)?inactive_file (\d+)$", re.MULTILINE)
"""In version 1 `total_` counts the groups below too; version 2 always does."""


def free_bytes(device: torch.device | str) -> int:
    """Return the memory that is free on a device: of a CUDA device what its driver says, else what
    the machine has available, within the limit of the process's control group.
    """
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    line = re.search(r"^MemAvailable:\s+(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE)
    free = int(line[1]) * 1024 if line else 4 << 30
    for limit, used in _CGROUPS:
        bound, taken = _read(limit).strip(), _read(used).strip()
        if bound.isdigit() and taken.isdigit():
            # Pages of files that were read count as taken, and are given up when memory is needed;
            # otherwise little would seem free after a large model or data set was read.
            pages = _INACTIVE.findall(_read(used.with_name("memory.stat")))
            free = min(free, int(bound) - int(taken) + max(map(int, pages), default=0))
    return max(0, free)


def training_bytes(
    config: PretrainedConfig, dtype: torch.dtype = torch.float32, *, checkpointed: bool = False
) -> int:
    """Return the bytes that a token keeps between the forward and the backward pass in `dtype`;
    logits are not among them, since they are computed in slices.

    Layers that are `checkpointed` keep their input, and one layer at a time the rest.
    """
    text = config.get_text_config()
    layer = _width(text, HIDDEN_KEPT, MIDDLE_KEPT)
    if checkpointed:
        return dtype.itemsize * (_layers(text) * _width(text, 1, 0) + layer)
    return dtype.itemsize * _layers(text) * layer


def cached_bytes(config: PretrainedConfig, dtype: torch.dtype) -> int:
    """Return the bytes of the keys and values of a token."""
    text = config.get_text_config()
    heads = int(getattr(text, "num_key_value_heads", None) or text.num_attention_heads)
    size = int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)
    return 2 * _layers(text) * heads * size * dtype.itemsize


def prefill_bytes(config: PretrainedConfig, dtype: torch.dtype) -> int:
    """Return the bytes that a token of a prompt takes while the prompt is computed."""
    text = config.get_text_config()
    passing = dtype.itemsize * _width(text, HIDDEN_AT_ONCE, MIDDLE_AT_ONCE)
    return passing + cached_bytes(config, dtype)


def fitting_pass(
    model: PreTrainedModel,
    dtype: torch.dtype = torch.float32,
    free: int | None = None,
    *,
    checkpointed: bool = False,
    ranks: int = 1,
    engine_copy: bool = True,
    device: str = "",
    float32_head: bool = False,
) -> int:
    """Return the number of tokens that a forward and backward pass of a learner computes.

    An engine's copy of the weights, what ranks gather of them, and the gradient and the optimizer's
    two moments of those that are trained, are yet to be allocated, and are set aside.

    Args:
        model: a transformers causal LM.
        dtype: the type to compute in.
        free: free bytes; None measures.
        checkpointed: whether layers are computed again in the backward pass.
        ranks: the number of processes that share the weights, whose shards are allocated.
        engine_copy: whether an engine's copy is yet to be allocated.
        device: the device of a model without weights; empty is where the weights are.
        float32_head: whether ranks gather what is outside of the layers in float32.
    """
    available = free_bytes(model.device) if free is None else free
    whole = sum(weight.numel() for weight in model.parameters())
    reserved = (
        sum(weight.numel() * weight.element_size() for weight in model.parameters()) * engine_copy
    )
    if ranks > 1:
        layers = _layers(model.config.get_text_config())
        inside = sum(
            weight.numel() for name, weight in model.named_parameters() if ".layers." in name
        )
        # Two layers and what is outside of them, and the gradient of these before it is reduced.
        outside = 4 if float32_head else dtype.itemsize
        reserved += (dtype.itemsize + 4) * 2 * inside // layers
        reserved += (outside + 4) * (whole - inside)
    for weight in model.parameters():
        # The gradient and two moments, and the float32 copy of a weight in half precision.
        if weight.requires_grad:
            copies = 3 + (weight.element_size() < 4)
            reserved += weight.numel() * torch.float32.itemsize * copies // ranks
    place = torch.device(device).type if device else model.device.type
    room = PASS_SHARE.get(place, 1 / 4) * (available - reserved)
    per_token = training_bytes(model.config, dtype, checkpointed=checkpointed)
    return _between(room / per_token, MIN_PASS, MAX_PASS)


def fitting_cache(model: PreTrainedModel, free: int | None = None) -> int:
    """Return the number of tokens whose keys and values an engine keeps between turns."""
    available = free_bytes(model.device) if free is None else free
    return _between(KEPT_SHARE * available / cached_bytes(model.config, model.dtype), 0, MAX_KEPT)


def fitting_prefill(model: PreTrainedModel, free: int | None = None) -> int:
    """Return the number of padded prompt tokens for a forward pass of an engine."""
    available = free_bytes(model.device) if free is None else free
    room = PREFILL_SHARE * available
    return _between(room / prefill_bytes(model.config, model.dtype), MIN_PASS, MAX_PASS)


def _between(tokens: float, low: int, high: int) -> int:
    return max(low, min(high, int(tokens)))


def _layers(text: PretrainedConfig) -> int:
    return int(text.num_hidden_layers)


def _width(text: PretrainedConfig, hidden_tensors: int, middle_tensors: int) -> int:
    """Return the channels of the given numbers of tensors of the two sizes in a layer."""
    hidden = int(text.hidden_size)
    middle = int(getattr(text, "intermediate_size", None) or 4 * hidden)
    return hidden_tensors * hidden + middle_tensors * middle


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
