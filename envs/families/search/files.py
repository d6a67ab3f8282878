"""Reads the rows of corpora and question files, each with the position in the file.

Formats are .jsonl, .json (a list of objects), .csv and .tsv, each also with .gz, or a hub's data
set.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError

from ...rows import rows_of

ENDINGS = (".jsonl", ".json", ".csv", ".tsv")
"""The endings of readable files; each may be followed by .gz."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_CHARS = 60
_UNREADABLE = (OSError, EOFError, zlib.error)


@dataclass(frozen=True, slots=True)
class FileRow:
    """An object of a file."""

    number: int
    """The number of the row's line (.jsonl, .csv, .tsv) or item (.json, hub), from 1."""
    values: Mapping[str, Any]


def read_rows(source: str) -> Iterator[FileRow]:
    """Yield the rows of a file or of a hub's data set.

    Raises:
        ConfigError: the source cannot be read, or a row is not an object; the message says where.
    """
    path = Path(source)
    match _ending(source):
        case ".jsonl":
            return _of_lines(path)
        case ".json":
            try:
                with _open(path) as file:
                    data = file.read().removeprefix(_BYTE_ORDER_MARK)
            except _UNREADABLE as error:
                raise _cannot_read(path, error) from None
            try:
                objects = msgspec.json.decode(data, type=list[dict[str, Any]])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConfigError(
                    f"{str(path)!r} is not a JSON list of objects in UTF-8: "
                    f"{_fault_of(data) or error}; mend it there, "
                    "or name the file .jsonl if it has one object a line"
                ) from None
            return (FileRow(number, values) for number, values in enumerate(objects, 1))
        case ".csv":
            return _of_table(path, ",")
        case ".tsv":
            return _of_table(path, "\t")
        case _:
            if Path(source).exists():
                raise ConfigError(
                    f"cannot tell what {source!r} holds: its name must end in {', '.join(ENDINGS)}"
                    ", or one of them and .gz"
                )
            return (FileRow(number, values) for number, values in enumerate(rows_of(source), 1))


def place(source: str, number: int) -> str:
    """Say where a row is.

    >>> place("corpus.jsonl", 7), place("corpus.json.gz", 7), place("owner/name", 7)
    ('corpus.jsonl, line 7', 'corpus.json.gz, item 7', 'owner/name, row 7')
    """
    word = {".json": "item", "": "row"}.get(_ending(source), "line")
    return f"{source}, {word} {number}"


def text_of(row: Mapping[str, Any], fields: Iterable[str]) -> str:
    """Return the first of `fields` that holds text; empty if none does."""
    values = (row.get(field) for field in fields)
    return next((value.strip() for value in values if isinstance(value, str) and value.strip()), "")


def _ending(source: str) -> str:
    plain = source.removesuffix(".gz")
    return next((ending for ending in ENDINGS if plain.endswith(ending)), "")


def _of_lines(path: Path) -> Iterator[FileRow]:
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                bare = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                if bare.strip():
                    yield FileRow(number, _object(bare, path, number))
    except _UNREADABLE as error:
        raise _cannot_read(path, error) from None


def _object(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        beginning = line.decode(errors="replace").strip()[:_SHOWN_CHARS]
        raise ConfigError(
            f"{place(str(path), number)}: not a JSON object in UTF-8: {error}; it begins "
            f"{beginning!r}: mend or delete that line (one object a line; a list of them is .json)"
        ) from None


def _fault_of(data: bytes) -> str:
    """Say where a text stops being a JSON list of objects; empty where that cannot be told."""
    try:
        content: Any = json.loads(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return f"line {line}: {error.reason}"
    except json.JSONDecodeError as error:
        return f"line {error.lineno}: {error.msg}"
    if not isinstance(content, list):
        return f"it is one {type(content).__name__}"
    items: list[object] = content
    return next((f"item {n}: {item!r:.60}" for n, item in enumerate(items, 1)
                 if not isinstance(item, dict)), "")  # fmt: skip


def _of_table(path: Path, delimiter: str) -> Iterator[FileRow]:
    number = 1
    try:
        with _open(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
            reader = csv.DictReader(text, delimiter=delimiter)
            for values in reader:
                number = reader.line_num
                yield FileRow(number, values)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(path)!r} is not UTF-8: {error}; convert it") from None
    except csv.Error as error:
        raise ConfigError(
            f"{place(str(path), number)} is the last that can be read: {error}; write it as .jsonl"
        ) from None
    except _UNREADABLE as error:
        raise _cannot_read(path, error) from None


def _open(path: Path) -> gzip.GzipFile | io.BufferedReader:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _cannot_read(path: Path, error: Exception) -> ConfigError:
    return ConfigError(f"cannot read {str(path)!r}: {error}")
