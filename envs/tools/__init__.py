"""Tools that a policy may call: typed Python functions and the tools of MCP servers."""

from .function import Tool, tool, tools_of
from .spec import DEFAULT_TIMEOUT_S, ToolFault, ToolResult, ToolSpec

__all__ = ["DEFAULT_TIMEOUT_S", "Tool", "ToolFault", "ToolResult", "ToolSpec", "tool", "tools_of"]
