"""Context managers: how an episode continues after outgrowing the context window."""

from .fold import Fold, FoldSteps, InternalState
from .keep import ClearToolResults, Discard, KeepEverything, KeepLast, Records
from .memagent import MemAgent
from .memory import MemoryFolder, MemoryTool
from .protocol import (
    ContextManager,
    Decision,
    Delegate,
    Exchange,
    Handled,
    History,
    Reopen,
    Sizes,
    TokenBounds,
    WriteSummary,
    WriteText,
    add_to_prompt,
    measure_sizes,
)
from .registry import (
    UnknownContext,
    context_names,
    describe_contexts,
    find_context,
    register_context,
)
from .settings import Composed, ContextSettings, make_context
from .summarize import (
    NO_SUMMARY,
    EngineSummariser,
    ReSum,
    ServerSummariser,
    Summariser,
    Summarize,
    read_summary,
)

__all__ = [
    "NO_SUMMARY",
    "ClearToolResults",
    "Composed",
    "ContextManager",
    "ContextSettings",
    "Decision",
    "Delegate",
    "Discard",
    "EngineSummariser",
    "Exchange",
    "Fold",
    "FoldSteps",
    "Handled",
    "History",
    "InternalState",
    "KeepEverything",
    "KeepLast",
    "MemAgent",
    "MemoryFolder",
    "MemoryTool",
    "ReSum",
    "Records",
    "Reopen",
    "ServerSummariser",
    "Sizes",
    "Summariser",
    "Summarize",
    "TokenBounds",
    "UnknownContext",
    "WriteSummary",
    "WriteText",
    "add_to_prompt",
    "context_names",
    "describe_contexts",
    "find_context",
    "make_context",
    "measure_sizes",
    "read_summary",
    "register_context",
]
