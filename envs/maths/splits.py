"""Which problems are for training: fixed by a seed, whatever order the file has."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ludus.errors import ConfigError, UnknownTask

from ..tasks import SPLITS, ListedTasks, Task
from .problems import Problem
from .sources import load


class ProblemSet:
    """The problems of all splits.

    Args:
        problems: to be shuffled and split.
        tests: problems that are the test split as they are; none of them is trained on.
        seed: of the shuffle.
        validation: the share of `problems` for validation.
        test: the share for test; only without `tests`.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        tests: Sequence[Problem] = (),
        *,
        seed: int,
        validation: float,
        test: float,
    ) -> None:
        held_out = {problem.id for problem in tests}
        pool = sorted((p for p in problems if p.id not in held_out), key=lambda p: _key(seed, p.id))
        ends = [round(len(pool) * (0.0 if tests else test))]
        ends.append(ends[0] + round(len(pool) * validation))
        parts = {
            "test": sorted(tests, key=lambda p: _key(seed, p.id)) if tests else pool[: ends[0]],
            "validation": pool[ends[0] : ends[1]],
            "train": pool[ends[1] :],
        }
        self._by_id = {problem.id: problem for part in parts.values() for problem in part}
        self._tasks = {split: _tasks(split, part) for split, part in parts.items()}

    def tasks(self, split: str) -> ListedTasks:
        """The tasks of a split. Raises UnknownTask."""
        if split not in self._tasks:
            raise UnknownTask.near(split, SPLITS, hint=f"splits are {', '.join(SPLITS)}")
        return self._tasks[split]

    def problem(self, task: Task) -> Problem:
        """The problem behind a task."""
        return self._by_id[task.id]


def _tasks(split: str, problems: Sequence[Problem]) -> ListedTasks:
    return ListedTasks(
        split, [Task(id=p.id, split=split, difficulty=p.difficulty) for p in problems]
    )


def _key(seed: int, problem_id: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{problem_id}".encode(), digest_size=8).digest()


def load_split(
    source: str,
    test_source: str,
    *,
    seed: int,
    validation: float,
    test: float,
    question: str,
    answer: str,
) -> ProblemSet:
    """Load and split, once for all environments of a process that ask for the same.

    Raises:
        ConfigError: shares that cannot be, or what `load` refuses.
    """
    if min(validation, test) < 0 or validation + test > 1:
        raise ConfigError(
            f"validation and test are shares of the whole, got {validation:g} and {test:g}"
        )
    return _load_split(
        source, test_source, seed, validation, test, question, answer,
        (_changed(source), _changed(test_source)),
    )  # fmt: skip


@lru_cache(maxsize=8)
def _load_split(
    source: str,
    test_source: str,
    seed: int,
    validation: float,
    test: float,
    question: str,
    answer: str,
    changed: tuple[int, int],
) -> ProblemSet:
    """`changed` is part of the key, so that an edited file is read again."""
    problems = load(source, question=question, answer=answer)
    tests = load(test_source, question=question, answer=answer) if test_source else []
    return ProblemSet(problems, tests, seed=seed, validation=validation, test=test)


def _changed(source: str) -> int:
    path = Path(source)
    return path.stat().st_mtime_ns if source and path.is_file() else 0
