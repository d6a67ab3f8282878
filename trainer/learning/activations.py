# pyright: basic
"""How decoder layers compute: what they keep for the backward pass, and whether compiled."""

from __future__ import annotations

from typing import Any

from torch.distributed._composable.checkpoint_activation import checkpoint as checkpoint_module

from ..adapters import decoder_layers

MARK = "_ludus_prepared"


def prepare_layers(model: Any, *, checkpoint: bool, compiled: bool) -> None:
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
        asked = {"compiled": compiled, "checkpoint": checkpoint}
        setattr(layer, MARK, done | {name for name, wanted in asked.items() if wanted})
