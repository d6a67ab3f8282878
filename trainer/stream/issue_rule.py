"""How many groups may be issued: AReaL's rule of bounded staleness.

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

from dataclasses import dataclass


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
