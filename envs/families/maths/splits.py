"""Loads and splits the problems of a file or hub, once per process."""

from __future__ import annotations

from functools import lru_cache

from ...rows import changed_at
from ...splits import ProblemSet, check_shares
from .problems import MathsProblem
from .sources import load


def load_split(
    source: str,
    test_source: str,
    *,
    seed: int,
    validation: float,
    test: float,
    question: str,
    answer: str,
) -> ProblemSet[MathsProblem]:
    """Load and split problems, once for all environments of a process that ask for the same.

    Raises:
        ConfigError: the shares are out of range, or `load` refuses a source.
    """
    check_shares(validation, test)
    return _load_split(
        source, test_source, seed, validation, test, question, answer,
        (changed_at(source), changed_at(test_source)),
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
) -> ProblemSet[MathsProblem]:
    """Load and split; `changed` is part of the cache key, so that an edited file is read again."""
    problems = load(source, question=question, answer=answer)
    tests = load(test_source, question=question, answer=answer) if test_source else []
    return ProblemSet(problems, tests, seed=seed, validation=validation, test=test)
