"""Loads problems from a JSONL file or from a data set of a hub."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ludus.errors import ConfigError

from ...rows import rows_of
from .problems import MathsProblem, UnusableMathsRow, read_row

logger = logging.getLogger(__name__)


def load(source: str, *, question: str = "", answer: str = "") -> list[MathsProblem]:
    """Load the problems of a source; a repeated question is loaded once.

    Args:
        source: a path that ends in .jsonl or .jsonl.gz, or a hub's `owner/name[/config][@split]`
            (split `train` if none is named).
        question: the field with the question; empty recognises known layouts.
        answer: the field with the answer; empty recognises known layouts.

    Raises:
        ConfigError: no such file or data set, a line that is not JSON, or no usable row.
        MissingExtra: a hub is named, and the package `datasets` is not installed.
    """
    return _problems(rows_of(source), source, question, answer)


def _problems(
    rows: Iterable[Mapping[str, Any]], source: str, question: str, answer: str
) -> list[MathsProblem]:
    found: dict[str, MathsProblem] = {}
    repeated, unusable, reason = 0, 0, "it is empty"
    for row in rows:
        try:
            problem = read_row(row, question=question, answer=answer)
        except UnusableMathsRow as error:
            unusable, reason = unusable + 1, str(error)
            continue
        repeated += problem.id in found
        found.setdefault(problem.id, problem)
    if not found:
        raise ConfigError(f"no problem in {source!r} can be used: {reason}")
    if unusable or repeated:
        logger.warning(
            "%s: %d problems; left out %d rows without a question or final answer, %d repeated",
            source, len(found), unusable, repeated,
        )  # fmt: skip
    return list(found.values())
