"""Weights of small CLIP models in OpenAI's format, the same wherever they are made.

The scores that public code gives for them are in `clip_scores.json`, recorded by
`scripts/record_clip_scores.py`. Nothing here needs ludus or torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from seeded_image_reward import draw

VOCABULARY = 500
LENGTH = 77
TOKENS = ((498, 7, 99, 320, 499), (498, 499), (498, *range(1, 76), 499))
"""Start mark, words, end mark."""


@dataclass(frozen=True)
class ClipShape:
    """The sizes of a CLIP model."""

    vision_width: int
    vision_heads: int
    vision_layers: int = 2
    text_width: int = 128
    text_heads: int = 2
    text_layers: int = 2
    patch: int = 32
    embedding: int = 48


OPENAI = ClipShape(vision_width=128, vision_heads=2)
"""Heads of 64, as in OpenAI's models."""
HUGE = ClipShape(vision_width=160, vision_heads=2)
"""Heads of 80, as in ViT-H/14."""


def seeded_clip(shape: ClipShape) -> dict[str, NDArray[np.generic]]:
    """A state dict in OpenAI's format."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embedding.weight": (VOCABULARY, shape.text_width),
        "positional_embedding": (LENGTH, shape.text_width),
        "text_projection": (shape.text_width, shape.embedding),
        "visual.class_embedding": (shape.vision_width,),
        "visual.positional_embedding": ((224 // shape.patch) ** 2 + 1, shape.vision_width),
        "visual.conv1.weight": (shape.vision_width, 3, shape.patch, shape.patch),
        "visual.proj": (shape.vision_width, shape.embedding),
    }
    for name, width in (
        ("ln_final", shape.text_width),
        ("visual.ln_pre", shape.vision_width),
        ("visual.ln_post", shape.vision_width),
    ):
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)
    for prefix, width, layers in (
        ("transformer", shape.text_width, shape.text_layers),
        ("visual.transformer", shape.vision_width, shape.vision_layers),
    ):
        for number in range(layers):
            shapes |= _block(f"{prefix}.resblocks.{number}", width)
    drawn = {name: draw(name, one) for name, one in shapes.items()}
    for name, array in list(drawn.items()):
        if "ln_" in name and name.endswith("weight"):
            drawn[name] = 1 + array  # drawn as a bias, about 0
    return {**drawn, "logit_scale": np.array(4.6, dtype=np.float32)}


def _block(block: str, width: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        f"{block}.attn.in_proj_weight": (3 * width, width),
        f"{block}.attn.in_proj_bias": (3 * width,),
        f"{block}.attn.out_proj.weight": (width, width),
        f"{block}.attn.out_proj.bias": (width,),
        f"{block}.mlp.c_fc.weight": (4 * width, width),
        f"{block}.mlp.c_fc.bias": (4 * width,),
        f"{block}.mlp.c_proj.weight": (width, 4 * width),
        f"{block}.mlp.c_proj.bias": (width,),
    }
    for norm in ("ln_1", "ln_2"):
        shapes[f"{block}.{norm}.weight"] = shapes[f"{block}.{norm}.bias"] = (width,)
    return shapes


def seeded_head(width: int) -> dict[str, NDArray[np.generic]]:
    """The aesthetic predictor's weights, in its own format."""
    sizes = (width, 1024, 128, 64, 16, 1)
    head: dict[str, NDArray[np.generic]] = {}
    for index, inputs, outputs in zip((0, 2, 4, 6, 7), sizes, sizes[1:], strict=False):
        head[f"layers.{index}.weight"] = draw(f"aesthetic.{index}.weight", (outputs, inputs))
        head[f"layers.{index}.bias"] = draw(f"aesthetic.{index}.bias", (outputs,))
    return head
