"""What a tool shows and what a call of it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

DEFAULT_TIMEOUT_S = 30.0
MOST_ARGUMENT_BYTES = 256 * 1024
"""Of the arguments of one call, as JSON."""
MOST_RESULT_CHARS = 64 * 1024
"""Of one result; what is longer is shown from both ends."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy is shown of a tool."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments, an object."""

    def as_openai(self) -> dict[str, Any]:
        """The tool in the `tools` list of the OpenAI chat format, which chat templates read."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


class ToolFault(StrEnum):
    """Why a call gave no result. The policy is told in words; the fault is what is counted."""

    UNREADABLE = "unreadable"
    """The call could not be parsed, or was cut by the token limit."""
    UNKNOWN = "unknown"
    """There is no tool of that name."""
    EXCESS = "excess"
    """More calls than the environment takes in one turn."""
    INVALID = "invalid"
    """The arguments do not fit the schema, or are too large."""
    REFUSED = "refused"
    """The tool says that it cannot: a `ToolError`."""
    TIMEOUT = "timeout"
    """No result in time."""
    CRASHED = "crashed"
    """The tool raised, or its server went away."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool may return instead of text, when the call itself earns a reward or ends the
    episode.
    """

    content: str
    reward: float = 0.0
    terminated: bool = False
    error: bool = False
    """Whether the call failed; counted, and shown to the policy as any result."""
    fault: ToolFault | None = None
    """How it failed, if that is known."""

    @classmethod
    def failed(cls, fault: ToolFault, content: str) -> ToolResult:
        """A call that gave no result, and what the policy is told."""
        return cls(content=content, error=True, fault=fault)


def fault_counts(results: Iterable[ToolResult]) -> dict[str, int]:
    """How often each fault is among `results`."""
    return dict(Counter(str(one.fault) for one in results if one.fault is not None))


def bounded(result: ToolResult, most_chars: int) -> ToolResult:
    """`result` with text that can be sent, of at most about `most_chars` characters."""
    content = result.content.encode("utf-8", "replace").decode()
    if len(content) > most_chars:
        half = most_chars // 2
        gap = f"\n[... {len(content) - 2 * half:,} characters left out ...]\n"
        content = content[:half] + gap + content[len(content) - half :]
    return result if content == result.content else msgspec.structs.replace(result, content=content)
