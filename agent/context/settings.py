"""The settings of context managers, and managers that work together.

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
from contextlib import AsyncExitStack
from dataclasses import dataclass

from ludus.envs import ToolSpec
from ludus.errors import ConfigError
from ludus.messages import Message
from ludus.wire.address import parse_served

from ..trajectory import Stop
from .protocol import ContextManager, Decision, Handled, History, Reopen, Sizes
from .registry import build_context
from .summarize import LastPair


class Composed(ContextManager):
    """Several context managers, asked in the given order.

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
        """Return the managers of an episode."""
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
        """Close all managers, also where one of them cannot be closed."""
        async with AsyncExitStack() as closing:
            for manager in reversed(self.managers):
                closing.push_async_callback(manager.close)

    def _opens_full(self, decision: Decision, history: History) -> bool:
        if not isinstance(decision, Reopen) or not history.window:
            return False
        return history.measure(decision.messages) >= self.limit(history.window)


@dataclass(frozen=True)
class ContextSettings:
    """How an episode continues after outgrowing the window.

    A manager gets the fields that its constructor names. Arguments after `?` in `manager` go to
    that manager alone.
    """

    manager: str = "none"
    """Name of a context manager, with constructor arguments as a query: keep_last_k?keep=2. Several
    are joined by +, in the order in which they are asked: clear+memory+summarize. `ludus list` has
    the names.
    """
    threshold: float | None = None
    """The share of the window from which the window counts as full. Empty means the manager's own,
    0.95 for most and 0.9 for resum; `none` uses the whole window.
    """
    keep: int | None = None
    """How many exchanges keep_last_k (4) and records (2) keep, or tool results clear (3)."""
    carry: bool | None = None
    """Whether a window opens with the newest exchange, for discard and memory (true) and resum
    (false).
    """
    max_summaries: int = 7
    """The most summaries of an episode, for summarize and resum; the most branches, for fold."""
    summary_tokens: int = 256
    """The most sampled tokens of a summary or of a memory."""
    last_pair: LastPair = "discard"
    """How summarize treats the last action and observation: discard (as in SUPO), carry or keep."""
    train_summaries: bool = True
    """Whether summaries and memories count in the loss."""
    instruction: str = ""
    """The text that asks for a summary, a memory or a state; empty means the built-in text."""
    continuation: str = ""
    """The text after the first prompt that follows a summary, containing {summary}; empty means the
    built-in text.
    """
    exclude_tools: tuple[str, ...] = ()
    """Tools whose results clear never clears."""
    max_tool_uses: int = 0
    """The most uncleared tool results before clear acts in a window that is not full; 0 waits for
    the window.
    """
    chunk_tokens: int = 5000
    """The most tokens of a chunk that memagent reads at once."""
    summariser_url: str = ""
    """Address of the server whose model writes the summaries of resum, up to and with /v1."""
    summariser_model: str = ""
    """The name of that model on its server."""
    summariser_key_env: str = ""
    """Environment variable with the bearer token of that server; empty sends none."""

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise ConfigError(f"context.threshold must be in (0, 1], got {self.threshold}")


def make_context(settings: ContextSettings) -> ContextManager:
    """Return the context manager that `settings` describe.

    Raises:
        UnknownContext: no manager has that name.
        ConfigError: the settings cannot work.
    """
    # What was chosen, or has a default for all managers.
    values = {name: value for name, value in vars(settings).items() if name != "manager"}
    shared = {name: value for name, value in values.items() if value not in (None, "")}
    managers: list[ContextManager] = []
    for part in settings.manager.split("+"):
        name, options = parse_served(part.strip())
        managers.append(build_context(name, options, shared))
    return managers[0] if len(managers) == 1 else Composed(managers)
