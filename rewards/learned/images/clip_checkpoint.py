"""Checkpoints of CLIP in the format of OpenAI and open_clip, read for transformers' `CLIPModel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor
from transformers import CLIPConfig

from .weights import WrongCheckpoint

TEXT_HEAD_WIDTH: Final = 64
NOT_TENSORS: Final = ("input_resolution", "context_length", "vocab_size")
"""Numbers that OpenAI's archives hold beside the weights."""
FIRST_END: Final = 2
"""The end token by which transformers is told to take each text's largest id for its end, as
OpenAI's code does.
"""
NAMES: Final = {
    "logit_scale": "logit_scale",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}
TRANSPOSED: Final = {
    "text_projection": "text_projection.weight",
    "visual.proj": "visual_projection.weight",
}
BLOCKS: Final = {
    "transformer.resblocks.": "text_model.encoder.layers.",
    "visual.transformer.resblocks.": "vision_model.encoder.layers.",
}
IN_BLOCKS: Final = {
    "attn.out_proj.": "self_attn.out_proj.",
    "ln_1.": "layer_norm1.",
    "ln_2.": "layer_norm2.",
    "mlp.c_fc.": "mlp.fc1.",
    "mlp.c_proj.": "mlp.fc2.",
}


@dataclass(frozen=True)
class ClipSizes:
    """Layers and widths of a CLIP model."""

    vision_layers: int
    vision_width: int
    text_layers: int
    text_width: int

    @classmethod
    def of(cls, config: CLIPConfig) -> ClipSizes:
        """Return the layers and widths of a configuration."""
        vision: Any = config.vision_config
        text: Any = config.text_config
        return cls(
            vision.num_hidden_layers, vision.hidden_size, text.num_hidden_layers, text.hidden_size
        )


def is_openai_format(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether the tensors have OpenAI's names of a CLIP with a vision transformer."""
    return "visual.conv1.weight" in tensors


def clip_config(
    tensors: Mapping[str, Tensor], *, vision_head_width: int, activation: str
) -> CLIPConfig:
    """Return the configuration that fits the shapes of the tensors. The width of heads and the
    activation do not show in the shapes and are given.

    Raises:
        WrongCheckpoint: a tensor that tells a size is missing.
    """
    try:
        vision = tensors["visual.conv1.weight"]
        positions = tensors["visual.positional_embedding"].shape[0] - 1
        width = tensors["ln_final.weight"].shape[0]
        embedding = tensors["text_projection"].shape[1]
        vocabulary = tensors["token_embedding.weight"].shape[0]
        length = tensors["positional_embedding"].shape[0]
    except KeyError as error:
        raise WrongCheckpoint(f"no checkpoint of CLIP: {error.args[0]!r} is missing") from None
    patch = int(vision.shape[2])
    text_sizes: dict[str, Any] = {
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": _layers(tensors, "transformer.resblocks."),
        "num_attention_heads": width // TEXT_HEAD_WIDTH,
        "vocab_size": vocabulary,
        "max_position_embeddings": length,
        "hidden_act": activation,
        "eos_token_id": FIRST_END,
    }
    vision_sizes: dict[str, Any] = {
        "hidden_size": vision.shape[0],
        "intermediate_size": 4 * vision.shape[0],
        "num_hidden_layers": _layers(tensors, "visual.transformer.resblocks."),
        "num_attention_heads": vision.shape[0] // vision_head_width,
        "patch_size": patch,
        "image_size": patch * round(positions**0.5),
        "hidden_act": activation,
    }
    return CLIPConfig(text_config=text_sizes, vision_config=vision_sizes, projection_dim=embedding)


def our_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors as `CLIPModel` does; unknown names stay, and are refused on loading."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in NOT_TENSORS or name == "attn_mask":
            continue
        if name in TRANSPOSED:
            renamed[TRANSPOSED[name]] = tensor.T.contiguous()
        else:
            renamed |= _block_tensors(name, tensor)
    return renamed


def _block_tensors(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Rename a tensor of a block; the joint projection of an attention becomes three tensors."""
    for their_name, block in BLOCKS.items():
        if not name.startswith(their_name):
            continue
        number, _, tail = name.removeprefix(their_name).partition(".")
        if tail.startswith("attn.in_proj_"):
            kind = tail.removeprefix("attn.in_proj_")
            return {
                f"{block}{number}.self_attn.{letter}_proj.{kind}": part.clone()
                for letter, part in zip("qkv", tensor.chunk(3), strict=True)
            }
        for old, new in IN_BLOCKS.items():
            if tail.startswith(old):
                return {f"{block}{number}.{new}{tail.removeprefix(old)}": tensor}
    return {NAMES.get(name, name): tensor}


def _layers(tensors: Mapping[str, Tensor], prefix: str) -> int:
    numbers = {
        int(name.removeprefix(prefix).partition(".")[0])
        for name in tensors
        if name.startswith(prefix)
    }
    return max(numbers, default=-1) + 1
