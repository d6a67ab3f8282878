"""The numbers that a stream of rollouts follows: how much may be issued, and what is due.

A group that was issued at version b must be trained by the step that starts from version b + D. A
step takes B groups, so it is not enough to look at the groups that are due now: of all groups that
are due within k further steps, at most k B can be left to those steps. What has finished is taken
oldest first, so only groups that are still being played can be missing.

AReaL (arXiv 2505.24298) admits a rollout while

    issued and not masked  <  (eta + version + 1) B

with eta the largest staleness on average, B the groups of a step, and `version` the steps that are
done. Every step takes B of them, so the rule bounds what is outstanding: in flight, finished and
waiting, or in the update.

    outstanding  <  (eta + 1) B

The second form is used here: a step that takes fewer groups, because a recipe's filter found no
more, does not widen the bound for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from ludus.agent import Episode

from ..rollout.collect import Cut, Group
from ..rollout.issues import Ticket
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
    """The rollouts of a group, or the most of them where a sampling policy decides."""
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


def owed_groups(
    running: Mapping[int, int], *, version: int, deadline: int, groups: int
) -> tuple[int, int]:
    """Return how many groups that are still being played the next step has to wait for.

    Args:
        running: how many groups in flight were issued at each version.
        version: the version from which the next step starts.
        deadline: D, in versions.
        groups: B, the groups of a step.

    Returns:
        (count, newest): `count` of the groups in flight that were issued at version `newest` or
        earlier; (0, -1) if the step can begin.

    Two groups of version 0 are being played. With B = 1 and D = 2 the step from version 1 has to
    take one of them, since the step from version 2 can take only one:

    >>> owed_groups({0: 2}, version=1, deadline=2, groups=1)
    (1, 0)
    >>> owed_groups({0: 1, 1: 1}, version=1, deadline=2, groups=1)
    (0, -1)
    """
    unfinished, most = 0, (0, -1)
    for issued, count in sorted(running.items()):
        unfinished += count
        later = max(0, issued + deadline - version) * groups
        most = max(most, (unfinished - later, issued))
    return most if most[0] > 0 else (0, -1)


@dataclass(frozen=True, slots=True)
class IssueRule:
    """The bound on the groups that are outstanding.

    >>> IssueRule(max_staleness=1, groups=4, steps=10).room(version=0, outstanding=3)
    5
    """

    max_staleness: int
    """Eta, in versions; 0 is the synchronous trainer."""
    groups: int
    """B, the groups of a step."""
    steps: int
    """Steps of the whole run; nothing is issued that no step would train."""

    def room(self, *, version: int, outstanding: int) -> int:
        """Return how many groups may be issued now.

        Args:
            version: steps that are done.
            outstanding: groups that are in flight, waiting, or in the update.
        """
        ahead = min(self.max_staleness + 1, self.steps - version)
        return max(0, ahead * self.groups - outstanding)
