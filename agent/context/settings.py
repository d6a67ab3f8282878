"""Settings of the context manager, as in a run's `[context]` section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ludus.errors import ConfigError
from ludus.wire.arguments import parse_served

from .compose import Composed
from .protocol import ContextManager
from .registry import build_context
from .summarize import LastPair


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
    shared = _fields_set(settings)
    managers: list[ContextManager] = []
    for part in settings.manager.split("+"):
        name, options = parse_served(part.strip())
        managers.append(build_context(name, options, shared))
    return managers[0] if len(managers) == 1 else Composed(managers)


def _fields_set(settings: ContextSettings) -> dict[str, Any]:
    """Return the fields that were chosen, or have a default for all managers."""
    values = {name: value for name, value in vars(settings).items() if name != "manager"}
    return {name: value for name, value in values.items() if value not in (None, "")}
