"""Tool formats by name."""

from __future__ import annotations

from ludus.errors import UnknownName

from .hermes import HermesFormat
from .protocol import ToolFormat

TOOL_FORMATS: dict[str, type[ToolFormat]] = {"hermes": HermesFormat}


def tool_format(name: str) -> ToolFormat:
    """The format called `name`.

    Raises:
        UnknownName: there is none; the message names the near miss.
    """
    if name not in TOOL_FORMATS:
        raise UnknownName.near(name, TOOL_FORMATS, hint="tool formats")
    return TOOL_FORMATS[name]()
