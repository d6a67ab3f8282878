"""Images in a request to vLLM, as `/inference/v1/generate` of vLLM 0.32 takes them.

The server gets the pixels that the learner computes with, after the learner's own image processor,
and where they stand among the token ids. The server's processor is not asked, so that the two
sides cannot differ in how they resize an image. A tensor is written as vLLM's `MsgpackEncoder`
writes one: type, shape and raw bytes as a msgpack extension.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
from torch import Tensor

from ludus.agent.images import PlacedImage
from ludus.errors import ConfigError

from ...models.images import ImageReader, Pixels, digest_of

IMAGE = "image"
"""The modality's name in vLLM."""
RAW_BYTES = 3
"""The number of the msgpack extension that holds the bytes of a tensor."""


class PlaceholderRange(msgspec.Struct):
    """Where the placeholders of an image stand in the ids."""

    offset: int
    length: int


class Features(msgspec.Struct):
    """The images of a request; each list has an entry for each image, by modality."""

    mm_hashes: dict[str, list[str]]
    """Names under which the server keeps the features of images, besides the cache's salt."""
    mm_placeholders: dict[str, list[PlaceholderRange]]
    kwargs_data: dict[str, list[str]]
    """The model's inputs of each image, msgpack in base64."""


def features_of(images: Sequence[PlacedImage], reader: ImageReader | None) -> Features | None:
    """Return the images of a request, or None for a request without images.

    Raises:
        ConfigError: the model reads no images.
        ImageRefused: an image is unreadable.
    """
    if not images:
        return None
    if reader is None:
        raise ConfigError("a prompt shows images, and the model of this engine reads none")
    return Features(
        mm_hashes={IMAGE: [digest_of(placed.image).hex() for placed in images]},
        mm_placeholders={
            IMAGE: [PlaceholderRange(placed.start, placed.tokens) for placed in images]
        },
        kwargs_data={IMAGE: [encoded(reader.pixels(placed.image)) for placed in images]},
    )


def encoded(pixels: Pixels) -> str:
    """Return the inputs of one image as a `MultiModalKwargsItem` in base64."""
    patches = len(pixels.values)
    # The fields are those of vLLM's Qwen2-VL family: patches of several images are joined, grids
    # are stacked and stay on the CPU.
    item = {
        "pixel_values": {
            "data": _tensor(pixels.values),
            "field": ("flat", {"keep_on_cpu": False, "slices": [(0, patches, None)], "dim": 0}),
        },
        "image_grid_thw": {
            "data": _tensor(pixels.grid),
            "field": ("batched", {"keep_on_cpu": True}),
        },
    }
    return base64.b64encode(msgspec.msgpack.encode(item)).decode()


def _tensor(tensor: Tensor) -> tuple[str, list[int], Any]:
    array = tensor.contiguous().cpu().numpy()
    kind = str(tensor.dtype).removeprefix("torch.")
    return kind, list(tensor.shape), msgspec.msgpack.Ext(RAW_BYTES, array.tobytes())
