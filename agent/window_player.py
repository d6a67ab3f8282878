"""The state that all players share: the messages of the window, and the context manager's answers.

`TokenPlayer` adds token ids to this, and `ChatPlayer` the counts of a server, so that the same
context managers cut both in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from ludus.messages import Message

from .context import (
    NO_SUMMARY,
    ContextManager,
    Decision,
    History,
    Reopen,
    WriteSummary,
    WriteText,
    read_summary,
)
from .trajectory import Segment, Turn, TurnKind


class WindowPlayer:
    """The windows of an episode; a player derives from this.

    Args:
        context: decides how to continue when the window is full.
    """

    def __init__(self, context: ContextManager) -> None:
        self.segments: list[Segment] = []
        self._context = context.begin()
        self._base: list[Message] = []
        """The messages that the window shows before messages[since:]."""
        self._since = 0
        self._seen = 0
        """How many messages of the environment are part of some turn's `observation`."""
        self._unread: list[Message] = []
        """Answers of the context manager that the policy has not been shown yet."""
        self._actions: list[int] = []
        """Indices of the actions in the conversation."""
        self._summaries = 0
        self._next: Reopen | WriteText | None = None
        """How the next window opens, where that is decided."""

    def _view(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that the current window shows."""
        return [*self._base, *messages[self._since :]]

    def _before_turn(self, history: History) -> Decision | None:
        """Return how the next window opens, or None if the current window goes on."""
        # The manager's own answer to a call is read before the window may change.
        decision = None if self._unread else self._context.before_turn(history)
        if decision is None and not self.segments:
            return Reopen(history.opening, "")
        return decision

    def _after_turn(self, turn: Turn, history: History) -> None:
        """Record an action, and let the context manager answer if the action called a context
        tool.
        """
        message, said_at = turn.action or turn.message, len(history.messages)
        assert message is not None
        handled = self._context.handle(message, history)
        self._unread = []
        if handled is None:
            self._actions.append(said_at)
            self._seen = said_at + 1
            return
        turn.kind = TurnKind.FOLD
        self._seen = said_at
        if handled.reopen:
            self._next = Reopen(handled.messages, "fold")
            return
        self._base, self._since = [*history.view, message, *handled.messages], said_at
        self._unread = handled.messages

    def _after_summary(self, step: WriteSummary | WriteText, turn: Turn) -> Turn:
        """Plan the next window from the text of a summary; returns the turn that wrote the text."""
        assert turn.message is not None
        self._summaries += 1
        written = turn.message
        self._next = step.resume(NO_SUMMARY if written.only_thinks else read_summary(written))
        return turn

    def _last_said(self, view: Sequence[Message]) -> int:
        """Return the position in the window of what the policy said last."""
        if self._unread:  # a call that the manager has answered
            return len(view) - len(self._unread) - 1
        return len(self._base) + self._actions[-1] - self._since
