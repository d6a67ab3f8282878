"""The order of tasks: a stream in the order of a seed, without the tasks that a recipe has
retired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

from ludus.envs import Task
from ludus.envs.tasks import order

from .source import EnvSource


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
