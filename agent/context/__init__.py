"""Context managers: how an episode continues after outgrowing the context window."""

from .agent_fold import FoldSteps
from .clear import ClearToolResults
from .compose import Composed
from .decisions import Decision, Delegate, Handled, Reopen, WriteSummary, WriteText
from .fold import Fold
from .history import Exchange, History, add_to_prompt
from .keep import Discard, KeepEverything, KeepLast
from .memagent import MemAgent
from .memory import MemoryTool
from .memory_folder import MemoryFolder
from .protocol import ContextManager, Sizes
from .records import Records
from .registry import (
    UnknownContext,
    context_names,
    describe_contexts,
    find_context,
    register_context,
)
from .resum import ReSum
from .settings import ContextSettings, make_context
from .sizes import TokenBounds, measure_sizes
from .state import InternalState
from .summariser import EngineSummariser, ServerSummariser, Summariser
from .summarize import Summarize, read_summary

__all__ = [
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
