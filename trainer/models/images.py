"""Images for models of the Qwen-VL shape: placeholders, pixels and positions.

An image is decoded within bounds and handed to the image processor of transformers in its Pillow
form, which needs no torchvision and gives the same numbers on every machine. The results are kept
by digest, so that the rollouts of a group, the engine and the learner share them.

The vision tower turns an image into a feature for each of the image's tokens. The features replace
the embeddings of these tokens, and models with DeepStack (Qwen3-VL) add further features after
their first layers. Rotary positions have three axes (time, height, width); the model's own
`get_rope_index` computes these.

Which tokens are images is read from where the images were placed, not from the ids: a policy may
sample the placeholder's id itself, which is a token like any other and shows nothing.

Axes: B rows, T positions, Q new positions, N features of all distinct images, D hidden size.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ludus.agent.images import ImageRefused, PlacedImage
from ludus.errors import ConfigError, MissingExtra
from ludus.messages import ImagePart

# pyright: basic
# mypy: disable-error-code="no-any-return"


KEPT_BYTES = 256 << 20
"""Bytes of pixels that a reader keeps; the least recently used leave first."""
MAX_COUNTS = 65_536
"""Counts of tokens that a reader keeps, each with a digest of 32 bytes."""


class Pixels(NamedTuple):
    """An image as the input of a vision tower."""

    values: Tensor
    """Flattened patches, [patches, channels * frames * patch height * patch width]."""
    grid: Tensor
    """Patches in time, height and width, [3] int."""

    @property
    def size(self) -> int:
        """How many bytes the patches take."""
        return self.values.numel() * self.values.element_size()


class ImageReader:
    """Reads images for a model; the image format of the model's chat format.

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
        """Return an image as input of the vision tower, on the CPU in float32.

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
            from ludus.rewards.learned.images.pixels import BadImage, ImageLimits, decode_image
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


TEXT = -1
"""Index of a position that shows no image."""


@dataclass(frozen=True, slots=True)
class RowImages:
    """What the images of some rows add to the ids."""

    features_ND: Tensor
    """Features of the distinct images, one after the other."""
    deep: tuple[Tensor, ...]
    """Features [N, D] that are added after the first, second ... layer; () without DeepStack."""
    index_BT: Tensor
    """The feature of each position, [B, T] int; -1 where no image is shown."""
    positions_3BT: Tensor
    """Rotary positions in time, height and width."""
    deltas_B: Tensor
    """What is added to the index of a later token to have its rotary position."""

    def at(self, positions_BQ: Tensor) -> RowImages:
        """Return the same for some positions of each row; positions past the end repeat the
        last.
        """
        chosen_BQ = positions_BQ.clamp(max=self.index_BT.shape[1] - 1)
        return RowImages(
            self.features_ND,
            self.deep,
            self.index_BT.gather(1, chosen_BQ),
            self.positions_3BT.gather(2, chosen_BQ.expand(3, -1, -1)),
            self.deltas_B,
        )


def see(
    model: PreTrainedModel,
    ids_BT: Tensor,
    images: Sequence[Sequence[PlacedImage]],
    reader: ImageReader,
    *,
    computed: Sequence[int] | None = None,
) -> RowImages:
    """Run the vision tower on the distinct images of some rows.

    Args:
        model: a model whose config passes `reads_images`.
        ids_BT: padded on the right.
        images: the images of each row, with positions in the row.
        reader: the model's image reader.
        computed: how many positions of each row need no features, because their keys are cached;
            0 everywhere by default.

    Raises:
        ImageRefused: an image is unreadable, or has another number of tokens than was placed.
    """
    device = ids_BT.device
    grids: list[Tensor] = []
    offsets: dict[bytes, int] = {}
    needed: list[Pixels] = []
    count = 0
    merge = int(model.config.vision_config.spatial_merge_size)
    index_BT = torch.full_like(ids_BT, TEXT)
    kinds_BT = torch.zeros_like(ids_BT)
    for row, shown in enumerate(images):
        for placed in shown:
            pixels, key = reader.pixels(placed.image), digest_of(placed.image)
            tokens = int(pixels.grid.prod()) // merge**2
            if tokens != placed.tokens:
                raise ImageRefused(
                    f"an image was placed as {placed.tokens} tokens and has {tokens} features: its "
                    "row was made with another image processor"
                )
            grids.append(pixels.grid)
            kinds_BT[row, placed.start : placed.end] = 1
            if computed is not None and placed.end <= computed[row]:
                continue
            if key not in offsets:
                offsets[key], count = count, count + tokens
                needed.append(pixels)
            first = offsets[key]
            index_BT[row, placed.start : placed.end] = torch.arange(first, first + tokens)
    decoder: Any = model.base_model  # its methods for images are the model's own
    positions_3BT, _ = decoder.get_rope_index(
        ids_BT,
        mm_token_type_ids=kinds_BT,
        image_grid_thw=torch.stack(grids).to(device) if grids else None,
    )
    deltas_B = positions_3BT[:, :, -1].amax(0) + 1 - ids_BT.shape[1]
    features_ND, deep = _features(model, needed, device)
    return RowImages(features_ND, deep, index_BT, positions_3BT, deltas_B)


def last_hidden(
    model: PreTrainedModel,
    ids_BT: Tensor,
    images: Sequence[Sequence[PlacedImage]],
    reader: ImageReader | None,
) -> Tensor:
    """Return the last hidden states [B, T, D] of whole rows, without a cache.

    Args:
        model: a causal LM.
        ids_BT: padded on the right, which needs no mask: no token of a row reads the padding.
        images: the images of each row; () where no row shows any.
        reader: the model's image reader; None for a model that reads no images.

    Raises:
        ImageRefused: rows show images, and the model reads none.
    """
    if not any(images):
        return model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
    if reader is None:
        raise ImageRefused("rows show images, and the model was loaded without an image processor")
    shown = see(model, ids_BT, images, reader)
    return decode_rows(model, ids_BT, shown, use_cache=False)


def _features(
    model: PreTrainedModel, needed: Sequence[Pixels], device: torch.device
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the features of images, one image after the other, and the deep features."""
    if not needed:
        return torch.zeros(0, 0, device=device), ()
    decoder: Any = model.base_model
    features = decoder.get_image_features(
        torch.cat([item.values for item in needed]).to(device),
        torch.stack([item.grid for item in needed]).to(device),
        return_dict=True,
    )
    deep = getattr(features, "deepstack_features", None) or []
    return torch.cat(list(features.pooler_output)), tuple(torch.cat(list(item)) for item in deep)


def decode_rows(model: PreTrainedModel, ids_BQ: Tensor, shown: RowImages, **inputs: Any) -> Tensor:
    """Run the decoder on ids with images; returns the last hidden states [B, Q, D].

    Args:
        model: a causal LM with a vision tower.
        ids_BQ: the ids.
        shown: the images of these very positions.
        inputs: further inputs of the decoder, such as a cache.
    """
    embeds_BQD = model.get_input_embeddings()(ids_BQ)
    where_BQ = shown.index_BT != TEXT
    if bool(where_BQ.any()):
        picked = shown.index_BT[where_BQ]
        features = shown.features_ND[picked].to(embeds_BQD.dtype)
        embeds_BQD = embeds_BQD.masked_scatter(where_BQ.unsqueeze(2), features)
        if shown.deep:
            inputs["visual_pos_masks"] = where_BQ
            inputs["deepstack_visual_embeds"] = [deep_ND[picked] for deep_ND in shown.deep]
    decoder: Any = model.base_model
    return decoder.language_model(
        inputs_embeds=embeds_BQD, position_ids=shown.positions_3BT, **inputs
    ).last_hidden_state
