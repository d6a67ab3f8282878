"""Rows of corpora and question files: .json (a list), .csv, and what `rows_of` reads."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError

from ..rows import rows_of

_OWN_ENDINGS = (".json", ".json.gz", ".csv")


def read_rows(source: str) -> Iterable[Mapping[str, Any]]:
    """The rows of a file or of a hub's data set.

    Raises:
        ConfigError: it cannot be read, or is no list of objects.
    """
    if not source.endswith(_OWN_ENDINGS):
        return rows_of(source)
    path = Path(source)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {source!r}: {error}") from None
    return csv.DictReader(text.splitlines()) if path.suffix == ".csv" else _objects(text, source)


def _objects(text: str, source: str) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(text, type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{source!r} is not a JSON list of objects: {error}; one object a line is .jsonl"
        ) from None


def text_of(row: Mapping[str, Any], fields: Iterable[str]) -> str:
    """The first of `fields` that holds text; empty if none does."""
    found = (row.get(field) for field in fields)
    return next((one.strip() for one in found if isinstance(one, str) and one.strip()), "")
