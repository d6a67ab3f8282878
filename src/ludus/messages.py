"""The messages that every layer uses, with parts and tool calls.

Roles and field names are those of the OpenAI chat format, so a `Message` encodes to what its
servers accept. A plain `str` is short for one message wherever a message is expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from ludus.errors import ConfigError


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text inside a message of several parts."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    """An image in a message: encoded bytes (PNG, JPEG, WebP; base64 in JSON), or a `data:` URL."""

    data: bytes = b""
    url: str = ""


Part = TextPart | ImagePart

THOUGHT_MARKS = ("<think>\n", "\n</think>\n\n")
"""The marks that most models write around thoughts, which came without marks."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call of the policy."""

    name: str
    arguments: dict[str, Any] = {}
    id: str = ""
    """The id by which the result names this call; see `Message.tool_call_id`."""
    error: str = ""
    """The reason why the call could not be parsed; such a call is never executed. Empty for a call
    that was parsed.
    """


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a conversation."""

    role: Role
    content: str | list[Part] = ""
    tool_calls: list[ToolCall] = []
    tool_call_id: str = ""
    """In a message of the role `tool`, the id of the call that it answers."""
    name: str = ""
    """In a message of the role `tool`, the name of the tool."""
    reasoning: str = ""
    """The thoughts of an assistant. What was said is in `content`; see `ludus.thoughts`."""
    thought_marks: tuple[str, str] | None = None
    """The marks and white space before and after the thoughts, as the model wrote them. None where
    thoughts came in a field of their own, and where there are none.
    """

    @property
    def thinks(self) -> bool:
        """Whether thoughts were split off, even empty thoughts."""
        return bool(self.reasoning) or self.thought_marks is not None

    @property
    def only_thinks(self) -> bool:
        """Whether there are thoughts and nothing else: no word, no call, as where a limit cut the
        thoughts.
        """
        return self.thinks and not self.text.strip() and not self.tool_calls

    @property
    def written(self) -> str:
        """The text as written by the model, thoughts included.

        >>> Message(role=Role.ASSISTANT, content="7", reasoning="hm").written
        '<think>\\nhm\\n</think>\\n\\n7'
        """
        if not self.thinks:
            return self.text
        before, between = self.thought_marks or THOUGHT_MARKS
        return f"{before}{self.reasoning}{between}{self.text}"

    @property
    def text(self) -> str:
        """The text of the message, with the parts joined.

        >>> user("2 + 2?").text
        '2 + 2?'
        """
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> list[ImagePart]:
        """The images of the message, in order."""
        if isinstance(self.content, str):
            return []
        return [part for part in self.content if isinstance(part, ImagePart)]


Observation = str | list[Message]
"""The observation of an environment: text (one user message) or messages."""


def system(content: str) -> Message:
    """Return a system message."""
    return Message(role=Role.SYSTEM, content=content)


def user(content: str | list[Part]) -> Message:
    """Return a user message."""
    return Message(role=Role.USER, content=content)


def assistant(content: str = "", tool_calls: Sequence[ToolCall] = ()) -> Message:
    """Return an assistant message."""
    return Message(role=Role.ASSISTANT, content=content, tool_calls=list(tool_calls))


def tool_result(content: str | list[Part], call: ToolCall) -> Message:
    """Return the message with a tool's result for `call`."""
    return Message(role=Role.TOOL, content=content, tool_call_id=call.id, name=call.name)


def as_messages(observation: Observation) -> list[Message]:
    """Return an observation as a list of messages.

    >>> [m.role.value for m in as_messages("hello")]
    ['user']
    """
    return [user(observation)] if isinstance(observation, str) else observation


def refuse_images(observation: Observation) -> None:
    """Refuse an observation with images, where only text is carried on: a policy that is not shown
    what the environment shows would be trained, or measured, on guesses.

    Raises:
        ConfigError: a message shows an image.
    """
    if any(message.images for message in as_messages(observation)):
        raise ConfigError(
            "the environment shows an image, and the bridge that plays it carries text alone; play "
            "it with ludus train or ludus eval, or over the protocol of ludus serve"
        )


def as_action(action: str | Message) -> Message:
    """Return an action as an assistant message."""
    return assistant(action) if isinstance(action, str) else action
