"""The state of the rollout stream: everything that a checkpoint keeps so that no rollout is lost,
doubled, or trained because it was short.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ludus.agent import Episode

from ..rollout.collect import Cut, Group
from ..rollout.issues import Ticket


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


@dataclass
class GroupInFlight:
    """A group in flight."""

    ticket: Ticket
    cut: Cut
    left: int
    """Number of rollouts that have not finished."""
    task: asyncio.Task[None] | None = None


@dataclass
class Shelf:
    """The groups that are outstanding, by ordinal."""

    playing: dict[int, GroupInFlight] = field(default_factory=dict[int, GroupInFlight])
    waiting: dict[int, Group] = field(default_factory=dict[int, Group])
    dropped: dict[int, Group] = field(default_factory=dict[int, Group])
    """Dropped by the recipe's filter, and replaced; their rewards count in the next step."""
    training: dict[int, Group] = field(default_factory=dict[int, Group])
    """Handed out by `batch`, and not settled."""
    reported: dict[int, Group] = field(default_factory=dict[int, Group])
    """Handed out by `batch` although the filter has dropped them, and not settled."""
    flying: int = 0
    """Number of rollouts in flight."""
    issued_at: Counter[int] = field(default_factory=Counter[int])
    """Number of groups in flight by the version at which they were issued."""
