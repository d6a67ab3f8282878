"""An engine that samples from a vLLM server."""

from .engine import LearnerSide, VLLMEngine
from .start import ServerSite, start_vllm

__all__ = ["LearnerSide", "ServerSite", "VLLMEngine", "start_vllm"]
