"""Parsers of tool calls in a model's text, a parser per format."""

from .hermes import HermesFormat
from .llama3 import Llama3JsonFormat
from .one_call import OneCall
from .protocol import ToolFormat
from .pythonic import Llama3PythonicFormat
from .qwen3_coder import Qwen3CoderFormat
from .registry import TOOL_FORMATS, tool_format
from .tags import TagFormat

__all__ = [
    "TOOL_FORMATS",
    "HermesFormat",
    "Llama3JsonFormat",
    "Llama3PythonicFormat",
    "OneCall",
    "Qwen3CoderFormat",
    "TagFormat",
    "ToolFormat",
    "tool_format",
]
