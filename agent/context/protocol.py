"""The interface of context managers, which decide how to continue when the window is full.

    history  ->  Reopen(messages)        a new window opens with these messages
                 WriteSummary(...)       the policy writes a summary first, then a window opens
                 Stop                    the episode ends

A manager keeps no state between calls: every decision is a function of the history, so that the
same rollout is always cut in the same way. Managers know nothing of tokens: `TokenPlayer`
measures, renders and cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ludus.envs import ToolSpec
from ludus.errors import ConfigError
from ludus.messages import Message, Role

from ..trajectory import Stop


@dataclass(frozen=True, slots=True)
class Exchange:
    """An action and the messages that answered."""

    action: Message
    answer: list[Message]


@dataclass(frozen=True, slots=True)
class History:
    """An episode so far, across all windows.

    Exchanges are computed on access: episodes are long, and most managers look at the end only.
    """

    messages: tuple[Message, ...]
    actions: tuple[int, ...] = ()
    """Indices of the policy's actions in `messages`."""
    summaries: int = 0
    """How many summaries have been written so far."""

    @property
    def opening(self) -> list[Message]:
        """The messages before the first action: s_1."""
        return list(self.messages[: self.actions[0]] if self.actions else self.messages)

    @property
    def exchanges(self) -> list[Exchange]:
        """Every action with the messages that answered."""
        ends = [*self.actions[1:], len(self.messages)]
        return [
            Exchange(self.messages[start], list(self.messages[start + 1 : end]))
            for start, end in zip(self.actions, ends, strict=True)
        ]

    def last(self, count: int) -> list[Message]:
        """Return the messages of the last `count` exchanges, or of all if fewer exist."""
        kept = self.actions[max(0, len(self.actions) - count) :]
        return list(self.messages[kept[0] :]) if kept else []


@dataclass(frozen=True, slots=True)
class Reopen:
    """A decision to continue in a new window."""

    messages: list[Message]
    """The new window's prompt; the policy speaks next."""
    reason: str
    """The value for `Segment.break_reason`."""


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
class Handled:
    """The answer to an action that was meant for the manager and not for the environment."""

    messages: list[Message]
    """The manager's answer to the policy; with `reopen`, the messages of the new window."""
    reopen: bool = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths in tokens that a configuration is checked against."""

    window: int
    row: int
    """The most tokens that the engine accepts in all."""
    opening: int
    """s_1 as a prompt."""
    reopened: int
    """The shortest window that the manager can open, with an empty summary."""
    instruction: int
    answer: int
    """The most tokens of one action."""


class ContextManager(Protocol):
    """Decides what the policy sees once the whole episode no longer fits."""

    @property
    def name(self) -> str:
        """The manager's name in settings."""
        ...

    def limit(self, window: int) -> int:
        """Return L, the length in tokens from which the window counts as full."""
        ...

    def when_full(self, history: History) -> Reopen | WriteSummary | Stop:
        """Decide how to continue. The window is full and the newest exchange is complete."""
        ...

    def check(self, sizes: Sizes) -> None:
        """Refuse settings under which no window would hold a step.

        Raises:
            ConfigError: with the lengths, and what to change.
        """
        ...

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Tools offered to the policy besides the environment's; calls go to `handle`."""
        ...

    def handle(self, action: Message, view: Sequence[Message]) -> Handled | None:
        """Answer an action that calls any of `tools`; None leaves the action to the environment.

        Args:
            action: the policy's latest message.
            view: the messages in the window before that.
        """
        ...


def add_to_prompt(messages: Sequence[Message], text: str) -> list[Message]:
    """Return `messages` with `text` appended to the last user message, or as a new user message.

    The templates of some models refuse two user messages in a row.
    """
    last = messages[-1] if messages else None
    if last is None or last.role is not Role.USER or not isinstance(last.content, str):
        return [*messages, Message(role=Role.USER, content=text)]
    joined = f"{last.content}\n\n{text}" if last.content else text
    return [*messages[:-1], Message(role=Role.USER, content=joined, name=last.name)]


def require_room_to_act(name: str, sizes: Sizes, limit: int, opened: int, made_of: str) -> None:
    """Refuse windows that would be full on opening, and would be cut forever.

    Raises:
        ConfigError: with the lengths, and what to change.
    """
    if opened + sizes.answer >= limit:
        raise ConfigError(
            f"context manager {name!r} acts from {limit} tokens on (window {sizes.window}), but a "
            f"window opens with {opened} ({made_of}) and an action may take {sizes.answer} "
            "(max_tokens): no window would hold a step; make the window (rollout.window, or "
            "--window of eval and sft) larger, or those smaller"
        )
