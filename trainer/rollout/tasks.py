"""Which tasks come next: the order of a seed without retired tasks, and the pool of SPO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import torch

from ludus.envs import Task
from ludus.envs.tasks import order

from ..algorithms import prioritised_sample
from .collect import Group
from .source import EnvSource
from .tracker import SuccessTracker


class Tasks(Protocol):
    """A source of tasks whose position is part of a checkpoint."""

    async def take(self, count: int) -> list[Task]:
        """Return the next `count` tasks; where that fails or is cancelled, the position stays."""
        ...

    def retire(self, tasks: Iterable[str]) -> None:
        """Stop playing the tasks with these ids."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the position for a checkpoint."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` that a checkpoint has kept."""
        ...


class TaskStream:
    """A source that takes tasks in an order fixed by the seed. The position is part of a
    checkpoint, so that a resumed run skips and repeats no task.

    Args:
        source: the source of tasks.
        split: the split to play.
        seed: seed of the order.
    """

    def __init__(self, source: EnvSource, split: str, seed: int) -> None:
        self._source = source
        self._split = split
        self._seed = seed
        self._used = 0
        self._indices: Iterator[int] | None = None
        """Yields the indices from `_used` on; None where the position has moved since."""
        self._retired: set[str] = set()

    async def take(self, count: int) -> list[Task]:
        """Return the next `count` tasks; retired tasks are skipped, unless all tasks are
        retired.
        """
        size = await self._source.size(self._split)
        indices = self._indices or islice(order(size, self._seed), self._used, None)
        self._indices = None  # a call that is cut short has read some, and the next begins afresh
        retired, taken, read = frozenset(self._retired), list[Task](), 0
        allowed = count + (4 * size if size is not None else count + len(retired))
        while len(taken) < count:
            if read == allowed:  # every task is solved: start over rather than train on nothing
                retired = frozenset[str]()
            (task,) = await self._source.tasks(self._split, [next(indices)])
            read += 1
            if task.id not in retired:
                taken.append(task)
        if read > allowed:
            self._retired.clear()
        self._used, self._indices = self._used + read, indices
        return taken

    def retire(self, tasks: Iterable[str]) -> None:
        """Stop playing the tasks with these ids."""
        self._retired.update(tasks)

    def state(self) -> dict[str, Any]:
        """Return the position for a checkpoint."""
        return {"used": self._used, "retired": sorted(self._retired)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` that a checkpoint has kept."""
        self._used, self._indices = int(state["used"]), None
        self._retired = set(state["retired"])


class TaskPool:
    """Draws tasks without replacement, uncertain tasks first; interchangeable with `TaskStream`.

    Draws, success rates and last responses are part of a checkpoint, so that a resumed run draws
    what the run would have drawn.

    Args:
        source: the source of tasks.
        split: the split to draw from.
        seed: seed of the pool of a finite split, and of the draws.
        tracker: knows the success rate of each task.
        prioritise: False draws all tasks with the same probability.
    """

    def __init__(
        self,
        source: EnvSource,
        split: str,
        seed: int,
        tracker: SuccessTracker,
        *,
        prioritise: bool = True,
    ) -> None:
        self.tracker = tracker
        self._source = source
        self._split = split
        self._seed = seed
        self._prioritise = prioritise
        self._draws = 0
        self._retired: set[str] = set()
        self._members: Sequence[Task] = ()

    async def members(self) -> Sequence[Task]:
        """Return every task of the pool."""
        if not self._members:
            size = await self._source.size(self._split)
            pool = self.tracker.settings.pool
            count = pool if size is None else min(pool, size)
            indices = list(islice(order(size, self._seed), count))
            self._members = await self._source.tasks(self._split, indices)
        return self._members

    def begin(self, groups: Sequence[Group]) -> None:
        """Start the tracker from rollouts of the pool's tasks; failed rollouts do not count."""
        for group in groups:
            verdicts = [episode.trajectories[0].verdict for episode in group.episodes]
            rewards = [verdict.reward for verdict in verdicts if verdict.reward is not None]
            self.tracker.begin(group.task.id, sum(rewards), len(rewards))

    async def take(self, count: int) -> list[Task]:
        """Draw `count` tasks.

        Tasks repeat if the pool is smaller. Retired tasks are skipped, unless all tasks are
        retired.
        """
        members = await self.members()
        if all(task.id in self._retired for task in members):
            self._retired.clear()
        drawable = [task for task in members if task.id not in self._retired]
        weights = torch.ones(len(drawable))
        if self._prioritise:
            weights = self.tracker.weights([task.id for task in drawable])
        taken: list[Task] = []
        while len(taken) < count:
            # Each draw has a generator of its own, so that a resumed run draws the same tasks.
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._draws)
            self._draws += 1
            drawn = min(count - len(taken), len(drawable))
            picks = prioritised_sample(weights, drawn, generator=generator).tolist()
            taken += [drawable[pick] for pick in picks]
        return taken

    def retire(self, tasks: Iterable[str]) -> None:
        """Stop drawing the tasks with these ids."""
        self._retired.update(tasks)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        retired = sorted(self._retired)
        return {"draws": self._draws, "retired": retired, "tracker": self.tracker.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` that a checkpoint has kept."""
        self._draws = int(state["draws"])
        self._retired = set(state["retired"])
        self.tracker.restore(state["tracker"])
