"""The display of conversations at a terminal, with control sequences made visible and harmless."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from ludus.agent.human_policy import usage
from ludus.envs import ToolSpec
from ludus.messages import Message, Role

STYLES = {
    Role.SYSTEM: "dim",
    Role.USER: "cyan",
    Role.ASSISTANT: "green",
    Role.TOOL: "yellow",
}

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and line feed
    "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that reverse the direction of text
    "\ud800-\udfff]"  # lone surrogates cannot be printed
)


def escaped(text: str) -> str:
    r"""Write control characters as Python escapes, so that the terminal does not obey the text.

    >>> escaped("\x1b[31mred")
    '\\x1b[31mred'
    """
    return _OBEYED.sub(lambda match: ascii(match[0])[1:-1], text)


def show_message(console: Console, message: Message) -> None:
    """Draw a message in a box, with role, text and tool calls."""
    title = f"{message.role} {message.name}".strip()
    lines = [message.text] if message.text else []
    for call in message.tool_calls:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        lines.append(f"{call.name}({arguments})")
    body = "\n".join(lines)
    body += f"\n[{len(message.images)} images]" if message.images else ""
    style = STYLES[message.role]
    panel = Panel(Text(escaped(body)), title=escaped(title), title_align="left", border_style=style)
    console.print(panel)


def show_tools(console: Console, tools: Sequence[ToolSpec]) -> None:
    """Print a line for each tool: how to call the tool, and a summary."""
    for tool in tools:
        summary = tool.description.partition("\n")[0]
        console.print(Text(escaped(f"  {usage(tool)}  {summary}"), "yellow"))
