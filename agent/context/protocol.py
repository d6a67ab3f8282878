"""What a context manager does: it is asked when the window is full, and says how to go on.

    history  ->  Reopen(messages)        a new window opens with these messages
                 WriteSummary(...)       the policy writes a summary first, then a window opens
                 Stop                    the episode ends

A manager keeps nothing between calls: what it decides is a function of the history, so the same
rollout is cut the same way each time. Tokens are not its business: `TokenPlayer` measures, renders
and cuts.
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
    """One action and what came back."""

    action: Message
    answer: list[Message]


@dataclass(frozen=True, slots=True)
class History:
    """An episode so far, whichever windows it was seen in. Cut only where it is looked at: episodes
    are long, and managers mostly want the end of them.
    """

    messages: tuple[Message, ...]
    actions: tuple[int, ...] = ()
    """Where in `messages` the policy acted."""
    summaries: int = 0
    """Written so far."""

    @property
    def opening(self) -> list[Message]:
        """What came before the first action: s_1."""
        return list(self.messages[: self.actions[0]] if self.actions else self.messages)

    @property
    def exchanges(self) -> list[Exchange]:
        """Every action with what came back."""
        ends = [*self.actions[1:], len(self.messages)]
        return [
            Exchange(self.messages[start], list(self.messages[start + 1 : end]))
            for start, end in zip(self.actions, ends, strict=True)
        ]

    def last(self, count: int) -> list[Message]:
        """The last `count` exchanges, or as many as there are, as they were said."""
        kept = self.actions[max(0, len(self.actions) - count) :]
        return list(self.messages[kept[0] :]) if kept else []


@dataclass(frozen=True, slots=True)
class Reopen:
    """Go on in a new window."""

    messages: list[Message]
    """The new window's prompt; the policy speaks next."""
    reason: str
    """For `Segment.break_reason`."""


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """Have the policy write a summary at the end of the running window."""

    instruction: Message
    max_tokens: int
    drop_last: bool
    """Whether the last action and its answer leave the window before the instruction."""
    show_newest: bool
    """Whether the newest answer is shown before the instruction."""
    trained: bool
    resume: Callable[[str], Reopen]
    """The window that follows, given the summary's text."""


@dataclass(frozen=True, slots=True)
class Handled:
    """An action that was meant for the manager, not for the environment."""

    messages: list[Message]
    """Its answer, to be shown to the policy; of a `Reopen`, those of the new window."""
    reopen: bool = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths in tokens that a configuration is checked with."""

    window: int
    row: int
    """Most tokens the engine takes in all."""
    opening: int
    """s_1 as a prompt."""
    reopened: int
    """The shortest window the manager can open: with an empty summary."""
    instruction: int
    answer: int
    """Most tokens of one action."""


class ContextManager(Protocol):
    """Decides what the policy sees once it cannot see everything."""

    @property
    def name(self) -> str:
        """As settings call it."""
        ...

    def limit(self, window: int) -> int:
        """The length in tokens from which on the window counts as full: L."""
        ...

    def when_full(self, history: History) -> Reopen | WriteSummary | Stop:
        """The window is full and the newest exchange is answered: how to go on."""
        ...

    def check(self, sizes: Sizes) -> None:
        """Refuse settings under which no window would hold a step.

        Raises:
            ConfigError: with the lengths, and what to change.
        """
        ...

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Tools the policy is offered beside the environment's; calls of them come to `handle`."""
        ...

    def handle(self, action: Message, view: Sequence[Message]) -> Handled | None:
        """Answer an action that calls one of `tools`; None leaves it to the environment.

        Args:
            action: what the policy just said.
            view: what is in the window before it.
        """
        ...


def add_to_prompt(messages: Sequence[Message], text: str) -> list[Message]:
    """`messages` with `text` at the end of their last user message, or as one of its own.

    Templates of some models refuse two user messages in a row.
    """
    last = messages[-1] if messages else None
    if last is None or last.role is not Role.USER or not isinstance(last.content, str):
        return [*messages, Message(role=Role.USER, content=text)]
    joined = f"{last.content}\n\n{text}" if last.content else text
    return [*messages[:-1], Message(role=Role.USER, content=joined, name=last.name)]


def require_room_to_act(name: str, sizes: Sizes, limit: int, opened: int, made_of: str) -> None:
    """Refuse windows that are full as soon as they open: they would be cut forever."""
    if opened + sizes.answer >= limit:
        raise ConfigError(
            f"context manager {name!r} acts from {limit} tokens on (window {sizes.window}), but a "
            f"window opens with {opened} ({made_of}) and an action may take {sizes.answer} "
            "(max_tokens): no window would hold a step; make the window (rollout.window, or "
            "--window of eval and sft) larger, or those smaller"
        )
