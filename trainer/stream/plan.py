"""The numbers that a stream of rollouts follows, and what it asks of who plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from ludus.agent import Episode

from ..rollout.collect import Group, Ticket
from ..rollout.cut import Cut
from ..rollout.stages import Stages

Late = Literal["wait", "mask", "drop"]


class Play(Protocol):
    """Plays the group of a ticket; see `Collector.play`."""

    async def __call__(
        self, ticket: Ticket, *, done: Callable[[Episode], None], cut: Cut, stages: Stages
    ) -> Group:
        """Return the group with the rollouts that have finished."""
        ...


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The numbers that the stream follows."""

    groups: int
    """B, the groups of a step."""
    group_size: int
    steps: int
    """Steps of the whole run."""
    max_staleness: int = 0
    """Eta, in versions; see `IssueRule`."""
    deadline: int = 0
    """D: a group is trained at most this number of versions after its issue; 0 sets no deadline."""
    deadline_s: float = 0.0
    """Seconds from the issue of a group to the end of its late rollouts; 0 sets no deadline."""
    late: Late = "wait"
    """What happens to rollouts that are not finished at the deadline: the learner waits; they are
    masked and their group goes on without them; or the whole group is dropped.
    """
    min_group: int = 1
    """The smallest number of finished rollouts with which a group goes on."""
    concurrency: int = 256
    """Number of rollouts from which no further group is issued, where groups are played ahead."""
    refills: int = 4
    """How many times B groups may replace groups that the recipe's filter drops in a step."""
    outage_s: float = 60.0
    """Seconds to wait for servers that cannot be reached."""
