"""An async client of OpenAI-compatible chat servers: retries, limits, cache, budget."""

from .budget import TokenBudget, TokenUsage
from .cache import DiskCache
from .chat_wire import Completion, ContextTooLong
from .client import ChatClient

__all__ = ["ChatClient", "Completion", "ContextTooLong", "DiskCache", "TokenBudget", "TokenUsage"]
