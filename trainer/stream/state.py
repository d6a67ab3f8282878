"""The state of the rollout stream: everything that a checkpoint keeps so that no rollout is lost,
doubled, or trained because it was short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ludus.agent import Episode

from ..rollout.collect import Group, Ticket


class FinishedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group that has finished and was not trained yet."""

    ticket: Ticket
    episodes: list[Episode]
    retries: int = 0
    late: dict[int, float] = {}
    dropped: bool = False
    """Whether the recipe's filter has dropped the group; its rewards still count in the statistics
    of the next step.
    """

    @staticmethod
    def of(group: Group, *, dropped: bool = False) -> FinishedGroup:
        """Return the record of a group."""
        ticket = Ticket(ordinal=group.ordinal, task=group.task, version=group.version)
        return FinishedGroup(
            ticket=ticket,
            episodes=group.episodes,
            retries=group.retries,
            late=group.late,
            dropped=dropped,
        )

    def group(self) -> Group:
        """Return the group."""
        ticket = self.ticket
        return Group(
            ticket.task, self.episodes, self.retries, ticket.ordinal, ticket.version, self.late
        )


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a `RolloutStream` between two moments in which anything changes."""

    frontier: int = 0
    """The ordinal of the group that is issued next."""
    tasks: dict[str, Any] = {}
    """The state of the task source at the frontier."""
    unfinished: list[Ticket] = []
    """The groups that were in flight; they are played again from the same seeds."""
    finished: list[FinishedGroup] = []
    """The groups that had finished and were not trained."""
    trained: int = 0
    """Number of rollouts that were trained."""
    masked: dict[str, int] = {}
    """Number of rollouts that were masked, by reason."""

    def to_plain(self) -> dict[str, Any]:
        """Return the state in lists, mappings, numbers, texts and bytes."""
        plain: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes,))
        return plain

    @staticmethod
    def of_plain(plain: Mapping[str, Any]) -> StreamState:
        """Return the state that `to_plain` has given."""
        return msgspec.convert(dict(plain), StreamState)
