"""The groups of a stream that are outstanding: in flight, waiting, being trained."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from ..rollout.collect import Group, Ticket
from ..rollout.cut import Cut


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
