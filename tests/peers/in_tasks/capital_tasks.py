"""A taskset of verifiers, for tests: two rewards with weights, and a metric."""

from collections.abc import Iterable
from typing import Any

import verifiers.v1 as vf  # pyright: ignore


class CapitalData(vf.TaskData):  # type: ignore[misc]
    answer: str = ""


def said(trace: Any) -> str:
    return str(trace.branches[-1].messages[-1].content)


class CapitalTask(vf.Task[CapitalData]):  # type: ignore[misc]
    @vf.reward(weight=2.0)
    async def exact(self, task: CapitalData, trace: Any) -> float:
        return float(said(trace).strip() == task.answer)

    @vf.reward(weight=-0.5)
    async def wordy(self, trace: Any) -> float:
        return float(len(said(trace)) > 20)

    @vf.metric
    async def length(self, trace: Any) -> float:
        return float(len(said(trace)))


class Capitals(vf.Taskset[CapitalTask]):  # type: ignore[misc]
    def load(self) -> Iterable[CapitalTask]:
        for number in range(40):
            yield CapitalTask(
                CapitalData(
                    prompt=f"The capital of land {number}?",
                    answer=f"city {number}",
                    system_prompt="Answer by a name.",
                )
            )


__all__ = ["Capitals"]
