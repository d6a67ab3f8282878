"""Context managers: how an episode continues after outgrowing the context window."""

from .fold import Fold
from .keep import Discard, KeepEverything, KeepLast
from .protocol import (
    ContextManager,
    Exchange,
    Handled,
    History,
    Reopen,
    Sizes,
    WriteSummary,
    add_to_prompt,
)
from .settings import MANAGERS, ContextSettings, ManagerName, make_context
from .summarize import Summarize, read_summary

__all__ = [
    "MANAGERS",
    "ContextManager",
    "ContextSettings",
    "Discard",
    "Exchange",
    "Fold",
    "Handled",
    "History",
    "KeepEverything",
    "KeepLast",
    "ManagerName",
    "Reopen",
    "Sizes",
    "Summarize",
    "WriteSummary",
    "add_to_prompt",
    "make_context",
    "read_summary",
]
