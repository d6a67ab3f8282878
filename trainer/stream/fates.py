"""The fate of each rollout: trained, or masked with a reason."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ludus.agent import Episode
from ludus.agent.trajectory import FAILURES

from ..learning.experience import CUT
from ..recipes import Recipe
from ..rollout.collect import Group
from .accounts import RolloutRecord
from .staleness import versions_of

LATE = "late"
"""Cut off at the deadline, or in a group that was dropped for it."""
SMALL_GROUP = "small_group"
"""Finished in time, in a group too small to go on."""
FILTER = "filter"
"""In a group that the recipe's filter dropped."""
FAILED = "failed"
"""Without a reward; the stop or the verdict's status follows after a colon."""
EXCLUDED, OVERLONG, EMPTY, REFUSED = "excluded", "overlong", "empty", "refused"
"""Excluded from the loss by environment or scorer; left out by the recipe for its length; without a
trained token; in an update that was refused.
"""

FateOf = Callable[[Group, Episode], str]


def fates_of_step(recipe: Recipe, *, passing: Collection[int], refused: Collection[int]) -> FateOf:
    """Return the function that gives the reason for which a rollout of a step was masked, empty if
    the rollout was trained.

    Args:
        recipe: the recipe of the run.
        passing: the ordinals of the groups that pass the recipe's filter.
        refused: the ordinals of the rollouts whose update was refused.
    """

    def fate_of(group: Group, episode: Episode) -> str:
        first = episode.trajectories[0]
        if not first.verdict.ok:
            return f"{FAILED}: {first.stop if first.stop in FAILURES else first.verdict.status}"
        if group.ordinal not in passing:
            return FILTER
        if all(
            trajectory.exclude_from_loss or trajectory.exclude_from_baseline
            for trajectory in episode.trajectories
        ):
            return EXCLUDED
        if first.stop in CUT and not recipe.algorithm.overlong.in_loss:
            return OVERLONG
        turns = [turn for trajectory in episode.trajectories for turn in trajectory.turns]
        if not any(turn.out_ids for turn in turns):
            return EMPTY
        return REFUSED if episode.ordinal in refused else ""

    return fate_of


def records_of(group: Group, group_size: int, step: int, fate_of: FateOf) -> list[RolloutRecord]:
    """Return the records of a group's rollouts.

    Args:
        group: a group that has finished.
        group_size: number of rollouts that were issued.
        step: the step that the records are for.
        fate_of: the reason for which a finished rollout was masked; empty if trained.
    """
    first, records = group.ordinal * group_size, list[RolloutRecord]()
    for episode in group.episodes:
        reason, versions = fate_of(group, episode), versions_of(episode)
        records.append(
            RolloutRecord(
                ordinal=first + episode.index,
                group=group.ordinal,
                task=group.task.id,
                fate="masked" if reason else "trained",
                reason=reason,
                step=step,
                issued=group.version,
                oldest=min(versions, default=None),
                newest=max(versions, default=None),
                tokens=sum(trajectory.sampled_tokens for trajectory in episode.trajectories),
                seconds=episode.wall_s,
            )
        )
    records += [
        RolloutRecord(
            ordinal=first + index,
            group=group.ordinal,
            task=group.task.id,
            fate="masked",
            reason=LATE,
            step=step,
            issued=group.version,
            seconds=seconds,
        )
        for index, seconds in group.late.items()
    ]
    return records
