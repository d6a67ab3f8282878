"""Tools a policy may call: from typed Python functions, from MCP servers; and environments as MCP
servers.
"""

from .function import Tool, tool, tools_of
from .spec import DEFAULT_TIMEOUT_S, ToolFault, ToolResult, ToolSpec

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "Tool",
    "ToolFault",
    "ToolResult",
    "ToolSpec",
    "tool",
    "tools_of",
]
