# pyright: basic
# mypy: disable-error-code="no-any-return"
"""From the bytes of an image to a count of tokens and to pixels, by the model's own processor.

An image is decoded within bounds and handed to the image processor of transformers in its Pillow
form, which needs no torchvision and gives the same numbers on every machine. The results are kept
by digest, so that the rollouts of a group, the engine and the learner share them.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)

from ludus.agent.images import ImageRefused
from ludus.errors import ConfigError, MissingExtra
from ludus.messages import ImagePart

KEPT_BYTES = 256 << 20
"""Bytes of pixels that a reader keeps; the least recently used leave first."""
MAX_COUNTS = 65_536
"""Counts of tokens that a reader keeps, each with a digest of 32 bytes."""


class Pixels(NamedTuple):
    """An image as a vision tower takes it."""

    values: Tensor
    """Flattened patches, [patches, channels * frames * patch height * patch width]."""
    grid: Tensor
    """Patches in time, height and width, [3] int."""

    @property
    def size(self) -> int:
        """How many bytes the patches take."""
        return self.values.numel() * self.values.element_size()


class ImageReader:
    """Reads images for one model; the image format of its chat format.

    Args:
        processor: an image processor of transformers that gives `pixel_values` and
            `image_grid_thw`.
        placeholder: the special token that stands for an image in the template's text.
        token_id: the id of the placeholder.
        max_bytes: the most bytes of an encoded image.
        max_decoded: the most pixels of an image before the processor makes it smaller.
    """

    def __init__(
        self,
        processor: Any,
        placeholder: str,
        token_id: int,
        *,
        max_bytes: int = 32 << 20,
        max_decoded: int = 50_000_000,
    ) -> None:
        self.processor = processor
        self._placeholder = placeholder
        self._token_id = token_id
        self._limits = (max_bytes, max_decoded)
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._kept: OrderedDict[bytes, Pixels] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()  # the engine's thread, the learner's and the event loop read

    @property
    def placeholder(self) -> str:
        """The special token that the template writes where an image stands."""
        return self._placeholder

    @property
    def token_id(self) -> int:
        """The id of the placeholder."""
        return self._token_id

    def tokens(self, image: ImagePart) -> int:
        """Return how many tokens stand for an image; see `ImageFormat.tokens`."""
        key = digest_of(image)
        with self._lock:
            count = self._counts.get(key)
        if count is not None:
            return count
        decoded = self._decoded(image)
        try:
            patches = self.processor.get_number_of_image_patches(decoded.height, decoded.width)
        except ValueError as error:  # a side that is many times the other
            raise ImageRefused(f"the image cannot be shown to the model: {error}") from None
        count = int(patches) // int(self.processor.merge_size) ** 2
        with self._lock:
            self._counts[key] = count
            while len(self._counts) > MAX_COUNTS:
                self._counts.popitem(last=False)
        return count

    def pixels(self, image: ImagePart) -> Pixels:
        """Return an image as the vision tower takes it, on the CPU in float32.

        Raises:
            ImageRefused: the image is unreadable or beyond the bounds.
        """
        key = digest_of(image)
        with self._lock:
            pixels = self._kept.get(key)
            if pixels is not None:
                self._kept.move_to_end(key)
                return pixels
        processed = self.processor(images=[self._decoded(image)], return_tensors="pt")
        pixels = Pixels(processed["pixel_values"].to(torch.float32), processed["image_grid_thw"][0])
        with self._lock:
            if key not in self._kept and pixels.size <= KEPT_BYTES:
                self._kept[key] = pixels
                self._kept_bytes += pixels.size
            while self._kept_bytes > KEPT_BYTES:
                self._kept_bytes -= self._kept.popitem(last=False)[1].size
        return pixels

    def save(self, path: str | Path) -> None:
        """Write the processor's settings into a model folder."""
        self.processor.save_pretrained(str(path))

    def _decoded(self, image: ImagePart) -> Any:
        try:
            from ludus.rewards.learned.images.decoding import BadImage, ImageLimits, decode_image
            from ludus.rewards.learned.images.reading import read_image
        except MissingExtra:
            raise MissingExtra.of("image", needed_for="showing images to a model") from None
        limits = ImageLimits(*self._limits)
        try:
            return decode_image(read_image(image, limits), limits)
        except BadImage as error:
            raise ImageRefused(f"an image cannot be shown to the model: {error}") from None


def digest_of(image: ImagePart) -> bytes:
    """Return the SHA-256 of an image's bytes or URL."""
    return hashlib.sha256(image.data or image.url.encode()).digest()


def reads_images(config: PretrainedConfig) -> bool:
    """Say whether a model's config is of a shape that ludus shows images to: a vision tower whose
    features replace the embeddings of placeholder tokens, and rotary positions in three axes.
    """
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    vision = getattr(config, "vision_config", None)
    return (
        vision is not None
        and hasattr(vision, "spatial_merge_size")
        and isinstance(getattr(config, "image_token_id", None), int)
        and "mrope_section" in rope
    )


def load_image_reader(
    path: str | Path, tokenizer: object, *, max_pixels: int = 0
) -> ImageReader | None:
    """Load the image processor of a model folder; None for a model that reads no images.

    Args:
        path: a transformers folder or a hub id.
        tokenizer: the tokenizer of the same model.
        max_pixels: images with more pixels are made smaller, keeping the ratio of their sides; 0
            leaves the processor's own bound. An image takes about one token for
            `(patch_size * merge_size)**2` pixels, 1,024 in Qwen3-VL.

    Raises:
        ConfigError: the model reads images and its folder has no image processor, or `max_pixels`
            is less than one token's.
    """
    config = AutoConfig.from_pretrained(str(path))
    if not reads_images(config):
        return None
    try:
        processor: Any = AutoImageProcessor.from_pretrained(str(path), backend="pil")
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(
            f"the model in {str(path)!r} reads images, but its image processor cannot be loaded "
            f"({str(error).strip().splitlines()[0]}); add preprocessor_config.json"
        ) from error
    smallest = (int(processor.patch_size) * int(processor.merge_size)) ** 2
    if max_pixels:
        if max_pixels < smallest:
            raise ConfigError(
                f"model.max_image_pixels is {max_pixels}; a single token shows {smallest} pixels"
            )
        lowest = min(int(processor.size["shortest_edge"]), max_pixels)
        processor.size = {"shortest_edge": lowest, "longest_edge": max_pixels}
    token_id = int(config.image_token_id)
    placeholder = cast("PreTrainedTokenizerBase", tokenizer).convert_ids_to_tokens(token_id)
    return ImageReader(processor, str(placeholder), token_id)
