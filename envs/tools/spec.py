"""The data of tools: what the policy is shown of a tool, and the result of a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from ludus.messages import ImagePart, Part, TextPart

DEFAULT_TIMEOUT_S = 30.0
MAX_ARGUMENT_BYTES = 256 * 1024
"""The most bytes that the arguments of a call may have, as JSON."""
MAX_RESULT_CHARS = 64 * 1024
"""The most characters of a result; a longer result is cut in the middle."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a tool that a policy is shown."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON Schema of the arguments, an object."""

    def as_openai(self) -> dict[str, Any]:
        """Return the tool as an entry of `tools` in the OpenAI chat format, as chat templates
        expect.
        """
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


class ToolFault(StrEnum):
    """The reason why a call gave no result: a text for the policy, and a count in the metrics."""

    UNREADABLE = "unreadable"
    """The call could not be parsed, or was cut by the token limit."""
    UNKNOWN = "unknown"
    """No tool has the name of the call."""
    EXCESS = "excess"
    """The turn has more calls than the environment runs."""
    INVALID = "invalid"
    """The arguments do not fit the schema, or are too large."""
    REFUSED = "refused"
    """The tool refused the call with a `ToolError`."""
    TIMEOUT = "timeout"
    """No result came in time."""
    CRASHED = "crashed"
    """The tool raised an exception, or its server went away."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call; returned by a tool when the call earns a reward or ends the episode."""

    content: str
    reward: float = 0.0
    terminated: bool = False
    error: bool = False
    """Whether the call failed; failures are counted, and shown to the policy as any result."""
    fault: ToolFault | None = None
    """How the call failed, if that is known."""
    images: list[ImagePart] = []
    """Images shown to the policy after the text."""

    @property
    def shown(self) -> str | list[Part]:
        """The content of the message that tells the policy this result."""
        if not self.images:
            return self.content
        return [*([TextPart(self.content)] if self.content else []), *self.images]

    @classmethod
    def failed(cls, fault: ToolFault, content: str) -> ToolResult:
        """Make the result of a failed call; `content` is what the policy is told."""
        return cls(content=content, error=True, fault=fault)


def fault_counts(results: Iterable[ToolResult]) -> dict[str, int]:
    """Count how often each fault is among `results`."""
    return dict(Counter(str(result.fault) for result in results if result.fault is not None))


def bounded(result: ToolResult, max_chars: int) -> ToolResult:
    """Return `result` with valid UTF-8 text of at most about `max_chars` characters."""
    content = result.content.encode("utf-8", "replace").decode()
    if len(content) > max_chars:
        half = max_chars // 2
        gap = f"\n[... {len(content) - 2 * half:,} characters left out ...]\n"
        content = content[:half] + gap + content[len(content) - half :]
    return result if content == result.content else msgspec.structs.replace(result, content=content)
