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

from . import gemma, headed, hermes, llama, tagged, tags
from .protocol import ToolFormat

ENTRY_POINT_GROUP = "ludus.tool_formats"
_SHIPPED: tuple[type[ToolFormat], ...] = (
    hermes.HermesFormat, tagged.Qwen3CoderFormat, llama.Llama3JsonFormat,
    llama.Llama3PythonicFormat, tags.TagFormat, headed.HarmonyFormat, headed.DeepSeekV3Format,
    headed.DeepSeekV31Format, tagged.DeepSeekV32Format, tagged.DeepSeekV4Format, tagged.Glm4Format,
    headed.KimiK2Format, headed.MistralV3Format, headed.MistralV11Format,
    gemma.FunctionGemmaFormat, gemma.Gemma3Format, gemma.Gemma4Format, hermes.MiniMaxM1Format,
    tagged.MiniMaxM2Format, hermes.Phi4MiniFormat, hermes.Granite3Format, hermes.NemotronFormat,
    hermes.Lfm2Format,
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
