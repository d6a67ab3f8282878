"""An engine that samples from a vLLM server."""

from .engine import VLLMEngine
from .start import start_vllm

__all__ = ["VLLMEngine", "start_vllm"]
