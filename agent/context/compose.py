"""Several context managers as one, asked in a written order: `clear+memory+summarize`.

    before a turn      the first manager with a decision decides
    a full window      the first manager decides whose limit is reached and whose decision helps;
                       last resorts (`memory`) are asked after the others
    a call             the first manager that the call is for answers
    a first prompt     is passed through all of them, in order

A decision helps unless it ends the episode or opens a window that would be full at once. If none
helps, the last reason to stop stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ludus.envs import ToolSpec
from ludus.errors import ConfigError
from ludus.messages import Message

from ..trajectory import Stop
from .decisions import Decision, Handled, Reopen
from .history import History
from .protocol import ContextManager, Sizes


class Composed(ContextManager):
    """Managers in the order in which they are asked.

    Args:
        managers: two or more, no two of the same name.

    Raises:
        ConfigError: fewer than two, the same one twice, or two that offer a tool of the same name.
    """

    def __init__(self, managers: Sequence[ContextManager]) -> None:
        names = [manager.name for manager in managers]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ConfigError(
                f"a composition needs two or more different context managers, got {names}"
            )
        tool_names = [tool.name for manager in managers for tool in manager.tools]
        twice = sorted({name for name in tool_names if tool_names.count(name) > 1})
        if twice:
            raise ConfigError(f"two context managers offer a tool named {twice[0]!r}")
        self.managers = tuple(managers)
        self.name = "+".join(names)
        self.tools: Sequence[ToolSpec] = [tool for manager in managers for tool in manager.tools]
        self.needs_window = any(manager.needs_window for manager in managers)

    def begin(self) -> Composed:
        """Return the managers of one episode."""
        return Composed([manager.begin() for manager in self.managers])

    def limit(self, window: int) -> int:
        """Return the smallest limit."""
        return min(manager.limit(window) for manager in self.managers)

    def before_turn(self, history: History) -> Decision | None:
        """Return the first decision."""
        decisions = (manager.before_turn(history) for manager in self.managers)
        return next((decision for decision in decisions if decision is not None), None)

    def when_full(self, history: History) -> Decision | None:
        """Return the first decision that helps."""
        stop: Stop | None = None
        willing = [
            manager
            for manager in sorted(self.managers, key=lambda candidate: candidate.last_resort)
            if not history.window or history.length >= manager.limit(history.window)
        ]
        for manager in willing:
            decision = manager.when_full(history)
            if isinstance(decision, Stop):
                stop = decision
            elif decision is not None and not self._opens_full(decision, history):
                return decision
        # While the limit of another manager is still ahead, what room is left is used.
        return stop if len(willing) == len(self.managers) else None

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Pass the first prompt through all managers."""
        for manager in self.managers:
            opening = manager.opens(opening, history)
        return opening

    def hear(self, text: str, history: History) -> str:
        """Pass a text through all managers."""
        for manager in self.managers:
            text = manager.hear(text, history)
        return text

    def handle(self, action: Message, history: History) -> Handled | None:
        """Return the answer of the first manager that the action is for."""
        answers = (manager.handle(action, history) for manager in self.managers)
        return next((answer for answer in answers if answer is not None), None)

    def check(self, sizes: Sizes) -> None:
        """Require what each manager requires."""
        for manager in self.managers:
            manager.check(sizes)

    def overrun(self) -> int:
        """Return the most that any manager may run past the window."""
        return max(manager.overrun() for manager in self.managers)

    def rehearse(self, action: Message, summarise: Callable[[], str], history: History) -> Message:
        """Pass an expert's action through all managers."""
        for manager in self.managers:
            action = manager.rehearse(action, summarise, history)
        return action

    async def close(self) -> None:
        """Close all managers."""
        for manager in self.managers:
            await manager.close()

    def _opens_full(self, decision: Decision, history: History) -> bool:
        if not isinstance(decision, Reopen) or not history.window:
            return False
        return history.measure(decision.messages) >= self.limit(history.window)
