"""Where problems come from: a JSONL file, or a data set of a hub."""

from __future__ import annotations

import gzip
import importlib
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError, MissingExtra

from .problems import Problem, Unusable, read_row

logger = logging.getLogger(__name__)

_FILE_ENDINGS = (".jsonl", ".jsonl.gz")
_HUB_ID = re.compile(
    r"(?P<name>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.-]+))?(?:@(?P<split>[\w.\[\]:%-]+))?"
)


def load(source: str, *, question: str = "", answer: str = "") -> list[Problem]:
    """Load problems, each question once.

    Args:
        source: a path that ends in .jsonl or .jsonl.gz, or a hub's `owner/name[/config][@split]`
            (split `train` if none is named).
        question: the field with the question; empty recognises known layouts.
        answer: the field with the answer; likewise.

    Raises:
        ConfigError: no such file or data set, a line that is not JSON, or no usable row.
        MissingExtra: a hub is named, and the package `datasets` is not installed.
    """
    rows = _file_rows(Path(source)) if source.endswith(_FILE_ENDINGS) else _hub_rows(source)
    return _problems(rows, source, question, answer)


def _problems(
    rows: Iterable[Mapping[str, Any]], source: str, question: str, answer: str
) -> list[Problem]:
    found: dict[str, Problem] = {}
    repeated, unusable, reason = 0, 0, "it is empty"
    for row in rows:
        try:
            problem = read_row(row, question=question, answer=answer)
        except Unusable as error:
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


def _file_rows(path: Path) -> Iterable[Mapping[str, Any]]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            lines: list[bytes] = file.read().splitlines()
    except (OSError, EOFError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _decoded(line, path, number)


def _decoded(line: bytes, path: Path, number: int) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}, line {number}: not a JSON object: {error}") from None


def _hub_rows(source: str) -> Iterable[Mapping[str, Any]]:
    named = _HUB_ID.fullmatch(source)
    if named is None:
        raise ConfigError(
            f"{source!r} is neither a path that ends in {' or '.join(_FILE_ENDINGS)} nor a hub's "
            "'owner/name[/config][@split]'"
        )
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        raise MissingExtra.of("data", needed_for=f"the hub data set {named['name']!r}") from None
    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(
            named["name"], named["config"], split=named["split"] or "train"
        )
    except Exception as error:  # each hub and cache fails in its own way
        raise ConfigError(
            f"cannot load {source!r}: {type(error).__name__}: {str(error).strip():.200}"
        ) from error
    return rows
