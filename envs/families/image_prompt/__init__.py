"""`ludus/image-prompt-v0`: write prompts for an image generator."""

from .generator import ImageGenerator, Pixels, ShapeRenderer
from .image_prompt_env import ImagePrompt

__all__ = ["ImageGenerator", "ImagePrompt", "Pixels", "ShapeRenderer"]
