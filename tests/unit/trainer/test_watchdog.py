"""The watchdog of a run, under a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ludus.trainer.rollout.stages import Stages
from ludus.trainer.stream.virtual_time import VirtualTimeLoop
from ludus.trainer.stream.watchdog import RunStalled, Watchdog


def virtually(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def test_the_watchdog_says_who_waits_for_whom_and_ends_the_run_at_its_limit() -> None:
    async def main() -> tuple[list[str], str]:
        told: list[str] = []
        stages = Stages(asyncio.get_running_loop().time)
        stages.enter(7, 1, "generation")
        stages.enter(7, 2, "generation")
        stages.enter(9, 0, "the environment")
        dog = Watchdog(stages, after_s=10, limit_s=100, tell=told.append)

        async def work() -> None:
            await asyncio.sleep(8)
            stages.move()  # within the time: nothing is said
            await asyncio.sleep(1e6)

        with pytest.raises(RunStalled) as raised:
            await dog.guard(work())
        return told, str(raised.value)

    told, ended = virtually(main())
    expected = "generation: 2 rollouts of group 7; the environment: 1 rollout of group 9"
    assert all(expected in one for one in told)
    assert [one.split(" s.")[0] for one in told] == [
        "nothing has moved for " + seconds for seconds in ("12", "22", "42", "82")
    ]
    assert "The run ends (overlap.stall_limit_s)" in ended


def test_stages_of_the_run_itself_are_told_apart() -> None:
    stages = Stages()
    stages.enter(7, 0, "generation")
    with stages.during("the update"):
        stages.leave(7)
        with stages.during("the evaluation"):
            assert stages.told() == "the update: the run itself; the evaluation: the run itself"
        assert stages.told() == "the update: the run itself"


def test_work_that_moves_is_left_alone() -> None:
    async def main() -> tuple[str, list[str]]:
        told: list[str] = []
        stages = Stages(asyncio.get_running_loop().time)

        async def work() -> str:
            for _ in range(100):
                await asyncio.sleep(5)
                stages.move()
            return "done"

        dog = Watchdog(stages, after_s=10, limit_s=20, tell=told.append)
        return await dog.guard(work()), told

    assert virtually(main()) == ("done", [])


def test_an_engine_that_goes_on_sampling_is_no_stall_and_one_that_stops_is() -> None:
    async def main() -> tuple[float, list[str], str]:
        told: list[str] = []
        clock = asyncio.get_running_loop().time
        stages, sampled = Stages(clock), 0
        stages.enter(0, 0, "generation")

        async def work() -> None:
            nonlocal sampled
            for _ in range(100):  # 500 s in which no answer ends
                await asyncio.sleep(5)
                sampled += 1
            assert told == []
            await asyncio.sleep(1e6)

        dog = Watchdog(stages, after_s=10, limit_s=20, tell=told.append, sampled=lambda: sampled)
        with pytest.raises(RunStalled) as raised:
            await dog.guard(work())
        return clock(), told, str(raised.value)

    ended_s, told, error = virtually(main())
    assert 515 <= ended_s <= 530
    assert len(told) == 1
    assert "generation: 1 rollout of group 0" in error
