"""`ludus/image-prompt-v0`: write prompts for an image generator."""

from .env import ImagePrompt
from .generator import ImageGenerator, Pixels, ShapeRenderer

__all__ = ["ImageGenerator", "ImagePrompt", "Pixels", "ShapeRenderer"]
