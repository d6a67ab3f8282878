"""Images for models of the Qwen-VL shape: placeholders, pixels and positions."""

from .inputs import RowImages, decode_rows, last_hidden, see
from .reader import ImageReader, Pixels, load_image_reader, reads_images

__all__ = [
    "ImageReader",
    "Pixels",
    "RowImages",
    "decode_rows",
    "last_hidden",
    "load_image_reader",
    "reads_images",
    "see",
]
