"""A person as a policy: text is an answer, and a line that begins with `/` calls a tool.

/calculator 1+1                      a tool with one argument takes the rest of the line
/search query="red fox" limit=3      several are named
/search {"query": "red fox"}         or given as JSON
//not a call                         a text that begins with /
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ludus.envs import ToolSpec
from ludus.errors import ToolError
from ludus.messages import Message, ToolCall, assistant

from .trajectory import Segment, Stop, Turn

EARNED = "reward"
"""The word before what the last action earned on the way."""
Ask = Callable[[Sequence[Message], Sequence[ToolSpec], str], str]
"""Shows the new messages, the tools, and the error of the last line or what the last action earned;
returns the next line. Raises EOFError when the person leaves.
"""


class HumanPolicy:
    """Asks a person for each action. `ask` may block, which also blocks every other player."""

    trainable = False

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    def begin(self, *, seed: int = 0) -> HumanPlayer:
        """Return a player; a person has no sampling seed."""
        return HumanPlayer(self.ask)


class HumanPlayer:
    """Plays an episode at the terminal."""

    def __init__(self, ask: Ask) -> None:
        self.segments: list[Segment] = [Segment()]
        self._ask = ask
        self._seen = 0

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn | Stop:
        """Ask until the line can be read; returns a stop if the person leaves."""
        new = list(messages[self._seen :])
        shown_messages: list[Message] = new
        earned = self.segments[-1].turns[-1].reward if self.segments[-1].turns else 0.0
        complaint = f"{EARNED} {earned:+g}" if earned else ""
        while True:
            try:
                line = self._ask(shown_messages, tools, complaint)
            except EOFError:
                return Stop.LEFT
            try:
                message = read_line(line, tools)
                break
            except ToolError as error:
                shown_messages, complaint = [], str(error)
        turn = Turn(observation=new, message=message)
        self._seen = len(messages) + 1  # the loop appends this action to the messages
        self.segments[-1].turns.append(turn)
        return turn


def read_line(line: str, tools: Sequence[ToolSpec]) -> Message:
    """Convert a typed line to a message.

    >>> read_line("42", []).text
    '42'

    Raises:
        ToolError: a call of an unknown tool, or arguments that cannot be read.
    """
    if not line.startswith("/") or line.startswith("//"):
        return assistant(line.removeprefix("/") if line.startswith("//") else line)
    name, _, words = line[1:].partition(" ")
    tools_by_name = {tool.name: tool for tool in tools}
    if name not in tools_by_name:
        close_names = difflib.get_close_matches(name, tools_by_name, n=1, cutoff=0.5)
        hint = f"there is {', '.join(tools_by_name) or 'none'}"
        if close_names:
            hint = f"did you mean /{close_names[0]}?"
        slash = "(to say a text that begins with /, type //)"
        raise ToolError(f"no tool named {name!r}; {hint} {slash}")
    arguments = _arguments(words.strip(), tools_by_name[name])
    return assistant("", [ToolCall(name=name, arguments=arguments, id="call_0")])


def _arguments(text: str, tool: ToolSpec) -> dict[str, Any]:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    if text.startswith("{"):
        try:
            return dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ToolError(f"these arguments of {tool.name} are not JSON: {error}") from None
    if not text:
        return {}
    try:
        words = [word.partition("=") for word in shlex.split(text)]
    except ValueError:  # a quotation mark alone
        words = []
    if words and all(mark and name in properties for name, mark, _ in words):
        return {name: _value(value, properties[name]) for name, _, value in words}
    if words and all(mark and name.isidentifier() for name, mark, _ in words):
        wrong = next(name for name, _, _ in words if name not in properties)
        near = difflib.get_close_matches(wrong, properties, n=1, cutoff=0.5)
        hint = (
            f"did you mean {near[0]}=?" if near else f"there is {', '.join(properties) or 'none'}"
        )
        raise ToolError(
            f"no argument named {wrong!r}; {hint} (to give such a text itself, write JSON: "
            f"/{tool.name} {{...}})"
        )
    # The whole line is the value of the only argument, or of the only required argument.
    names = list(properties) if len(properties) == 1 else list(tool.parameters.get("required", []))
    if len(names) != 1:
        raise ToolError(f"{tool.name} takes {usage(tool)}")
    return {names[0]: _value(text, properties[names[0]])}


def _value(text: str, schema: Any) -> Any:
    """Return text where the schema says string, else the JSON value where the text is JSON."""
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def usage(tool: ToolSpec) -> str:
    """Return how a call of `tool` is typed: `/search query=... [limit=...]`."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    if len(properties) == 1:
        return f"/{tool.name} {next(iter(properties)).upper()}"
    words = [f"{n}=..." if n in required else f"[{n}=...]" for n in properties]
    return " ".join([f"/{tool.name}", *words])
