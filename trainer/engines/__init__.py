"""Engines that sample tokens for a policy."""

from ..models.loading import CausalLM, load_images, load_model, load_stop_ids, load_tokenizer
from .local import EngineLimits, LocalEngine

__all__ = [
    "CausalLM",
    "EngineLimits",
    "LocalEngine",
    "load_images",
    "load_model",
    "load_stop_ids",
    "load_tokenizer",
]
