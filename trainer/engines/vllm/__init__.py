"""An engine that samples from a vLLM server."""

from .engine import LearnerSide, LearnerView, ServerSite, VLLMEngine, start_vllm

__all__ = ["LearnerSide", "LearnerView", "ServerSite", "VLLMEngine", "start_vllm"]
