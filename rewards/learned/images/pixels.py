"""Pipelines that turn an image into a model's input: resized, cropped, normalised.

Models differ in details that change scores in the second decimal, so that each pipeline is a
function of its own. Each gives float32 of shape [3, size, size].
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .decoding import Image

Pixels = NDArray[np.float32]
MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
"""Mean of each channel in CLIP's training data, in [0, 1]."""
STD: Final = (0.26862954, 0.26130258, 0.27577711)


def clip_pixels(image: Image.Image, size: int = 224) -> Pixels:
    """Preprocess an image as OpenAI's CLIP and ImageReward do.

    The shorter side is resized to `size` (bicubic) in the image's own mode, then the centre is
    cropped, and only then the mode becomes RGB: transparency is dropped, and a palette image is
    resized by its nearest neighbours.
    """
    resized = _shorter_side(image, size)
    # `round` takes halves to the even number, as the crop of torchvision does.
    left = round((resized.width - size) / 2.0)
    top = round((resized.height - size) / 2.0)
    return _normalised(resized.crop((left, top, left + size, top + size)).convert("RGB"))


def clip_processor_pixels(image: Image.Image, size: int = 224) -> Pixels:
    """Preprocess an image as Hugging Face's CLIP processor does, which PickScore uses: RGB comes
    first, and the crop's offset is rounded down.
    """
    resized = _shorter_side(image.convert("RGB"), size)
    left, top = (resized.width - size) // 2, (resized.height - size) // 2
    return _normalised(resized.crop((left, top, left + size, top + size)))


def _shorter_side(image: Image.Image, size: int) -> Image.Image:
    """Return the image with its shorter side of `size`; the longer side is rounded down."""
    width, height = image.size
    if width <= height:
        target = (size, int(size * height / width))
    else:
        target = (int(size * width / height), size)
    return image if image.size == target else image.resize(target, Image.Resampling.BICUBIC)


def unit_pixels(image: Image.Image) -> Pixels:
    """Return the image as RGB in [0, 1] without resizing: [3, height, width]."""
    values = np.asarray(image.convert("RGB"), dtype=np.float32) / np.float32(255)
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def _normalised(image: Image.Image) -> Pixels:
    mean, std = (
        np.array(channel_values, dtype=np.float32)[:, None, None] for channel_values in (MEAN, STD)
    )
    return (unit_pixels(image) - mean) / std
