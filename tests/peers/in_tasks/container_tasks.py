"""A taskset of verifiers, for tests, whose tasks need a container."""

from collections.abc import Iterable
from typing import Any

import verifiers.v1 as vf  # pyright: ignore


class ContainerTask(vf.Task[vf.TaskData]):  # type: ignore[misc]
    NEEDS_CONTAINER = True

    @vf.reward
    async def ran(self, trace: Any, runtime: Any) -> float:
        return 1.0


class ContainerTaskset(vf.Taskset[ContainerTask]):  # type: ignore[misc]
    def load(self) -> Iterable[ContainerTask]:
        yield ContainerTask(vf.TaskData(prompt="Write a file."))


__all__ = ["ContainerTaskset"]
