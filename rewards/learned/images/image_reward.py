"""ImageReward (Xu et al., 2023, arXiv:2304.05977) on transformers' BLIP.

The model is BLIP's image encoder (a ViT), whose output the text encoder attends to, and an affine
head on the feature of [CLS]: reward = (head - 0.167) / 1.033. The original checkpoint is read as it
is; given the same weights, rewards equal the original's to 1e-4 in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import torch
from torch import Tensor, nn
from transformers import BertTokenizer, BlipVisionConfig, BlipVisionModel
from transformers.models.blip.configuration_blip import BlipTextConfig
from transformers.models.blip.modeling_blip_text import BlipTextModel

from .pixels import Image, Pixels, clip_pixels
from .scorer import ImageScorer, affine_head, normalised, shorter_side_crop
from .weights import WrongCheckpoint, digest, load_strictly, read_checkpoint

MEAN: Final = 0.16717362830052426
STD: Final = 1.0333394966054072
MAX_TOKENS: Final = 35
VOCAB_SIZE: Final = 30_522
"""The vocabulary of bert-base-uncased; [DEC] and [ENC] follow."""
SIZE: Final = 224
HEAD_WIDTH: Final = 64
UNUSED = ("blip.vision_proj.", "blip.text_proj.", "blip.text_encoder.embeddings.position_ids")
"""Tensors of the checkpoint that no score depends on."""


@dataclass(frozen=True, kw_only=True)
class ImageRewardSizes:
    """The sizes of the model, by default of ImageReward-v1.0 (446.7 million parameters). Attention
    heads are 64 wide.
    """

    vision_width: int = 1024
    vision_layers: int = 24
    text_width: int = 768
    text_layers: int = 12
    text_hidden: int = 3072


class FusedAttention(nn.Module):
    """Attention over the patches of images, with BLIP's weights and torch's fused kernel.

    transformers computes attention in steps that keep every score [n, heads, 197, 197] in memory.
    The fused kernel does not, which makes a batch of 16 about 15 % faster on a CPU. All images have
    the same size, so there is no mask.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, hidden_states: Tensor, **_: object) -> tuple[Tensor, None]:
        """Return the attention's output [n, patches, width], and no weights."""
        number, patches, width = hidden_states.shape
        shape = (number, patches, 3, self.heads, width // self.heads)
        query, key, value = self.qkv(hidden_states).reshape(shape).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.projection(mixed.transpose(1, 2).reshape(number, patches, width)), None


class ImageReward(ImageScorer):
    """ImageReward predicts how much people prefer an image for a prompt; about -2 to 2, mean 0.

    Build the model with `ImageReward.load`.
    """

    preprocessing: ClassVar[str] = (
        "shorter side to 224 (PIL bicubic, in the image's own mode), centre crop, RGB, CLIP's mean "
        "and deviation, EXIF orientation not applied; BERT tokens, cut to 35"
    )

    def __init__(self, sizes: ImageRewardSizes | None = None) -> None:
        super().__init__()
        sizes = sizes or ImageRewardSizes()
        vision = BlipVisionConfig(
            hidden_size=sizes.vision_width,
            intermediate_size=4 * sizes.vision_width,
            num_hidden_layers=sizes.vision_layers,
            num_attention_heads=sizes.vision_width // HEAD_WIDTH,
            image_size=SIZE,
            patch_size=16,
            layer_norm_eps=1e-6,
            hidden_act="gelu",
        )
        self.vision = BlipVisionModel(vision)
        for layer in self.vision.encoder.layers:
            layer.self_attn = FusedAttention(sizes.vision_width, vision.num_attention_heads)
        self.text = BlipTextModel(
            BlipTextConfig(
                vocab_size=VOCAB_SIZE + 2,
                hidden_size=sizes.text_width,
                encoder_hidden_size=sizes.vision_width,
                intermediate_size=sizes.text_hidden,
                num_hidden_layers=sizes.text_layers,
                num_attention_heads=sizes.text_width // HEAD_WIDTH,
                max_position_embeddings=512,
                layer_norm_eps=1e-12,
                hidden_act="gelu",
                # Only a decoder is built with cross-attention. `forward` passes is_decoder=False,
                # so that every token attends to all tokens.
                is_decoder=True,
            ),
            add_pooling_layer=False,
        )
        self.head = affine_head(sizes.text_width)
        self.tokenizer: BertTokenizer | None = None
        self.weights = {}

    @classmethod
    def load(
        cls, checkpoint: str | Path, vocab: str | Path, *, any_size: bool = False
    ) -> ImageReward:
        """Read the original `ImageReward.pt`.

        Args:
            checkpoint: the original checkpoint, unchanged.
            vocab: `vocab.txt` of bert-base-uncased, or a folder that has one.
            any_size: takes a model of other sizes than ImageReward-v1.0, which its shapes tell.

        Raises:
            WrongCheckpoint: a tensor is missing, left over or of another shape; or the vocabulary
                is another one. The message names them.
        """
        checkpoint, vocab = Path(checkpoint), Path(vocab)
        tensors = {
            our_name(name): tensor
            for name, tensor in read_checkpoint(checkpoint).items()
            if not name.startswith(UNUSED)
        }
        with torch.device("meta"):
            model = cls(_sizes_of(tensors) if any_size else None)
        load_strictly(model, tensors, str(checkpoint))
        vocab = vocab / "vocab.txt" if vocab.is_dir() else vocab
        model.tokenizer = read_vocabulary(vocab)
        model.weights = {"checkpoint": digest(checkpoint), "vocab": digest(vocab)}
        return model.eval().requires_grad_(False)

    def pixels_of(self, image: Image.Image) -> Pixels:
        """Return the image as OpenAI's CLIP preprocesses images, [3, 224, 224]."""
        return clip_pixels(image, SIZE)

    def tensor_pixels(self, images: Tensor) -> Tensor:
        """Preprocess a batch of tensors in [0, 1] as `pixels_of` does an image, differentiably."""
        return normalised(shorter_side_crop(images, SIZE))

    def tokens_of(self, prompt: str) -> tuple[int, ...]:
        """Return the ids of [CLS], the words and [SEP]; at most 35."""
        assert self.tokenizer is not None, "build the model with ImageReward.load"
        ids = self.tokenizer(prompt, truncation=True, max_length=MAX_TOKENS)["input_ids"]
        return tuple(ids)

    def forward(self, tokens: Tensor, mask: Tensor, pixels: Tensor) -> Tensor:
        """Return rewards [n] of tokens and mask [n, length] and pixels [n, 3, 224, 224]."""
        seen = self.vision(pixels).last_hidden_state
        read = self.text(
            input_ids=tokens,
            attention_mask=mask,
            encoder_hidden_states=seen,
            encoder_attention_mask=mask.new_ones(seen.shape[:-1]),
            is_decoder=False,
        )
        feature = read.last_hidden_state[:, 0]
        return (self.head(feature).squeeze(-1).float() - MEAN) / STD


def read_vocabulary(path: Path) -> BertTokenizer:
    """Read the tokenizer of bert-base-uncased, and add BLIP's two further tokens.

    Raises:
        WrongCheckpoint: the file holds another vocabulary.
    """
    try:
        tokenizer = BertTokenizer(vocab=str(path))
    except Exception as error:  # the tokenizers library raises plain Exception
        raise WrongCheckpoint(f"{str(path)!r} is not a BERT vocabulary: {error!s:.200}") from error
    if len(tokenizer) != VOCAB_SIZE:
        raise WrongCheckpoint(
            f"{str(path)!r} has {len(tokenizer)} tokens; bert-base-uncased has {VOCAB_SIZE}"
        )
    tokenizer.add_special_tokens({"bos_token": "[DEC]"})
    tokenizer.add_tokens(["[ENC]"], special_tokens=True)
    return tokenizer


def _sizes_of(tensors: Mapping[str, Tensor]) -> ImageRewardSizes:
    """Return the sizes that the tensors' shapes show, or the released model's sizes if the tensors
    that show the sizes are missing, so that loading refuses the checkpoint.
    """
    vision = tensors.get("vision.embeddings.class_embedding")
    text = tensors.get("text.encoder.layer.0.intermediate.dense.weight")
    if vision is None or text is None:
        return ImageRewardSizes()
    layers = {
        prefix: len({name.split(".")[3] for name in tensors if name.startswith(prefix)})
        for prefix in ("vision.encoder.layers.", "text.encoder.layer.")
    }
    return ImageRewardSizes(
        vision_width=vision.shape[-1],
        vision_layers=layers["vision.encoder.layers."],
        text_width=text.shape[1],
        text_layers=layers["text.encoder.layer."],
        text_hidden=text.shape[0],
    )


def our_name(name: str) -> str:
    """Return the name in this model of a checkpoint's tensor; unknown names stay, and are refused
    on loading.

    >>> our_name("mlp.layers.0.weight")
    'head.0.weight'
    """
    for their_prefix, our_prefix in (
        ("mlp.layers.", "head."),
        ("blip.text_encoder.", "text."),
        ("blip.visual_encoder.", "vision."),
    ):
        if name.startswith(their_prefix):
            name = our_prefix + name.removeprefix(their_prefix)
    if not name.startswith("vision."):
        return name
    for their_prefix, our_prefix in (
        ("vision.cls_token", "vision.embeddings.class_embedding"),
        ("vision.pos_embed", "vision.embeddings.position_embedding"),
        ("vision.patch_embed.proj.", "vision.embeddings.patch_embedding."),
        ("vision.norm.", "vision.post_layernorm."),
        ("vision.blocks.", "vision.encoder.layers."),
        (".norm1.", ".layer_norm1."),
        (".norm2.", ".layer_norm2."),
        (".attn.qkv.", ".self_attn.qkv."),
        (".attn.proj.", ".self_attn.projection."),
    ):
        name = name.replace(their_prefix, our_prefix)
    return name
