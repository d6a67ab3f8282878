"""An engine that samples from a vLLM server."""

from .engine import VLLMEngine
from .start import ServerSite, start_vllm

__all__ = ["ServerSite", "VLLMEngine", "start_vllm"]
