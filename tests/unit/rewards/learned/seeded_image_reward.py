"""Weights, a vocabulary, images and prompts that are the same wherever they are made.

The scores of the original ImageReward for them are in `image_reward_scores.json`, recorded by
`scripts/record_image_reward.py` in an environment of its own. Nothing here needs ludus or torch.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[np.float32]
VOCAB_SIZE = 30_522
WORDS = (
    "a an the of in on with and red blue green cat dog house tree river painting photo very small"
)


@dataclass(frozen=True)
class Sizes:
    """The sizes of an ImageReward model."""

    vision_width: int
    vision_layers: int
    vision_heads: int
    text_width: int
    text_layers: int
    text_heads: int
    text_hidden: int
    projection: int = 256


TINY = Sizes(128, 2, 2, 192, 2, 3, 384)
FULL = Sizes(1024, 24, 16, 768, 12, 12, 3072)


def seeded_checkpoint(sizes: Sizes) -> dict[str, NDArray[np.generic]]:
    """A state dict in the format of `ImageReward.pt`, drawn from the names of its tensors."""
    drawn = {name: draw(name, shape) for name, shape in _shapes(sizes).items()}
    positions = np.arange(512, dtype=np.int64)[None]
    return {"blip.text_encoder.embeddings.position_ids": positions, **drawn}


def draw(name: str, shape: tuple[int, ...]) -> Array:
    """A tensor drawn from its name, scaled so that signals neither vanish nor explode."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = rng.standard_normal(shape, dtype=np.float32)
    is_norm = "norm" in name.lower() and name.endswith("weight")
    if is_norm:
        return (1 + 0.1 * drawn).astype(np.float32)
    if len(shape) == 1:
        return (0.1 * drawn).astype(np.float32)
    if "embeddings" in name or name.endswith(("pos_embed", "cls_token")):
        return (0.5 * drawn).astype(np.float32)
    gain = 1.5 if "attn" in name or "attention" in name else 1.0
    return (gain * drawn / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def _shapes(s: Sizes) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, outputs: int, inputs: int) -> None:
        shapes[f"{name}.weight"] = (outputs, inputs)
        shapes[f"{name}.bias"] = (outputs,)

    def norm(name: str, width: int) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)

    vision, width = "blip.visual_encoder", s.vision_width
    shapes[f"{vision}.cls_token"] = (1, 1, width)
    shapes[f"{vision}.pos_embed"] = (1, 197, width)
    shapes[f"{vision}.patch_embed.proj.weight"] = (width, 3, 16, 16)
    shapes[f"{vision}.patch_embed.proj.bias"] = (width,)
    for number in range(s.vision_layers):
        block = f"{vision}.blocks.{number}"
        norm(f"{block}.norm1", width)
        norm(f"{block}.norm2", width)
        linear(f"{block}.attn.qkv", 3 * width, width)
        linear(f"{block}.attn.proj", width, width)
        linear(f"{block}.mlp.fc1", 4 * width, width)
        linear(f"{block}.mlp.fc2", width, 4 * width)
    norm(f"{vision}.norm", width)

    text = "blip.text_encoder"
    shapes[f"{text}.embeddings.word_embeddings.weight"] = (VOCAB_SIZE + 2, s.text_width)
    shapes[f"{text}.embeddings.position_embeddings.weight"] = (512, s.text_width)
    norm(f"{text}.embeddings.LayerNorm", s.text_width)
    for number in range(s.text_layers):
        layer = f"{text}.encoder.layer.{number}"
        for attention, inputs in (("attention", s.text_width), ("crossattention", width)):
            linear(f"{layer}.{attention}.self.query", s.text_width, s.text_width)
            linear(f"{layer}.{attention}.self.key", s.text_width, inputs)
            linear(f"{layer}.{attention}.self.value", s.text_width, inputs)
            linear(f"{layer}.{attention}.output.dense", s.text_width, s.text_width)
            norm(f"{layer}.{attention}.output.LayerNorm", s.text_width)
        linear(f"{layer}.intermediate.dense", s.text_hidden, s.text_width)
        linear(f"{layer}.output.dense", s.text_width, s.text_hidden)
        norm(f"{layer}.output.LayerNorm", s.text_width)

    linear("blip.vision_proj", s.projection, width)
    linear("blip.text_proj", s.projection, s.text_width)
    head = [s.text_width, 1024, 128, 64, 16, 1]
    for index, (inputs, outputs) in zip((0, 2, 4, 6, 7), itertools.pairwise(head), strict=True):
        linear(f"mlp.layers.{index}", outputs, inputs)
    return shapes


def write_vocabulary(path: Path) -> Path:
    """A BERT vocabulary of the usual size, with its special tokens where BERT has them."""
    special = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}
    letters = "bcdefghijklmnopqrstuvwxyz0123456789.,!?'-()\"[]"
    pieces = [*WORDS.split(), *letters, *(f"##{letter}" for letter in letters), "猫", "##ing"]
    tokens = [special.get(index, f"[unused{index}]") for index in range(VOCAB_SIZE)]
    tokens[1000 : 1000 + len(pieces)] = pieces
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return path


PROMPTS = (
    "a red cat on a small house",
    "",
    "A PAINTING of the river, with trees!",
    "café 猫 [ENC] [DEC] 42",
    "very " * 60 + "blue",
)


@functools.cache
def images() -> dict[str, Image.Image]:
    """Images of several sizes and modes."""

    def noise(seed: int, height: int, width: int, channels: int) -> NDArray[np.uint8]:
        rng = np.random.default_rng(seed)
        coarse = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, channels), dtype=np.uint8)
        fine = rng.integers(0, 64, (height, width, channels), dtype=np.uint8)
        smooth = coarse.repeat(8, 0).repeat(8, 1)[:height, :width] // 2
        return (smooth + fine).astype(np.uint8)

    def coloured(seed: int, height: int, width: int) -> Image.Image:
        return Image.fromarray(noise(seed, height, width, 3))

    palette = coloured(6, 300, 260).quantize(32)
    palette.info["transparency"] = 3
    return {
        "wide": coloured(1, 301, 500),
        "tall": coloured(2, 477, 225),
        "square": coloured(3, 224, 224),
        "enlarged": coloured(4, 57, 100),
        "alpha": Image.fromarray(noise(5, 240, 331, 4)),
        "palette": palette,
        "cmyk": coloured(7, 250, 300).convert("CMYK"),
        "grey": coloured(8, 333, 250).convert("L"),
        "grey-alpha": Image.fromarray(noise(9, 260, 240, 4)).convert("LA"),
        "bilevel": coloured(10, 280, 300).convert("1"),
        "one-pixel": coloured(11, 1, 1),
    }


FULL_SIZE_CASES = (("wide", 0), ("tall", 2), ("palette", 3), ("alpha", 4))
"""(image, index of the prompt): what is scored at full size, where one takes a second."""
