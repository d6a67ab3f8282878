"""How old the trained tokens are, in versions of the weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ludus.agent import Episode

from ..rollout.collect import Group

LAST = 4
"""Ages from here on are counted together."""


def staleness_numbers(groups: Sequence[Group], version: int) -> dict[str, float]:
    """Return the ages of the sampled tokens as `staleness/*`: the shares of the tokens of age 0, 1,
    2, 3 and at least 4 versions, the mean and the largest age, and the ages of the oldest and the
    newest token of a rollout on average.

    Args:
        groups: the groups of a step.
        version: the version of the weights that learn from the groups.
    """
    ages: Counter[int] = Counter()
    oldest: list[int] = []
    newest: list[int] = []
    for group in groups:
        for episode in group.episodes:
            versions = versions_of(episode)
            if versions:
                ages.update({version - sampled: count for sampled, count in versions.items()})
                oldest.append(version - min(versions))
                newest.append(version - max(versions))
    tokens = ages.total()
    if not tokens:
        return {}
    shares = {str(age): ages[age] / tokens for age in range(LAST)}
    shares[f"{LAST}_or_more"] = sum(n for age, n in ages.items() if age >= LAST) / tokens
    return {
        **{f"staleness/share_{age}": share for age, share in shares.items()},
        "staleness/mean": sum(age * count for age, count in ages.items()) / tokens,
        "staleness/max": float(max(ages)),
        "staleness/oldest": sum(oldest) / len(oldest),
        "staleness/newest": sum(newest) / len(newest),
    }


def versions_of(episode: Episode) -> Counter[int]:
    """Return how many tokens of an episode each version of the weights has sampled."""
    versions: Counter[int] = Counter()
    for trajectory in episode.trajectories:
        for turn in trajectory.turns:
            versions.update(turn.versions)
    return versions
