"""Loads and splits the programming problems of a file or hub, once per process."""

from __future__ import annotations

import logging
from functools import lru_cache

import msgspec

from ludus.errors import ConfigError

from ...rows import changed_at, rows_of
from ...splits import ProblemSet, check_shares
from .problems import CodingProblem, UnusableCodingRow, read_row

logger = logging.getLogger(__name__)


class RowReading(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are read; the fields are the arguments of `read_row`."""

    shown_tests: int = 1
    compare: str = ""


DEFAULT_READING = RowReading()


def load(source: str, reading: RowReading = DEFAULT_READING) -> list[CodingProblem]:
    """Load the problems of a source; a repeated id is loaded once.

    Args:
        source: a path that ends in .jsonl or .jsonl.gz, or a hub's `owner/name[/config][@split]`
            (split `train` if none is named).
        reading: how the rows are read.

    Raises:
        ConfigError: no such file or data set, a line that is not JSON, or no usable row.
        MissingExtra: a hub is named, and the package `datasets` is not installed.
    """
    found: dict[str, CodingProblem] = {}
    repeated, unusable, reason = 0, 0, "it is empty"
    for row in rows_of(source):
        try:
            problem = read_row(row, shown_tests=reading.shown_tests, compare=reading.compare)
        except UnusableCodingRow as error:
            unusable, reason = unusable + 1, str(error)
            continue
        repeated += problem.id in found
        found.setdefault(problem.id, problem)
    if not found:
        raise ConfigError(f"no problem in {source!r} can be used: {reason}")
    if unusable or repeated:
        logger.warning(
            "%s: %d problems; left out %d rows that cannot be used (%s), %d repeated",
            source, len(found), unusable, reason, repeated,
        )  # fmt: skip
    return list(found.values())


def load_split(
    source: str,
    test_source: str,
    *,
    seed: int,
    validation: float,
    test: float,
    reading: RowReading = DEFAULT_READING,
) -> ProblemSet[CodingProblem]:
    """Load and split problems, once for all environments of a process that ask for the same.

    Raises:
        ConfigError: the shares are out of range, or `load` refuses a source.
    """
    check_shares(validation, test)
    changed = (changed_at(source), changed_at(test_source))
    return _load_split(source, test_source, seed, validation, test, reading, changed)


@lru_cache(maxsize=8)
def _load_split(
    source: str,
    test_source: str,
    seed: int,
    validation: float,
    test: float,
    reading: RowReading,
    changed: tuple[int, int],
) -> ProblemSet[CodingProblem]:
    """Load and split; `changed` is part of the cache key, so that an edited file is read again."""
    problems = load(source, reading)
    tests = load(test_source, reading) if test_source else []
    return ProblemSet(problems, tests, seed=seed, validation=validation, test=test)
