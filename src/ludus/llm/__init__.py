"""An async client of OpenAI-compatible chat servers: retries, limits, cache, budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from .chat_wire import Completion, ContextTooLong
    from .client import ChatClient
    from .limits import CallLimits, DiskCache, TokenBudget, TokenUsage

__all__ = [
    "CallLimits",
    "ChatClient",
    "Completion",
    "ContextTooLong",
    "DiskCache",
    "TokenBudget",
    "TokenUsage",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".limits": "CallLimits DiskCache TokenBudget TokenUsage",
        ".chat_wire": "Completion ContextTooLong",
        ".client": "ChatClient",
    },
)
