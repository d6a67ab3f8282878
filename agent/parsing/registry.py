"""The registry of tool formats by name."""

from __future__ import annotations

from ludus.errors import UnknownName

from .hermes import HermesFormat
from .llama3 import Llama3JsonFormat
from .protocol import ToolFormat
from .pythonic import Llama3PythonicFormat
from .qwen3_coder import Qwen3CoderFormat
from .tags import TagFormat

TOOL_FORMATS: dict[str, type[ToolFormat]] = {
    one.name: one
    for one in (HermesFormat, Qwen3CoderFormat, Llama3JsonFormat, Llama3PythonicFormat, TagFormat)
}


def tool_format(name: str) -> ToolFormat:
    """Return the format called `name`.

    Raises:
        UnknownName: no such format; the message suggests a near miss.
    """
    if name not in TOOL_FORMATS:
        raise UnknownName.near(name, TOOL_FORMATS, hint="tool formats")
    return TOOL_FORMATS[name]()
