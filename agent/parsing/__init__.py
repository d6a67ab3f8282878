"""Tool calls in a model's own text, by format."""

from .hermes import HermesFormat
from .protocol import ToolFormat
from .registry import TOOL_FORMATS, tool_format

__all__ = ["TOOL_FORMATS", "HermesFormat", "ToolFormat", "tool_format"]
