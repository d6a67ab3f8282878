"""Parsers of tool calls in a model's text, a parser per format."""

from .deepseek import DeepSeekV3Format, DeepSeekV4Format, DeepSeekV31Format, DeepSeekV32Format
from .gemma import FunctionGemmaFormat, Gemma3Format, Gemma4Format
from .glm import Glm4Format
from .harmony import HarmonyFormat
from .kimi import KimiK2Format
from .llama import Llama3JsonFormat, Llama3PythonicFormat
from .minimax import MiniMaxM1Format, MiniMaxM2Format
from .mistral import MistralV3Format, MistralV11Format
from .protocol import (
    HasCallIds,
    OneCall,
    ToolFormat,
    WritesTurns,
    call_id,
    read_turn,
    turn_text,
    writes_turns,
)
from .qwen import HermesFormat, Qwen3CoderFormat
from .registry import TOOL_FORMATS, register_tool_format, tool_format
from .tags import TagFormat

__all__ = [
    "TOOL_FORMATS",
    "DeepSeekV3Format",
    "DeepSeekV4Format",
    "DeepSeekV31Format",
    "DeepSeekV32Format",
    "FunctionGemmaFormat",
    "Gemma3Format",
    "Gemma4Format",
    "Glm4Format",
    "HarmonyFormat",
    "HasCallIds",
    "HermesFormat",
    "KimiK2Format",
    "Llama3JsonFormat",
    "Llama3PythonicFormat",
    "MiniMaxM1Format",
    "MiniMaxM2Format",
    "MistralV3Format",
    "MistralV11Format",
    "OneCall",
    "Qwen3CoderFormat",
    "TagFormat",
    "ToolFormat",
    "WritesTurns",
    "call_id",
    "read_turn",
    "register_tool_format",
    "tool_format",
    "turn_text",
    "writes_turns",
]
