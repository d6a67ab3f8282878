# pyright: basic
"""How decoder layers compute: what they keep for the backward pass, and with which kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed._composable.checkpoint_activation import checkpoint as checkpoint_module

from ludus.errors import ConfigError, MissingExtra

from ..models.adapters import decoder_layers
from .allocator import trimmer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MARK = "_ludus_prepared"
"""Attribute of a decoder layer: the set of preparations that were made."""


def prepare_layers(model: PreTrainedModel, *, checkpoint: bool, compiled: bool) -> None:
    """Prepare each decoder layer as the settings ask; names and gradients stay the same.

    Args:
        model: a causal LM; a second call for the same model changes nothing.
        checkpoint: whether a layer keeps only its input, and computes the rest once more in the
            backward pass. transformers' own `gradient_checkpointing_enable` would do nothing here,
            since it acts in training mode alone and a learner's model is in evaluation mode.
        compiled: whether a layer is compiled by `torch.compile`, for any number of tokens.

    Raises:
        ConfigError: the model has no list of decoder layers.
    """
    for layer in decoder_layers(model) if checkpoint or compiled else ():
        done: set[str] = getattr(layer, MARK, set())
        if compiled and "compiled" not in done:
            layer.compile(dynamic=True)
        if checkpoint and "checkpoint" not in done:
            checkpoint_module(layer)
            if model.device.type == "cpu":
                layer.register_forward_hook(_after_a_layer)
        asked = {"compiled": compiled, "checkpoint": checkpoint}
        setattr(layer, MARK, done | {name for name, wanted in asked.items() if wanted})


_trim = trimmer()


def _after_a_layer(layer: Any, *_: Any) -> None:
    """Give the memory that a layer has freed back to the system (decision 0654). A pass without
    gradient keeps no inputs of layers, between which freed memory would be lost.
    """
    if torch.is_grad_enabled():
        _trim()


def use_liger(model: PreTrainedModel) -> None:
    """Replace norms, rotary positions and feed-forward products by the fused kernels of
    liger-kernel, in place. Unmeasured: no GPU was there when this was written.

    Raises:
        ConfigError: the model is not on a CUDA device, or liger-kernel does not know its kind.
        MissingExtra: liger-kernel is not installed.
    """
    if model.device.type != "cuda":
        raise ConfigError(
            f"trainer.kernels is 'liger', whose kernels need a CUDA device; the model is on "
            f"{model.device.type!r}; leave trainer.kernels at torch"
        )
    try:
        from liger_kernel.transformers import (  # pyright: ignore[reportMissingImports]
            _apply_liger_kernel_to_instance as apply,
        )
        from liger_kernel.transformers.monkey_patch import (  # pyright: ignore[reportMissingImports]
            MODEL_TYPE_TO_APPLY_LIGER_FN as known,
        )
    except ImportError:
        raise MissingExtra.of("liger", needed_for="trainer.kernels = liger") from None
    if model.config.model_type not in known:
        raise ConfigError(
            f"trainer.kernels is 'liger', which has no kernels for {model.config.model_type!r}; "
            "leave trainer.kernels at torch"
        )
    apply(model=model)
