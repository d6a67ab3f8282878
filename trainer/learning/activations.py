# pyright: basic
"""What decoder layers keep between the forward and the backward pass."""

from __future__ import annotations

from typing import Any

from torch.distributed._composable.checkpoint_activation import checkpoint

from ..adapters import decoder_layers

MARK = "_ludus_checkpointed"


def checkpoint_layers(model: Any) -> None:
    """Let each decoder layer keep only its input, and compute the rest once more in the backward
    pass; names and gradients stay the same.

    transformers' own `gradient_checkpointing_enable` would do nothing here, since it acts in
    training mode alone and a learner's model is in evaluation mode, without dropout.

    Raises:
        ConfigError: the model has no list of decoder layers.
    """
    for layer in decoder_layers(model):
        if not getattr(layer, MARK, False):
            checkpoint(layer)
            setattr(layer, MARK, True)
