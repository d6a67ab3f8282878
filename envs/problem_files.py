"""Problems of a data set: read from files or a hub, split, and kept once per process."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import msgspec

from ludus.errors import ConfigError

from .rows import changed_at, rows_of
from .splits import Problem, ProblemSet, check_shares

P = TypeVar("P", bound=Problem)
P_co = TypeVar("P_co", bound=Problem, covariant=True)

logger = logging.getLogger(__name__)


class UnusableRow(ValueError):
    """A row that holds no complete problem; the message says what is missing."""


class RowReader(Hashable, Protocol[P_co]):
    """A reader of the rows of a family of data sets. Equal readers share their problems."""

    def read(self, row: Mapping[str, Any]) -> P_co:
        """Read a row as decoded from JSON.

        Raises:
            UnusableRow: the row holds no complete problem.
        """
        ...


class ProblemFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of an environment's problems, and how the problems are split.

    A source is a path that ends in .jsonl or .jsonl.gz, or a hub's
    `owner/name[/config][@split]` (split `train` if none is named).
    """

    source: str
    test_source: str = ""
    """Source of problems that are the whole test split; empty takes the share `test` instead."""
    seed: int = 0
    """Seed of the shuffle before the split."""
    validation: float = 0.05
    test: float = 0.1

    def load(self, reader: RowReader[P]) -> ProblemSet[P]:
        """Load and split the problems, once per process and file version.

        Raises:
            ConfigError: the shares are out of range, a source cannot be read, or it has no problem.
            MissingExtra: a hub is named, and the package `datasets` is not installed.
        """
        check_shares(self.validation, self.test)
        changed = (changed_at(self.source), changed_at(self.test_source))
        # lru_cache forgets the type of the reader's problems
        return _load_split(self, reader, changed)  # type: ignore[return-value] # pyright: ignore[reportReturnType]


@lru_cache(maxsize=16)
def _load_split(
    files: ProblemFiles, reader: RowReader[Problem], changed: tuple[int, int]
) -> ProblemSet[Problem]:
    """Load and split; `changed` is part of the cache key, so that an edited file is read again."""
    return ProblemSet(
        load_problems(files.source, reader),
        load_problems(files.test_source, reader) if files.test_source else [],
        seed=files.seed,
        validation=files.validation,
        test=files.test,
    )


def load_problems(source: str, reader: RowReader[P]) -> list[P]:
    """Load the problems of a source; a repeated problem is loaded once.

    Raises:
        ConfigError: no such file or data set, a line that is not JSON, or no usable row.
        MissingExtra: a hub is named, and the package `datasets` is not installed.
    """
    problems: dict[str, P] = {}
    repeated, unusable, reason = 0, 0, "it is empty"
    for row in rows_of(source):
        try:
            problem = reader.read(row)
        except UnusableRow as error:
            unusable, reason = unusable + 1, str(error)
            continue
        repeated += problem.id in problems
        problems.setdefault(problem.id, problem)
    if not problems:
        raise ConfigError(f"no problem in {source!r} can be used: {reason}")
    if unusable or repeated:
        logger.warning(
            "%s: %d problems; left out %d rows that cannot be used (%s), %d repeated",
            source, len(problems), unusable, reason, repeated,
        )  # fmt: skip
    return list(problems.values())
