"""Protocols of providers, each a translation and nothing else."""

from .chat import ChatCompletions
from .messages import AnthropicMessages
from .responses import OpenAIResponses

DIALECTS = (ChatCompletions(), OpenAIResponses(), AnthropicMessages())

__all__ = ["DIALECTS", "AnthropicMessages", "ChatCompletions", "OpenAIResponses"]
