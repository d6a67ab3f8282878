"""Images from bytes within bounds, resized, cropped and normalised into a model's input.

Every format that is read here decodes in C without calling another program. Others (EPS, PDF, SVG)
are refused by name: they are programs, and to read an image of theirs is to run it (decision 0310).

Models differ in details that change scores in the second decimal, so that each pipeline is a
function of its own. Each gives float32 of shape [3, size, size].
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError, LudusError, MissingExtra

try:
    from PIL import Image as Image, ImageOps, UnidentifiedImageError
except ImportError as error:
    raise MissingExtra.of("image", needed_for="a reward of images") from error

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
DEEP_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I")
"""Modes of 16 bits a channel, which Pillow's own conversion would clip to white."""
MAX_ASPECT = 100
"""The most that one side may be of the other. The pipelines enlarge the shorter side to the model's
size, so a long narrow image of few pixels would become one of very many.
"""


class BadImage(LudusError, ValueError):
    """An image that cannot be read, or that exceeds the bounds on images."""


@dataclass(frozen=True)
class ImageLimits:
    """The bounds on the size of an image, in bytes and in pixels.

    Raises:
        ConfigError: a bound is not positive.
    """

    max_bytes: int = 32 << 20
    """Most bytes of an encoded image; 32 MiB by default."""
    max_pixels: int = 50_000_000
    """Width times height, which bounds the memory of decoding to about 4 bytes a pixel."""

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or self.max_pixels < 1:
            raise ConfigError(f"bounds on images must be positive, got {self!r}")


def decode_image(
    data: bytes, limits: ImageLimits | None = None, *, upright: bool = False
) -> Image.Image:
    """Decode the first frame of an image, and keep the image's mode.

    Args:
        data: PNG, JPEG, WebP, GIF or BMP.
        limits: checked against the header, before anything is decoded.
        upright: turns the image as its EXIF orientation says. The reward models of this package
            were trained on pixels as they are stored, so the default leaves them so.

    Returns:
        The image, loaded. An image of 16 bits a channel comes as 8 bits ("L").

    Raises:
        BadImage: the data are empty, too long, cut off or no image, or the image has too many
            pixels or one side more than 100 times the other.
    """
    limits = limits or ImageLimits()
    if len(data) > limits.max_bytes:
        raise BadImage(f"the image has {len(data)} bytes; at most {limits.max_bytes} are read")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image_file:
            size = image_file.size
            width, height = size
            if width * height > limits.max_pixels:
                raise BadImage(
                    f"the image has {width} x {height} pixels; "
                    f"at most {limits.max_pixels} are decoded"
                )
            if max(size) > MAX_ASPECT * min(size):
                raise BadImage(
                    f"the image has {width} x {height} pixels; "
                    f"one side may be at most {MAX_ASPECT} times the other, "
                    "since its shorter side is enlarged to the model's"
                )
            image_file.load()
            loaded = image_file.copy()  # in memory of its own, for use after the file is closed
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(f"the image has too many pixels: {error}") from None
    except UnidentifiedImageError:
        known = f"not an image of a format that is read ({', '.join(FORMATS)})"
        reason = f"{known}; it begins {data[:16]!r}" if data else "the image is empty"
        raise BadImage(reason) from None
    except BadImage:
        raise
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, MemoryError) as error:
        # Pillow's readers raise all of these for data that are cut off or wrong.
        raise BadImage(f"the image cannot be decoded ({type(error).__name__}: {error})") from None
    if loaded.mode in DEEP_MODES:
        # Of 16 bits a channel the upper 8 are kept. Mode "I" has 32 bits and a sign, so its values
        # are bounded first.
        import numpy as np

        values = np.asarray(loaded).astype(np.int64).clip(0, 65535) >> 8
        loaded = Image.fromarray(values.astype(np.uint8))
    return ImageOps.exif_transpose(loaded) if upright else loaded


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
