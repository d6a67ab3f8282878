"""Rows of a data set: from a JSONL file, or from a data hub."""

from __future__ import annotations

import gzip
import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError, MissingExtra

_FILE_ENDINGS = (".jsonl", ".jsonl.gz")
_HUB_ID = re.compile(
    r"(?P<name>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.-]+))?(?:@(?P<split>[\w.\[\]:%-]+))?"
)


def rows_of(source: str) -> Iterable[Mapping[str, Any]]:
    """The rows of a data set.

    Args:
        source: a path that ends in .jsonl or .jsonl.gz, or a hub's `owner/name[/config][@split]`
            (split `train` if none is named).

    Raises:
        ConfigError: no such file or data set, or a line that is not JSON.
        MissingExtra: a hub is named, and the package `datasets` is not installed.
    """
    return _file_rows(Path(source)) if source.endswith(_FILE_ENDINGS) else _hub_rows(source)


def changed_at(source: str) -> int:
    """When the file was last written, in nanoseconds; 0 for a hub's data set."""
    path = Path(source)
    return path.stat().st_mtime_ns if source and path.is_file() else 0


def _file_rows(path: Path) -> Iterable[Mapping[str, Any]]:
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(path, "rb") as file:
            lines: list[bytes] = file.read().splitlines()
    except (OSError, EOFError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}, line {number}: not a JSON object: {error}") from None
        yield row


def _hub_rows(source: str) -> Iterable[Mapping[str, Any]]:
    hub_match = _HUB_ID.fullmatch(source)
    if hub_match is None:
        raise ConfigError(
            f"{source!r} is neither a path that ends in {' or '.join(_FILE_ENDINGS)} nor a hub's "
            "'owner/name[/config][@split]'"
        )
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        raise MissingExtra.of(
            "data", needed_for=f"the hub data set {hub_match['name']!r}"
        ) from None
    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(
            hub_match["name"], hub_match["config"], split=hub_match["split"] or "train"
        )
    except Exception as error:  # each hub and cache fails in its own way
        raise ConfigError(
            f"cannot load {source!r}: {type(error).__name__}: {str(error).strip():.200}"
        ) from error
    return rows
