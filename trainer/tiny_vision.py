# pyright: basic
"""A small policy that reads images, without downloads: a Qwen3-VL-shaped model with random weights.

The folder is loaded by the same code as a released model. The tokenizer and the decoder are those
of the tiny text policy in shape; the image processor is the one of transformers with Qwen3-VL's
patches of 16 pixels, merged two by two, so that a token shows 32 x 32 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from .engines.models import save_model
from .tiny import CHAT_TEMPLATE, build_tokenizer
from .vision import ImageReader

VISION_START, IMAGE, VISION_END, VIDEO = (
    "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"
)  # fmt: skip
PATCH, MERGE = 16, 2
MAX_PIXELS = 256 * 256
"""Larger images are made smaller: 64 tokens are much for a context of 1,024."""

_SHOW = (
    "{%- macro show(content) %}{% if content is string %}{{ content }}{% else %}"
    "{% for part in content %}{% if part.type == 'image' %}"
    + VISION_START + IMAGE + VISION_END
    + "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endmacro -%}\n"
)  # fmt: skip
VISION_TEMPLATE = _SHOW + CHAT_TEMPLATE.replace("message.content", "show(message.content)")


def build_image_reader(token_id: int, *, max_pixels: int = MAX_PIXELS) -> ImageReader:
    """Build the image processor of the tiny policy."""
    processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": (PATCH * MERGE) ** 2, "longest_edge": max_pixels},
        patch_size=PATCH,
        merge_size=MERGE,
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )
    return ImageReader(processor, IMAGE, token_id)


@dataclass(frozen=True)
class TinyVisionShape:
    """The sizes of a small Qwen3-VL-shaped model."""

    hidden: int = 128
    """Width of the decoder."""
    layers: int = 2
    """The number of layers of the decoder."""
    heads: int = 4
    """Attention heads of the decoder; each has `hidden // heads` channels, an even number."""
    vision_hidden: int = 64
    """Width of the vision tower, which has 4 heads."""
    vision_layers: int = 2
    """The number of layers of the vision tower; the first of them also feeds DeepStack."""
    max_length: int = 1024
    """The most positions."""

    def decoder(self, tokenizer: PreTrainedTokenizerFast) -> dict[str, object]:
        """Return the settings of the decoder, whose rotary positions are split in time, height and
        width.
        """
        head_size = self.hidden // self.heads
        height = width = head_size // 6
        return {
            "vocab_size": len(tokenizer),
            "hidden_size": self.hidden,
            "intermediate_size": 4 * self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": head_size,
            "max_position_embeddings": self.max_length,
            "initializer_range": self.hidden**-0.5,
            "pad_token_id": 0,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [head_size // 2 - height - width, height, width],
                "mrope_interleaved": True,
            },
        }

    def tower(self) -> dict[str, object]:
        """Return the settings of the vision tower."""
        return {
            "depth": self.vision_layers,
            "hidden_size": self.vision_hidden,
            "intermediate_size": 2 * self.vision_hidden,
            "num_heads": 4,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": self.hidden,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
            "initializer_range": self.vision_hidden**-0.5,
        }


def build_vision_model(
    tokenizer: PreTrainedTokenizerFast, shape: TinyVisionShape, *, seed: int = 0
) -> Qwen3VLForConditionalGeneration:
    """Build a Qwen3-VL-shaped model with random weights.

    Args:
        tokenizer: with the special tokens of images.
        shape: the sizes of the model.
        seed: seed of the weights.
    """
    ids = tokenizer.get_vocab()
    config = Qwen3VLConfig(
        text_config=shape.decoder(tokenizer),
        vision_config=shape.tower(),
        image_token_id=ids[IMAGE],
        video_token_id=ids[VIDEO],
        vision_start_token_id=ids[VISION_START],
        vision_end_token_id=ids[VISION_END],
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model


def build_vision_tokenizer(phrases: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Build the tiny policy's tokenizer with the special tokens and the template of images."""
    marks = (VISION_START, IMAGE, VISION_END, VIDEO)
    return build_tokenizer(phrases, marks=marks, template=VISION_TEMPLATE)


def write_tiny_vision_policy(
    path: str | Path, *, phrases: Sequence[str] = (), seed: int = 0, **shape: int
) -> Path:
    """Write a model folder with random weights and an image processor.

    Args:
        path: the folder to write; created if missing.
        phrases: strings that become one token each, such as tool names.
        seed: seed of the weights.
        shape: sizes that differ from those of `TinyVisionShape`.
    """
    tokenizer = build_vision_tokenizer(phrases)
    reader = build_image_reader(tokenizer.get_vocab()[IMAGE])
    model = build_vision_model(tokenizer, TinyVisionShape(**shape), seed=seed)
    save_model(model, tokenizer, path, images=reader)
    return Path(path)
