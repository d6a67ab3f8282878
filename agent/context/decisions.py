"""The decisions that a context manager can make.

Reopen          a new window opens with given messages, and the policy acts
WriteSummary    the policy writes a summary at the end of the window, then a window opens
WriteText       a window opens in which the policy writes a text and nothing else
Delegate        somebody else than the policy writes the text, then a window opens
Stop            the episode ends
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ludus.messages import Message

from ..trajectory import Stop


@dataclass(frozen=True, slots=True)
class Reopen:
    """A decision to continue in a new window."""

    messages: list[Message]
    """The new window's prompt; the policy speaks next."""
    reason: str
    """The value for `Segment.break_reason`."""


@dataclass(frozen=True, slots=True)
class WriteText:
    """A decision to open a window in which the policy writes a text, which no environment hears."""

    messages: list[Message]
    """The new window's prompt, with the request for the text."""
    max_tokens: int
    reason: str
    """The value for `Segment.break_reason`."""
    resume: Callable[[str], Reopen | WriteText]
    """Returns the window that follows, given the text."""
    trained: bool = True


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """A decision to let the policy write a summary at the end of the current window."""

    instruction: Message
    max_tokens: int
    drop_last: bool
    """Whether the last action and its answer leave the window before the instruction."""
    show_newest: bool
    """Whether the newest answer is shown before the instruction."""
    trained: bool
    resume: Callable[[str], Reopen]
    """Returns the window that follows, given the summary's text."""


@dataclass(frozen=True, slots=True)
class Delegate:
    """A decision to let another model write the summary.

    No turn is recorded, since the policy samples nothing: the text is in the prompt of the next
    window, and the break reason says where it came from.
    """

    write: Callable[[], Awaitable[str]]
    """Writes the summary.

    Raises:
        LudusError: the other model cannot answer; the episode is then left out of the training.
    """
    resume: Callable[[str], Reopen]
    """Returns the window that follows, given the summary's text."""


Decision = Reopen | WriteText | WriteSummary | Delegate | Stop


@dataclass(frozen=True, slots=True)
class Handled:
    """The answer to an action that was meant for the manager and not for the environment."""

    messages: list[Message]
    """The manager's answer to the policy; with `reopen`, the messages of the new window."""
    reopen: bool = False
