"""Rewards that CLIP models give: CLIPScore, PickScore, HPSv2 and the aesthetic predictor.

All four embed the image (and three the text) with a CLIP model and differ in what they make of the
embeddings and in how an image is preprocessed.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

from .clip_checkpoint import ClipSizes, clip_config, is_openai_format, our_tensors
from .pixels import Image, Pixels, clip_pixels, clip_processor_pixels, unit_pixels
from .scorer import ImageScorer, affine_head, normalised, resized_bicubic, shorter_side_crop
from .weights import WrongCheckpoint, digest, load_strictly, read_checkpoint

MAX_TOKENS: Final = 77
BASE: Final = ClipSizes(12, 768, 12, 512)
LARGE: Final = ClipSizes(24, 1024, 12, 768)
HUGE: Final = ClipSizes(32, 1280, 24, 1024)


class ClipScorer(ImageScorer):
    """A scorer whose rewards come from the embeddings of a CLIP model.

    Args:
        config: configuration of the CLIP model.
        tokenizer: the model's tokenizer; None for a scorer that reads no text.
    """

    vision_head_width: ClassVar[int] = 64
    """Width of an attention head, where a checkpoint in OpenAI's format does not say it."""
    activation: ClassVar[str] = "quick_gelu"
    """Activation of the feed-forward layers, which a checkpoint in OpenAI's format does not say."""
    released: ClassVar[tuple[ClipSizes, ...]]
    """Sizes of the models this score was released with."""
    unescapes: ClassVar[bool] = True
    """Whether HTML entities of a prompt are resolved, as OpenAI's tokenizer does."""

    def __init__(self, config: CLIPConfig, tokenizer: CLIPTokenizer | None = None) -> None:
        super().__init__()
        self.clip = CLIPModel(config)
        vision: Any = config.vision_config
        self.size: int = vision.image_size
        self.tokenizer = tokenizer
        self.weights = {}

    @classmethod
    def load(
        cls, checkpoint: str | Path, tokenizer: str | Path = "", *, any_size: bool = False
    ) -> Self:
        """Read a CLIP model.

        Args:
            checkpoint: a folder with `config.json` and `model.safetensors` or `pytorch_model.bin`,
                as Hugging Face has them; or a file in the format of OpenAI's CLIP or of open_clip.
            tokenizer: a folder with CLIP's `vocab.json` and `merges.txt`, or `tokenizer.json`; ""
                takes the checkpoint's folder.
            any_size: takes models of other sizes than those released for this score.

        Raises:
            WrongCheckpoint: a tensor is missing, left over or of another shape, by name; or the
                tokenizer cannot be read.
        """
        checkpoint = Path(checkpoint)
        config, tensors = cls.read(checkpoint)
        sizes = ClipSizes.of(config)
        if not any_size and sizes not in cls.released:
            raise WrongCheckpoint(
                f"{str(checkpoint)!r} is of another size than {cls.__name__} was released in: "
                f"{sizes}, not {' or '.join(map(str, cls.released))}; any_size=true takes it"
            )
        folder = Path(tokenizer or (checkpoint if checkpoint.is_dir() else checkpoint.parent))
        with torch.device("meta"):
            model = cls(config, read_tokenizer(folder) if cls.reads_text else None)
        load_strictly(model.clip, tensors, str(checkpoint))
        model.weights = {"checkpoint": digest(checkpoint)}
        if cls.reads_text and folder != checkpoint:
            model.weights["tokenizer"] = digest(_tokenizer_file(folder))
        return model.eval().requires_grad_(False)

    @classmethod
    def read(cls, checkpoint: Path) -> tuple[CLIPConfig, dict[str, Tensor]]:
        """Return the configuration and the tensors of a checkpoint, named as in transformers."""
        if checkpoint.is_dir():
            if not (checkpoint / "config.json").is_file():
                raise WrongCheckpoint(f"{str(checkpoint)!r} has no config.json")
            try:
                config = CLIPConfig.from_pretrained(str(checkpoint))
            except Exception as error:  # transformers checks fields with errors of many types
                raise WrongCheckpoint(
                    f"{str(checkpoint / 'config.json')!r} is not the configuration of a CLIP "
                    f"model: {error!s:.300}"
                ) from error
            files = sorted(checkpoint.glob("*.safetensors"))
            files = files or sorted(checkpoint.glob("pytorch_model*.bin"))
            if not files:
                raise WrongCheckpoint(
                    f"{str(checkpoint)!r} has neither *.safetensors nor pytorch_model*.bin"
                )
            tensors: dict[str, Tensor] = {}
            for path in files:
                tensors |= read_checkpoint(path)
            # Earlier versions of transformers saved the numbers of positions too.
            return config, {
                name: tensor
                for name, tensor in tensors.items()
                if not name.endswith(".position_ids")
            }
        tensors = read_checkpoint(checkpoint)
        if not is_openai_format(tensors):
            raise WrongCheckpoint(
                f"{str(checkpoint)!r} is not a CLIP model in OpenAI's or open_clip's format: it "
                f"has no 'visual.conv1.weight'; the first tensors are "
                f"{', '.join(list(tensors)[:6])}"
            )
        config = clip_config(
            tensors, vision_head_width=cls.vision_head_width, activation=cls.activation
        )
        return config, our_tensors(tensors)

    def tokens_of(self, prompt: str) -> tuple[int, ...]:
        """Return the token ids of a text between the begin and end marks, cut to 77 ids."""
        assert self.tokenizer is not None
        text = html.unescape(html.unescape(prompt)).strip() if self.unescapes else prompt
        return tuple(self.tokenizer(text, truncation=True, max_length=MAX_TOKENS)["input_ids"])

    def pixels_of(self, image: Image.Image) -> Pixels:
        """Return the image as OpenAI's CLIP preprocesses images, [3, size, size]."""
        return clip_pixels(image, self.size)

    def tensor_pixels(self, images: Tensor) -> Tensor:
        """Preprocess a batch of tensors in [0, 1] as `pixels_of` does an image, differentiably."""
        return normalised(shorter_side_crop(images, self.size))

    def image_embeddings(self, pixels: Tensor) -> Tensor:
        """Return embeddings of length 1, [n, width], of pixels [n, 3, size, size]."""
        pooled = self.clip.vision_model(pixels).pooler_output
        return nn.functional.normalize(self.clip.visual_projection(pooled), dim=-1)

    def text_embeddings(self, tokens: Tensor) -> Tensor:
        """Return embeddings of length 1, [n, width], of tokens [n, length]. Padding follows the end
        mark and has no effect, since no token attends to later tokens.
        """
        pooled = self.clip.text_model(tokens).pooler_output
        return nn.functional.normalize(self.clip.text_projection(pooled), dim=-1)

    def cosines(self, tokens: Tensor, pixels: Tensor) -> Tensor:
        """Return the cosine of each image's embedding and the embedding of the image's text,
        [n]."""
        texts, images = self.text_embeddings(tokens), self.image_embeddings(pixels)
        return (texts * images).sum(-1).float()


class ClipScore(ClipScorer):
    """The cosine of image and text under CLIP, in [-1, 1].

    Hessel et al. (2021, arXiv:2104.08718) report 2.5 max(cosine, 0), which is what `scaled` gives.
    """

    released = (BASE, LARGE)

    preprocessing = (
        "shorter side to the model's size (PIL bicubic), centre crop, RGB, CLIP's mean and "
        "deviation; CLIP tokens, cut to 77, HTML entities resolved, no ftfy"
    )
    scaled = False

    def forward(self, tokens: Tensor, mask: Tensor, pixels: Tensor) -> Tensor:
        """Return the cosines, or 2.5 max(cosine, 0) with `scaled`, [n]."""
        cosines = self.cosines(tokens, pixels)
        return 2.5 * cosines.clamp(min=0) if self.scaled else cosines


class PickScore(ClipScorer):
    """PickScore (Kirstain et al., 2023, arXiv:2305.01569): the cosine under a CLIP ViT-H/14 that
    was trained on preferences, times the model's own scale exp(logit_scale).
    """

    preprocessing = (
        "RGB, shorter side to the model's size (PIL bicubic), centre crop rounded down, CLIP's "
        "mean and deviation; CLIP tokens, cut to 77"
    )
    unescapes = False
    activation = "gelu"
    vision_head_width = 80
    released = (HUGE,)

    def pixels_of(self, image: Image.Image) -> Pixels:
        """Return the image as Hugging Face's CLIP processor prepares images, [3, size, size]."""
        return clip_processor_pixels(image, self.size)

    def forward(self, tokens: Tensor, mask: Tensor, pixels: Tensor) -> Tensor:
        """Return the cosines times exp(logit_scale), [n]."""
        return self.cosines(tokens, pixels) * self.clip.logit_scale.exp().float()


class HpsV2(ClipScorer):
    """HPSv2 and HPSv2.1 (Wu et al., 2023, arXiv:2306.09341): the cosine under a CLIP ViT-H/14 that
    was trained on preferences.

    The image is not cropped: its longer side is resized, and the rest is black. The resize is
    antialiased, as in torchvision from 0.17 on; with earlier ones, HPSv2's own code did without.
    """

    preprocessing = (
        "RGB, longer side to the model's size (bicubic on floats, antialiased), padded with black, "
        "CLIP's mean and deviation; CLIP tokens, cut to 77, HTML entities resolved, no ftfy"
    )
    activation = "gelu"
    vision_head_width = 80
    released = (HUGE,)

    def pixels_of(self, image: Image.Image) -> Pixels:
        """Return the image resized by the longer side and padded with black, [3, size, size]."""
        seen: Pixels = self.tensor_pixels(torch.from_numpy(unit_pixels(image))[None])[0].numpy()
        return seen

    def tensor_pixels(self, images: Tensor) -> Tensor:
        """`pixels_of` for a batch of tensors in [0, 1], differentiable."""
        height, width = images.shape[-2:]
        scale = self.size / max(height, width)
        if scale != 1:
            target = (max(1, round(height * scale)), max(1, round(width * scale)))
            images = resized_bicubic(images, target)
        height, width = images.shape[-2:]
        below, right = self.size - height, self.size - width
        sides = (right // 2, right - right // 2, below // 2, below - below // 2)
        return normalised(nn.functional.pad(images, sides))

    def forward(self, tokens: Tensor, mask: Tensor, pixels: Tensor) -> Tensor:
        """Return the cosine of each image and text, [n]."""
        return self.cosines(tokens, pixels)


class Aesthetic(ClipScorer):
    """The aesthetic predictor of LAION, version 2: an affine head on the image's CLIP ViT-L/14
    embedding, on a scale from 1 to 10. It reads no text.
    """

    preprocessing = (
        "shorter side to the model's size (PIL bicubic), centre crop, RGB, CLIP's mean and "
        "deviation"
    )
    reads_text = False
    released = (LARGE,)

    def __init__(self, config: CLIPConfig, tokenizer: CLIPTokenizer | None = None) -> None:
        super().__init__(config, tokenizer)
        self.head = affine_head(self.clip.visual_projection.out_features)

    @classmethod
    def load_with_head(
        cls, checkpoint: str | Path, head: str | Path, *, any_size: bool = False
    ) -> Self:
        """Read a CLIP model, and the predictor's `sac+logos+ava1-l14-linearMSE.pth`.

        Raises:
            WrongCheckpoint: either is something else; the message names the tensors.
        """
        model = cls.load(checkpoint, any_size=any_size)
        tensors = {
            name.removeprefix("layers."): tensor
            for name, tensor in read_checkpoint(Path(head)).items()
        }
        load_strictly(model.head, tensors, str(head))
        model.weights["head"] = digest(Path(head))
        return model.eval().requires_grad_(False)

    def forward(self, tokens: Tensor, mask: Tensor, pixels: Tensor) -> Tensor:
        """Return the predictor's score of each image, [n]; `tokens` and `mask` are not read."""
        return self.head(self.image_embeddings(pixels)).squeeze(-1).float()


def read_tokenizer(folder: Path) -> CLIPTokenizer:
    """Read CLIP's tokenizer from a folder.

    Raises:
        WrongCheckpoint: the folder has no tokenizer of CLIP.
    """
    try:
        return CLIPTokenizer.from_pretrained(str(_tokenizer_file(folder).parent))
    except WrongCheckpoint:
        raise
    except Exception as error:  # the tokenizers library raises plain Exception
        raise WrongCheckpoint(f"{str(folder)!r} has no CLIP tokenizer: {error!s:.200}") from error


def _tokenizer_file(folder: Path) -> Path:
    for name in ("tokenizer.json", "vocab.json"):
        if (folder / name).is_file():
            return folder / name
    raise WrongCheckpoint(
        f"{str(folder)!r} has no CLIP tokenizer; it needs tokenizer.json, or vocab.json and "
        "merges.txt, of openai/clip-vit-large-patch14 (all CLIP models here have the same)"
    )
