"""Parsers of tool calls in a model's text, a parser per format."""

from .hermes import HermesFormat
from .protocol import (
    HasCallIds,
    MarkedFormat,
    OneCall,
    ToolFormat,
    WritesTurns,
    call_id,
    read_turn,
    turn_text,
    writes_turns,
)
from .registry import TOOL_FORMATS, register_tool_format, tool_format

__all__ = [
    "TOOL_FORMATS",
    "HasCallIds",
    "HermesFormat",
    "MarkedFormat",
    "OneCall",
    "ToolFormat",
    "WritesTurns",
    "call_id",
    "read_turn",
    "register_tool_format",
    "tool_format",
    "turn_text",
    "writes_turns",
]
