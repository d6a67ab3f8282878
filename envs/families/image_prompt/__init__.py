"""`ludus/image-prompt-v0`: write prompts for an image generator."""

from .image_prompt_env import ImagePrompt
from .pictures import ImageGenerator, Pixels, ShapeRenderer

__all__ = ["ImageGenerator", "ImagePrompt", "Pixels", "ShapeRenderer"]
