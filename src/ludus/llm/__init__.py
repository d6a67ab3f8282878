"""An async client of OpenAI-compatible chat servers: retries, limits, cache, budget."""

from .budget import TokenBudget, Usage
from .cache import DiskCache
from .client import ChatClient
from .wire import Completion, ContextTooLong

__all__ = ["ChatClient", "Completion", "ContextTooLong", "DiskCache", "TokenBudget", "Usage"]
