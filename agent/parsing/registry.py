"""The registry of tool formats by name.

A format of another package is found by its entry point, and one of a script by
`register_tool_format`:

    [project.entry-points."ludus.tool_formats"]
    "me-json" = "my_package.formats:MyFormat"
"""

from __future__ import annotations

from typing import TypeVar

from ludus.errors import ConfigError, UnknownName
from ludus.registry import load_offered, offered_names

from .deepseek import DeepSeekV3Format, DeepSeekV4Format, DeepSeekV31Format, DeepSeekV32Format
from .gemma import FunctionGemmaFormat, Gemma3Format, Gemma4Format
from .glm import Glm4Format
from .harmony import HarmonyFormat
from .kimi import KimiK2Format
from .llama import Llama3JsonFormat, Llama3PythonicFormat
from .marked_lists import Granite3Format, Lfm2Format, NemotronFormat, Phi4MiniFormat
from .minimax import MiniMaxM1Format, MiniMaxM2Format
from .mistral import MistralV3Format, MistralV11Format
from .protocol import ToolFormat
from .qwen import HermesFormat, Qwen3CoderFormat
from .tags import TagFormat

ENTRY_POINT_GROUP = "ludus.tool_formats"
_SHIPPED: tuple[type[ToolFormat], ...] = (
    HermesFormat, Qwen3CoderFormat, Llama3JsonFormat, Llama3PythonicFormat, TagFormat,
    HarmonyFormat, DeepSeekV3Format, DeepSeekV31Format, DeepSeekV32Format, DeepSeekV4Format,
    Glm4Format, KimiK2Format, MistralV3Format, MistralV11Format, FunctionGemmaFormat,
    Gemma3Format, Gemma4Format, MiniMaxM1Format, MiniMaxM2Format, Phi4MiniFormat,
    Granite3Format, NemotronFormat, Lfm2Format,
)  # fmt: skip
TOOL_FORMATS: dict[str, type[ToolFormat]] = {shipped.name: shipped for shipped in _SHIPPED}
"""The formats that are shipped or registered, by name."""
Made = TypeVar("Made", bound=type[ToolFormat])


def register_tool_format(format_class: Made) -> Made:
    """Register a class of tool formats under its `name`; a class decorator.

    Raises:
        ConfigError: the class has no name, or the name belongs to another class.
    """
    name = getattr(format_class, "name", "")
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"{format_class.__qualname__} needs a class attribute `name` to be registered"
        )
    registered = TOOL_FORMATS.get(name)
    # Classes are compared by where they are defined: a module that is run twice makes a second
    # class, which takes the place of the first.
    if registered is not None and (registered.__module__, registered.__qualname__) != (
        format_class.__module__,
        format_class.__qualname__,
    ):
        raise ConfigError(
            f"the tool format {name!r} is {registered.__module__}.{registered.__qualname__}; give "
            f"{format_class.__qualname__} another name"
        )
    TOOL_FORMATS[name] = format_class
    return format_class


def tool_format(name: str) -> ToolFormat:
    """Return the format called `name`.

    Raises:
        UnknownName: no such format; the message suggests a near miss.
    """
    if name in TOOL_FORMATS:
        return TOOL_FORMATS[name]()
    format_class = load_offered(ENTRY_POINT_GROUP, name)
    if format_class is not None:
        new_format: ToolFormat = format_class()
        return new_format
    names = [*TOOL_FORMATS, *offered_names(ENTRY_POINT_GROUP)]
    raise UnknownName.near(name, names, hint="tool formats")
