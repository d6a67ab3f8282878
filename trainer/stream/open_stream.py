"""Opens the stream of rollouts of a run from the run's settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ludus.agent import Episode

from ..config import TrainConfig
from ..learning.update import Updater
from ..rollout.collect import Collector, Group
from ..rollout.stages import Stages
from ..rollout.tasks import Tasks
from ..run.folder import RunFolder
from .accounts import FILE, Accounts
from .state import StreamState
from .stream import RolloutStream, StreamPlan

MAX_REFILLS = 4
"""Largest number of batches by which a recipe with `sampling.refill` may replace what its filter
drops in a step.
"""


def open_stream(
    config: TrainConfig,
    collector: Collector,
    tasks: Tasks,
    updater: Updater,
    folder: RunFolder,
    *,
    version: int,
    state: StreamState | None,
    stages: Stages,
    done: Callable[[Episode], None] | None,
) -> RolloutStream:
    """Open the stream of a run.

    Args:
        config: the settings, with the recipe's group size.
        collector: plays the groups.
        tasks: the source of tasks, restored.
        updater: knows the recipe's filter.
        folder: the run folder.
        version: number of steps that are done.
        state: of the checkpoint that the run continues from; None starts a run.
        stages: is told where each rollout stands.
        done: called with each finished episode.
    """
    rollout, overlap = config.rollout, config.overlap
    plan = StreamPlan(
        groups=rollout.tasks_per_step,
        group_size=rollout.group_size,
        steps=config.steps,
        max_staleness=overlap.max_staleness,
        deadline=overlap.deadline,
        deadline_s=overlap.deadline_s,
        late=overlap.late,
        min_group=overlap.min_group,
        concurrency=rollout.concurrency,
        refills=MAX_REFILLS,
        outage_s=overlap.outage_s,
    )

    def passes(group: Group) -> bool:
        return bool(updater.passing([group]))

    stream = RolloutStream(
        partial(collector.play, group_size=rollout.group_size, seed=config.seed),
        tasks,
        plan,
        Accounts(folder.lines(FILE), rollout.group_size),
        version=version,
        passes=passes if updater.algorithm.recipe.sampling.refill else None,
        stages=stages,
        done=done,
    )
    if state is not None:
        stream.restore(state)
    return stream
