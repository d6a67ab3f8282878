"""Opens the stream of rollouts of a run from the run's settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ludus.agent import Episode

from ..rollout.collect import Drawing, Group
from ..rollout.stages import Stages
from ..setup import Parts
from .accounts import FILE, Accounts
from .plan import StreamPlan
from .stream import RolloutStream

MAX_REFILLS = 4
"""Largest number of batches by which a recipe with `sampling.refill` may replace what its filter
drops in a step.
"""


def open_stream(
    parts: Parts, *, stages: Stages, done: Callable[[Episode], None] | None
) -> RolloutStream:
    """Open the stream of a run, where its checkpoint has left it.

    Args:
        parts: the parts of the run.
        stages: is told where each rollout stands.
        done: called with each finished episode.
    """
    config, collector, updater = parts.config, parts.collector, parts.updater
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
        partial(collector.play, drawing=Drawing(group_size=rollout.group_size, seed=config.seed)),
        parts.tasks,
        plan,
        Accounts(parts.folder.lines(FILE), rollout.group_size),
        version=parts.first_step,
        passes=passes if updater.algorithm.recipe.sampling.refill else None,
        stages=stages,
        done=done,
    )
    if parts.stream_state is not None:
        stream.restore(parts.stream_state)
    return stream
