"""Which tasks a step plays: in the order the seed gives, skipping those a recipe has retired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

from ludus.envs import Task
from ludus.envs.tasks import order

from .source import EnvSource


class Tasks(Protocol):
    """What a step asks for tasks; where it stands is part of a checkpoint."""

    async def take(self, count: int) -> list[Task]:
        """The next `count` tasks."""
        ...

    def retire(self, tasks: Iterable[str]) -> None:
        """Play these tasks no more."""
        ...

    def state(self) -> dict[str, Any]:
        """Where it stands."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        ...


class TaskStream:
    """Tasks one after another; where it stands is part of a checkpoint, so a resumed run skips and
    repeats none.

    Args:
        source: has the tasks.
        split: of them.
        seed: of the order.
    """

    def __init__(self, source: EnvSource, split: str, seed: int) -> None:
        self._source = source
        self._split = split
        self._seed = seed
        self._used = 0
        self._indices: Iterator[int] | None = None
        self._retired: set[str] = set()

    async def take(self, count: int) -> list[Task]:
        """The next `count` tasks. Retired ones are passed over, unless nothing else is left."""
        size = await self._source.size(self._split)
        taken: list[Task] = []
        allowed = count + (4 * size if size is not None else count + len(self._retired))
        for _ in range(allowed):
            if len(taken) == count:
                return taken
            task = await self._next(size)
            if task.id not in self._retired:
                taken.append(task)
        self._retired.clear()  # every task is solved: start over rather than train on nothing
        return [*taken, *[await self._next(size) for _ in range(count - len(taken))]]

    def retire(self, tasks: Iterable[str]) -> None:
        """Play these tasks no more."""
        self._retired.update(tasks)

    def state(self) -> dict[str, Any]:
        """Where the stream stands."""
        return {"used": self._used, "retired": sorted(self._retired)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self._used, self._indices = int(state["used"]), None
        self._retired = set(state["retired"])

    async def _next(self, size: int | None) -> Task:
        if self._indices is None:
            self._indices = islice(order(size, self._seed), self._used, None)
        index = next(self._indices)
        self._used += 1
        (task,) = await self._source.tasks(self._split, [index])
        return task
