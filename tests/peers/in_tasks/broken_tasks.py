"""A taskset of verifiers, for tests, whose reward fails."""

from collections.abc import Iterable
from typing import Any

import verifiers.v1 as vf  # pyright: ignore


class BrokenTask(vf.Task[vf.TaskData]):  # type: ignore[misc]
    @vf.reward
    async def lost(self, trace: Any) -> float:
        raise RuntimeError("the answer key is gone")


class BrokenTaskset(vf.Taskset[BrokenTask]):  # type: ignore[misc]
    def load(self) -> Iterable[BrokenTask]:
        yield BrokenTask(vf.TaskData(prompt="?"))


__all__ = ["BrokenTaskset"]
