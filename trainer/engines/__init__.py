"""Engines that sample tokens for a policy."""

from .local import EngineLimits, LocalEngine
from .models import CausalLM, load_images, load_model, load_stop_ids, load_tokenizer

__all__ = [
    "CausalLM",
    "EngineLimits",
    "LocalEngine",
    "load_images",
    "load_model",
    "load_stop_ids",
    "load_tokenizer",
]
