"""The order of tasks."""

from collections.abc import Sequence

import pytest

from ludus.envs import EnvSession, ListedTasks, Task, TaskSet, TextEnv
from ludus.envs.protocol import Reset, Step
from ludus.trainer.rollout.source import LocalSource
from ludus.trainer.rollout.tasks import TaskStream


class Five(TextEnv):
    """Five tasks."""

    def tasks(self, split: str) -> TaskSet:
        return ListedTasks(split, [Task(id=str(n), split=split) for n in range(5)])

    def reset(self, *, seed: int | None = None, options: object = None) -> Reset:
        return "", {}

    def step(self, action: str) -> Step:
        return "", 0.0, True, False, {}


def stream(seed: int = 0) -> TaskStream:
    return TaskStream(LocalSource("five-v0", lambda: EnvSession(Five())), "train", seed)


async def ids(tasks: TaskStream, count: int) -> list[str]:
    return [task.id for task in await tasks.take(count)]


async def test_each_epoch_plays_every_task_once_in_another_order() -> None:
    tasks = stream()
    first, second = await ids(tasks, 5), await ids(tasks, 5)
    assert sorted(first) == sorted(second) == ["0", "1", "2", "3", "4"]
    assert first != second


async def test_a_restored_stream_goes_on_where_it_stood() -> None:
    tasks = stream()
    await tasks.take(3)
    tasks.retire(["1"])
    again = stream()
    again.restore(tasks.state())
    assert await ids(again, 6) == await ids(tasks, 6)


async def test_retired_tasks_are_passed_over() -> None:
    tasks = stream()
    tasks.retire(["0", "3"])
    assert set(await ids(tasks, 9)) == {"1", "2", "4"}


async def test_when_every_task_is_retired_all_come_back() -> None:
    tasks = stream()
    tasks.retire("01234")
    assert len(await ids(tasks, 2)) == 2
    assert tasks.state()["retired"] == []


async def test_a_take_that_is_cut_short_moves_nothing() -> None:
    """The source fails at its third task: nobody has seen the first two, so they come again."""

    class Failing(LocalSource):
        asked = 0

        async def tasks(self, split: str, indices: Sequence[int]) -> list[Task]:
            self.asked += 1
            if self.asked == 5:
                raise ConnectionError("the server is down")
            return await super().tasks(split, indices)

    tasks = TaskStream(Failing("five-v0", lambda: EnvSession(Five())), "train", 0)
    expected = await ids(stream(), 7)
    assert await ids(tasks, 2) == expected[:2]
    with pytest.raises(ConnectionError):
        await tasks.take(5)
    assert tasks.state()["used"] == 2
    assert await ids(tasks, 5) == expected[2:]
