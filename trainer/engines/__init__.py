"""Engines a policy samples from."""

from .local import LocalEngine
from .models import CausalLM, load_model, load_stop_ids, load_tokenizer

__all__ = ["CausalLM", "LocalEngine", "load_model", "load_stop_ids", "load_tokenizer"]
