"""Protocols of providers, each a translation and nothing else."""

from ..wire import Dialect
from .chat import ChatCompletions
from .messages import AnthropicMessages
from .responses import OpenAIResponses

DIALECTS: tuple[Dialect, ...] = (ChatCompletions(), OpenAIResponses(), AnthropicMessages())

__all__ = ["DIALECTS", "AnthropicMessages", "ChatCompletions", "OpenAIResponses"]
