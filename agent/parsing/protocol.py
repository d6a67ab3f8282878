"""The interface of tool formats: reading a model's text as a message, and writing calls as the
model would.

Frameworks differ in which of a turn's calls they run: Search-R1 the first, CodeGym the last.
`OneCall` does either; the other calls come back to the model as calls that were not run.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall
from ludus.thoughts import AUTO, apart, marks_of

from .arguments import as_json, as_text
from .scan import scan


class ToolFormat(Protocol):
    """A way in which models write tool calls."""

    name: str

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn as a message.

        Every call is returned, in order. A call that cannot be read carries `error` and is never
        executed. The same holds for a call that may have been cut: in a turn that is not
        `complete`, that is the last call, unless the text closes it.

        Args:
            text: the model's text.
            complete: whether the model ended its turn.
            tools: the tools on offer. Formats that write every argument as text read types there.
        """
        ...

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would.

        Args:
            calls: the calls to write.
            tools: the tools on offer. A format without argument names looks up whether to add them.
        """
        ...


@runtime_checkable
class HasCallIds(Protocol):
    """A tool format of models whose chat templates or servers have rules for the ids of calls."""

    def call_id(self, call: ToolCall, number: int) -> str:
        """Return a call's own id if the format accepts that id, else an id made from `number`.

        Args:
            call: the call.
            number: how many calls of the conversation, or of the turn, come before.
        """
        ...


class WritesTurns(ToolFormat, Protocol):
    """A tool format that marks more of a turn than its calls: text and thoughts too."""

    def write(self, message: Message, *, tools: Sequence[ToolSpec] = ()) -> str:
        """Return an assistant turn in the model's own notation."""
        ...


def writes_turns(tool_format: ToolFormat) -> TypeGuard[WritesTurns]:
    """Whether a tool format marks more of a turn than the calls.

    `isinstance` with a protocol is slow, and this is asked at every turn.
    """
    return hasattr(tool_format, "write")


def turn_text(tool_format: ToolFormat, message: Message, *, tools: Sequence[ToolSpec] = ()) -> str:
    """Return an assistant turn in the notation of a model of this format."""
    if writes_turns(tool_format):
        return tool_format.write(message, tools=tools)
    parts = [message.written, tool_format.render(message.tool_calls, tools=tools)]
    return "\n".join(part for part in parts if part)


def read_turn(
    tool_format: ToolFormat,
    text: str,
    *,
    complete: bool = True,
    tools: Sequence[ToolSpec] = (),
    opened: str = "",
    thoughts: str = AUTO,
) -> Message:
    """Read an assistant turn as a message whose thoughts are apart; see `ToolFormat.parse`.

    Args:
        tool_format: reads the calls.
        text: the model's text.
        complete: whether the model ended its turn.
        tools: the tools on offer.
        opened: the mark with which the prompt opened the thoughts; empty where it did not.
        thoughts: the marks around thoughts; see `ludus.thoughts`.
    """
    if writes_turns(tool_format):
        return apart(tool_format.parse(text, complete=complete, tools=tools), thoughts)
    # No call stands in the thoughts with which the turn begins. Later thoughts stand between calls,
    # where only a walk can tell marks from arguments.
    marks = marks_of(thoughts)
    begun = 0 if marks is None else marks.leading(text, opened)
    read = tool_format.parse(text[begun:], complete=complete, tools=tools)
    whole = msgspec.structs.replace(read, content=text[:begun] + read.text)
    return apart(whole, thoughts, opened=opened)


def call_id(tool_format: ToolFormat, call: ToolCall, number: int) -> str:
    """Return the id that templates and servers of this format want for a call; see `HasCallIds`."""
    return tool_format.call_id(call, number) if isinstance(tool_format, HasCallIds) else call.id


class MarkedFormat(ABC):
    """A tool format whose calls begin with marks of their own, and are written in one form each."""

    name: str
    beginning: re.Pattern[str]
    """Matches what begins a call, whole or damaged. A subclass with an attribute `opening`, a text,
    gets the pattern of that text.
    """
    form: str
    """A call as a template of `str.format`, with the fields `name`, `id`, `arguments` (as JSON),
    `row` (the whole call as JSON) and `format` (the tool format, whose marks may be named).
    """
    before: str = ""
    """The text before the calls of a turn."""
    between: str = ""
    """The text between two calls of a turn."""
    after: str = ""
    """The text after the calls of a turn."""
    signs: tuple[str, ...] = ()
    """Marks by which a model of this format is recognised if the chat template shows no call. Each
    mark is a token of the model, or part of the template.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "opening" in vars(cls) and "beginning" not in vars(cls):
            cls.beginning = re.compile(re.escape(vars(cls)["opening"]))

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        message = scan(text, self.beginning, partial(self.read, complete=complete, tools=tools))
        calls = [
            msgspec.structs.replace(call, id=self.call_id(call, number))
            for number, call in enumerate(message.tool_calls)
        ]
        return msgspec.structs.replace(message, tool_calls=calls)

    @abstractmethod
    def read(
        self, text: str, start: int, identity: str, *, complete: bool, tools: Sequence[ToolSpec]
    ) -> tuple[list[ToolCall], int]:
        """Return the calls that begin at `start`, and the position to continue at."""

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would; "" for no calls."""
        written = self.between.join(self.written(call, number) for number, call in enumerate(calls))
        return f"{self.before}{written}{self.after}" if calls else ""

    def written(self, call: ToolCall, number: int) -> str:
        """Return a call as the model would write the call after `number` others of the turn."""
        return self.form.format(
            format=self,
            name=call.name,
            id=self.call_id(call, number),
            arguments=as_text(call.arguments),
            row=as_json(call),
        )

    def call_id(self, call: ToolCall, number: int) -> str:
        """Return a call's id; see `HasCallIds`."""
        return call.id


Keep = Literal["first", "last"]


class OneCall:
    """A tool format that runs a single call of each turn, and else does as another tool format.

    Args:
        tool_format: reads and writes the turn.
        keep: which of several readable calls is run; unreadable calls are never run.
    """

    def __init__(self, tool_format: ToolFormat, keep: Keep = "first") -> None:
        self.inner = tool_format
        self.keep = keep
        self.name = tool_format.name

    def __getattr__(self, name: str) -> Any:
        """Return the method `write` of the other format, if there is one; see `writes_turns`."""
        if name == "write":
            return getattr(self.inner, name)
        raise AttributeError(f"a tool format has no attribute {name!r}")

    def call_id(self, call: ToolCall, number: int) -> str:
        """Return a call's id; see `HasCallIds`."""
        return call_id(self.inner, call, number)

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        message = self.inner.parse(text, complete=complete, tools=tools)
        readable = [index for index, call in enumerate(message.tool_calls) if not call.error]
        if len(readable) < 2:
            return message
        kept_index = readable[0] if self.keep == "first" else readable[-1]
        error = f"one call a turn: only the {self.keep} is run"
        calls = [
            call
            if call.error or index == kept_index
            else ToolCall(name="", id=call.id, error=error)
            for index, call in enumerate(message.tool_calls)
        ]
        return msgspec.structs.replace(message, tool_calls=calls)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return self.inner.render(calls, tools=tools)
