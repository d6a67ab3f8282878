"""Tasks by stable id: a trainer holds these, while the data stays in the environment's process."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from ludus.errors import ConfigError, UnknownSplit, UnknownTask

SPLITS = ("train", "validation", "test")
TASKS_PER_SPLIT = 1 << 40
"""Seeds of generated tasks: split k owns [k * 2**40, (k + 1) * 2**40), so no task is in two splits.
"""


# Each task has a single id, so an index has no leading zeros. `TASKS_PER_SPLIT` has 13 digits: a
# longer number is refused before it is read as an integer.
_INDEX = re.compile(r"0|[1-9][0-9]{0,12}")


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task without the gold, which stays with the environment."""

    id: str
    split: str
    seed: int = 0
    """The random seed that a generated task is drawn from."""
    difficulty: float | None = None
    problem: str = ""
    """A key of the problem, equal in two tasks that pose the same problem under two ids: a
    generator may draw a problem twice, and an evaluation counts each once. Empty where the id is
    the key.
    """

    def rng(self, seed: int | None = None) -> random.Random:
        """Return a random generator that the task fixes, or the task and an episode's `seed`; the
        same in every process.
        """
        text = (
            f"{self.split}\x00{self.id}" if seed is None else f"{self.split}\x00{self.id}\x00{seed}"
        )
        return random.Random(hashlib.blake2b(text.encode(), digest_size=8).digest())


def distinct(tasks: Iterable[Task], seen: set[str] | None = None) -> Iterator[Task]:
    """Yield the first task of each problem, in order.

    Args:
        tasks: the tasks, in order.
        seen: keys of problems that are left out; the keys of the yielded tasks are added.

    >>> twice = [Task(id=name, split="test", problem="1+1") for name in ("test/0", "test/1")]
    >>> [task.id for task in distinct(twice)]
    ['test/0']
    """
    seen_ids = set() if seen is None else seen
    for task in tasks:
        key = f"problem {task.problem}" if task.problem else f"id {task.id}"
        if key not in seen_ids:
            seen_ids.add(key)
            yield task


def digest_of(*parts: str) -> str:
    """Return 16 hexadecimal digits that name the problem made of `parts`, the same in every
    process.

    >>> digest_of("1+1") == digest_of("1+1") != digest_of("1+2")
    True
    """
    return hashlib.blake2b("\x00".join(parts).encode(), digest_size=8).hexdigest()


class TaskSet(Protocol):
    """The tasks of a split, finite or endless, each with an index and a stable id."""

    split: str
    size: int | None
    """Number of tasks; None for an endless set."""

    def at(self, index: int) -> Task:
        """Return the task at `index`; raises IndexError past the end."""
        ...

    def find(self, task_id: str) -> Task:
        """Return the task with this id; raises UnknownTask for an unknown id."""
        ...


class GeneratedTasks:
    """A task for each seed, endless or the first `size` tasks.

    >>> GeneratedTasks("test").at(5).id
    'test/5'
    """

    def __init__(self, split: str, size: int | None = None) -> None:
        if split not in SPLITS:
            raise UnknownSplit.near(split, SPLITS)
        self.split = split
        self.size = size

    def at(self, index: int) -> Task:
        """Return the task at `index`."""
        limit = TASKS_PER_SPLIT if self.size is None else self.size
        if not 0 <= index < limit:
            raise IndexError(
                f"task index {index} is outside 0..{limit - 1} of split {self.split!r}"
            )
        seed = SPLITS.index(self.split) * TASKS_PER_SPLIT + index
        return Task(id=f"{self.split}/{index}", split=self.split, seed=seed)

    def find(self, task_id: str) -> Task:
        """Return the task with the id `split/index`; raises UnknownTask for any other id."""
        split, _, index = task_id.partition("/")
        if split != self.split or not _INDEX.fullmatch(index):
            raise UnknownTask(
                f"no task named {task_id!r} in split {self.split!r}; ids look like "
                f"'{self.split}/17'"
            )
        try:
            return self.at(int(index))
        except IndexError as error:
            raise UnknownTask(str(error)) from None


class ListedTasks:
    """A finite list of tasks."""

    def __init__(self, split: str, tasks: Sequence[Task]) -> None:
        self.split = split
        self.size: int | None = len(tasks)
        self._tasks = list(tasks)
        self._by_id = {task.id: task for task in self._tasks}
        if len(self._by_id) != len(self._tasks):
            (twice, count), *_ = Counter(task.id for task in self._tasks).most_common(1)
            raise ConfigError(
                f"task ids of split {split!r} must be unique, and {count} tasks have the id "
                f"{twice!r}; give each its own"
            )

    def at(self, index: int) -> Task:
        """Return the task at `index`."""
        if not self._tasks:
            raise IndexError(f"split {self.split!r} holds no task")
        if not 0 <= index < len(self._tasks):
            raise IndexError(
                f"task index {index} is outside 0..{len(self._tasks) - 1} of split {self.split!r}"
            )
        return self._tasks[index]

    def find(self, task_id: str) -> Task:
        """Return the task with this id; raises UnknownTask for an unknown id."""
        if task_id in self._by_id:
            return self._by_id[task_id]
        # The search for a near miss takes time for every id, so a long list is not searched whole.
        raise UnknownTask.near(
            task_id, list(self._by_id)[:2000], hint=f"split {self.split!r} has {self.size} tasks"
        )


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some tasks of a split, in order."""

    split: str
    size: int | None
    """How many tasks the split has; None for an endless split."""
    offset: int
    """The index of the first of `tasks`."""
    tasks: list[Task]


def page_of(tasks: TaskSet, offset: int, limit: int) -> TaskPage:
    """Return at most `limit` tasks from index `offset` on; no tasks past the end."""
    end = TASKS_PER_SPLIT if tasks.size is None else tasks.size
    page_tasks = [tasks.at(index) for index in range(offset, min(offset + limit, end))]
    return TaskPage(split=tasks.split, size=tasks.size, offset=offset, tasks=page_tasks)


def pick(tasks: TaskSet, seed: int) -> Task:
    """Return the task that `reset(seed=...)` plays where no task is named: the task at index
    `seed`, counted from the beginning again where the set ends.

    Raises:
        UnknownTask: the set has no tasks.
    """
    if tasks.size == 0:
        raise UnknownTask(f"split {tasks.split!r} has no tasks; name another split")
    return tasks.at(seed % (TASKS_PER_SPLIT if tasks.size is None else tasks.size))


def order(size: int | None, seed: int) -> Iterator[int]:
    """Yield indices of tasks for training, without end.

    A finite set is shuffled anew in each epoch. An endless set is played in order (0, 1, 2, ...).

    Args:
        size: number of tasks; None for an endless set.
        seed: the seed of the shuffles.

    Raises:
        ValueError: the set has no tasks.
    """
    if size == 0:
        raise ValueError("the set has no tasks (size 0), so there are no indices to order")
    if size is None:
        yield from range(TASKS_PER_SPLIT)
        return
    epoch = 0
    while True:
        indices = list(range(size))
        random.Random(f"{seed}/{epoch}").shuffle(indices)
        yield from indices
        epoch += 1
