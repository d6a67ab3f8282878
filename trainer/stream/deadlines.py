"""Which groups the next step must contain, so that no rollout is trained later than its deadline.

A group that was issued at version b must be trained by the step that starts from version b + D. A
step takes B groups, so it is not enough to look at the groups that are due now: of all groups that
are due within k further steps, at most k B can be left to those steps. What has finished is taken
oldest first, so only groups that are still being played can be missing.
"""

from __future__ import annotations

from collections.abc import Mapping


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
