"""An engine that samples from a vLLM server."""

from .engine import LearnerSide, VLLMEngine
from .start import LearnerView, ServerSite, start_vllm

__all__ = ["LearnerSide", "LearnerView", "ServerSite", "VLLMEngine", "start_vllm"]
