"""The interface of context managers, which decide what the policy sees of a long episode.

    before_turn(history)   is called before each turn: a decision, or None to play on
    when_full(history)     is called once the window is full: a decision, or None to use the room
                           that is left
    handle(action, ...)    answers calls of the manager's own tools
    hear(text, ...)        takes out of a sampled text what is meant for the manager
    opens(opening, ...)    returns the first prompt as each new window shows it

Most managers override `when_full` alone and keep no state: every decision is a function of the
history, so that the same rollout is always cut in the same way. A manager with state (files,
memories) returns a fresh one for each episode from `begin`. Managers know nothing of tokens
beyond `History.measure`: `TokenPlayer` and `ChatPlayer` measure, render and cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ludus.envs import ToolSpec
from ludus.errors import ConfigError
from ludus.messages import Message

from .decisions import Decision, Handled
from .history import History


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths in tokens that a configuration is checked against."""

    window: int
    """The most tokens that the policy sees at once."""
    row: int
    """The most tokens that the engine accepts in all."""
    opening: int
    """The prompt of the first window."""
    reopened: int
    """The shortest window that the manager can open, with an empty summary."""
    instruction: int
    """The message that asks the policy for a summary; 0 where the manager asks for none."""
    answer: int
    """The most tokens of one action."""
    reading: int = 0
    """The prompt of the first window if a text is to be written there before any action, else 0."""


class ContextManager(ABC):
    """Decides what the policy sees once the whole episode no longer fits."""

    name: str = ""
    """The manager's name, which segments give as the reason of a cut."""
    tools: Sequence[ToolSpec] = ()
    """Tools offered to the policy besides the environment's; calls go to `handle`."""
    last_resort: bool = False
    """Whether a composition asks this manager about full windows after all others."""
    needs_window: bool = True
    """Whether the manager has nothing to do unless the length of the window is known."""

    def begin(self) -> ContextManager:
        """Return the manager of one episode; managers without state return themselves."""
        return self

    def limit(self, window: int) -> int:
        """Return L, the length in tokens from which the window counts as full."""
        return window

    def before_turn(self, history: History) -> Decision | None:
        """Decide before a turn, whether the window is full or not; None plays on.

        The history has no action yet when the first window opens, and its newest message has not
        been shown.
        """
        return None

    @abstractmethod
    def when_full(self, history: History) -> Decision | None:
        """Decide how to continue. The window is full and the newest exchange is complete.

        Returns:
            The decision; None uses what room the window has left, and ends the episode if there is
            none.
        """

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Return the first prompt as each new window shows it: with a memory added, say, or without
        a long document that was read already.

        Args:
            opening: the first prompt of the episode.
            history: the episode up to the new window.
        """
        return opening

    def overrun(self) -> int:
        """Return by how many tokens a text that the policy writes for the manager, such as a
        summary, may exceed the window.
        """
        return 0

    def hear(self, text: str, history: History) -> str:
        """Return the part of an action's text that the environment hears.

        The rest is the manager's. Calls are read from the returned part alone. Called once for
        each action, before `handle`.
        """
        return text

    def handle(self, action: Message, history: History) -> Handled | None:
        """Answer an action that calls any of `tools`; None leaves the action to the environment.

        Args:
            action: the policy's latest message.
            history: the episode before that message.
        """
        return None

    def check(self, sizes: Sizes) -> None:
        """Refuse settings under which no window would hold a step.

        Raises:
            ConfigError: with the lengths, and what to change.
        """
        if sizes.opening >= sizes.window:
            raise ConfigError(
                f"the first prompt has {sizes.opening} tokens, the window {sizes.window}: make "
                "rollout.window larger"
            )

    async def close(self) -> None:  # noqa: B027, most managers hold nothing
        """Release what the manager holds, such as a connection; called once, when no episode is
        played any more.
        """

    def rehearse(self, action: Message, summarise: Callable[[], str], history: History) -> Message:
        """Return an expert's action as this manager wants the policy to write it.

        Args:
            action: what the expert does.
            summarise: returns what the expert would write down of everything seen so far.
            history: the episode before that.
        """
        return action


def require_room_to_act(
    name: str, sizes: Sizes, limit: int, opening_tokens: int, made_of: str
) -> None:
    """Refuse windows that would be full on opening, and would be cut forever.

    Args:
        name: the manager's name, for the error.
        sizes: the lengths of the configuration.
        limit: the length from which the manager counts a window as full.
        opening_tokens: the length with which the manager opens a window.
        made_of: what that opening consists of, for the error.

    Raises:
        ConfigError: with the lengths, and what to change.
    """
    if opening_tokens + sizes.answer >= limit:
        raise ConfigError(
            f"context manager {name!r} acts from {limit} tokens on (window {sizes.window}), but a "
            f"window opens with {opening_tokens} ({made_of}) and an action may take {sizes.answer} "
            "(max_tokens): no window would hold a step; make the window (rollout.window, or "
            "--window of eval and sft) larger, or those smaller"
        )
