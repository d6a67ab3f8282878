"""Parsers of tool calls in a model's text, a parser per format."""

from .deepseek import DeepSeekV3Format, DeepSeekV31Format
from .dsml import DeepSeekV4Format, DeepSeekV32Format
from .gemma import FunctionGemmaFormat, Gemma3Format, Gemma4Format
from .glm import Glm4Format
from .harmony import HarmonyFormat
from .hermes import HermesFormat
from .kimi import KimiK2Format
from .llama3 import Llama3JsonFormat
from .minimax import MiniMaxM1Format, MiniMaxM2Format
from .mistral import MistralV3Format, MistralV11Format
from .one_call import OneCall
from .protocol import HasCallIds, ToolFormat, WritesTurns, call_id, turn_text
from .pythonic import Llama3PythonicFormat
from .qwen3_coder import Qwen3CoderFormat
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
    "register_tool_format",
    "tool_format",
    "turn_text",
]
