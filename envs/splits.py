"""Which problems of a data set are for training: fixed by a seed, whatever order the file has."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from ludus.errors import ConfigError, UnknownTask

from .tasks import SPLITS, ListedTasks, Task


class Problem(Protocol):
    """The part of a problem that a split needs."""

    @property
    def id(self) -> str:
        """The same in every file, order and split."""
        ...

    @property
    def difficulty(self) -> float | None: ...


P = TypeVar("P", bound=Problem)


class ProblemSet(Generic[P]):
    """The problems of all splits.

    Args:
        problems: the problems to shuffle and split.
        tests: problems that are the test split as they are; none of them is trained on.
        seed: the seed of the shuffle.
        validation: the share of `problems` for validation.
        test: the share for test; only without `tests`.

    Raises:
        ConfigError: shares that cannot be.
    """

    def __init__(
        self,
        problems: Sequence[P],
        tests: Sequence[P] = (),
        *,
        seed: int,
        validation: float,
        test: float,
    ) -> None:
        check_shares(validation, test)
        held_out = {problem.id for problem in tests}
        pool = sorted((p for p in problems if p.id not in held_out), key=lambda p: _key(seed, p.id))
        split_ends = [round(len(pool) * (0.0 if tests else test))]
        split_ends.append(split_ends[0] + round(len(pool) * validation))
        parts = {
            "test": sorted(tests, key=lambda p: _key(seed, p.id))
            if tests
            else pool[: split_ends[0]],
            "validation": pool[split_ends[0] : split_ends[1]],
            "train": pool[split_ends[1] :],
        }
        self._by_id = {problem.id: problem for part in parts.values() for problem in part}
        self._tasks = {split: _tasks(split, part) for split, part in parts.items()}

    def tasks(self, split: str) -> ListedTasks:
        """The tasks of a split. Raises UnknownTask."""
        if split not in self._tasks:
            raise UnknownTask.near(split, SPLITS, hint=f"splits are {', '.join(SPLITS)}")
        return self._tasks[split]

    def problem(self, task: Task) -> P:
        """The problem behind a task."""
        return self._by_id[task.id]


def check_shares(validation: float, test: float) -> None:
    """Raises ConfigError where the shares of validation and test cannot be."""
    if min(validation, test) < 0 or validation + test > 1:
        raise ConfigError(
            f"validation and test are shares of the whole, got {validation:g} and {test:g}"
        )


def _tasks(split: str, problems: Sequence[Problem]) -> ListedTasks:
    return ListedTasks(
        split, [Task(id=p.id, split=split, difficulty=p.difficulty) for p in problems]
    )


def _key(seed: int, problem_id: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{problem_id}".encode(), digest_size=8).digest()


def split_of(text: str) -> str:
    """The split a generated problem belongs to: 8 in 10 to train, 1 to validation, 1 to test.

    It goes by a digest of its text alone, so no problem is ever in two splits.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return _BY_TENTH[int.from_bytes(digest) % len(_BY_TENTH)]


_BY_TENTH = (*["train"] * 8, "validation", "test")
