"""The documents of a corpus, in Search-R1's format: a quoted title, a line break, and the text.

Formats are .jsonl, .json (a list of objects), .csv and .tsv, each also with .gz, or a hub's data
set.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError

from ...problem_files import changed_at, rows_of
from ..fiction import Pages, build_world

logger = logging.getLogger(__name__)
_IDS = ("id", "_id", "docid")
_TITLES = ("title", "Title")
_TEXTS = ("text", "contents", "content", "passage", "Text")
_WANTED = "rows need 'title' and 'text', or 'id' and 'contents'"


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A passage of the corpus."""

    id: str
    contents: str
    """The `"Title"`, a line break, and the text."""

    @property
    def title(self) -> str:
        """The first line, without the surrounding quotes.

        >>> document("1", '"Heroes" (album)', "By David Bowie.").title
        '"Heroes" (album)'
        """
        line = self.contents.partition("\n")[0].strip()
        quoted = len(line) > 1 and line.startswith('"') and line.endswith('"')
        return line[1:-1] if quoted else line

    @property
    def text(self) -> str:
        """Everything after the first line."""
        return self.contents.partition("\n")[2].strip()


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A document that a search has found, with the score."""

    document: Document
    score: float


def document(identity: str, title: str, text: str) -> Document:
    """Make a document from title and text; line breaks in the title become spaces."""
    return Document(id=identity, contents=f'"{" ".join(title.split())}"\n{text}')


def load_corpus(source: str) -> tuple[Document, ...]:
    """Load the documents of a file, once for all callers in the process.

    Args:
        source: .jsonl, .json (a list), .csv or .tsv, each also .gz, or a hub's data set; rows are
            {title, text} or {id, contents}.

    Raises:
        ConfigError: the source cannot be read, holds no document, or has two documents with the
            same id.
    """
    return _load_corpus(source, changed_at(source))


@lru_cache(maxsize=4)
def _load_corpus(source: str, changed: int) -> tuple[Document, ...]:
    documents: list[Document] = []
    lines: dict[str, int] = {}
    left_out: list[int] = []
    for position, row in enumerate(read_rows(source)):
        new_document = _read(row.values, position)
        if new_document is None:
            left_out.append(row.number)
        elif new_document.id in lines:
            first = place(source, lines[new_document.id])
            raise ConfigError(
                f"{place(source, row.number)}: the id {new_document.id!r} is that of {first} too; "
                "give each passage its own, or leave all ids out and they are numbered"
            )
        else:
            lines[new_document.id] = row.number
            documents.append(new_document)
    count = len(documents)
    if not count and not left_out:
        raise ConfigError(f"no document in {source!r}: it has no rows; {_WANTED}")
    if not count:
        raise ConfigError(
            f"no document in {source!r}: {place(source, left_out[0])} has no text under a name "
            f"that is known; {_WANTED}"
        )
    if left_out:
        logger.warning(
            "%s: %d documents; left out %d rows without text, the first at %s",
            source, count, len(left_out), place(source, left_out[0]),
        )  # fmt: skip
    return tuple(documents)


def _read(row: Mapping[str, Any], position: int) -> Document | None:
    text = text_of(row, _TEXTS)
    if not text:
        return None
    ids = (row.get(name) for name in _IDS)
    identity = next((str(given_id) for given_id in ids if given_id is not None), str(position))
    title = text_of(row, _TITLES)
    has_title = not title or text.startswith(f'"{title}"\n')
    return Document(id=identity, contents=text) if has_title else document(identity, title, text)


@lru_cache(maxsize=4)
def fictional_corpus(world: int, people: int) -> tuple[Document, ...]:
    """Return the pages of a fictional world, all realms together."""
    world_drawn = build_world(world, people)
    pages = Pages(world_drawn)
    names: Sequence[str] = list(world_drawn.entities)
    return tuple(document(str(i), name, pages.text(name)) for i, name in enumerate(names))


def shown(hits: Iterable[Hit], max_chars: int) -> str:
    """Format documents as Search-R1 shows search results to a policy.

    Args:
        hits: the documents, best first.
        max_chars: the most characters of a title or a text; the rest is cut off.

    >>> shown([Hit(document=document("7", "Thebes", "A town."), score=1.0)], 100)
    'Doc 1(Title: "Thebes") A town.'
    """
    return "\n".join(
        f'Doc {number}(Title: "{_shorten(hit.document.title, max_chars)}") '
        f"{_shorten(hit.document.text, max_chars)}"
        for number, hit in enumerate(hits, 1)
    )


def _shorten(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]} [...]"


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


def noise_at(
    step: int, steps: int, *, start: float = 0.0, end: float = 0.5, base: float = 4.0
) -> float:
    """Return the noise of ZeroSearch's curriculum (arXiv 2505.04588, section 3.4) at a step.

    p = start + (base^(step/steps) - 1) / (base - 1) * (end - start), with base 4, for the reset
    option `noise`. Start and end are chosen for each model; the commands that the authors publish
    go from 0.25 to 0.5.

    >>> noise_at(50, 100)  # (4^0.5 - 1) / 3 * 0.5 = 1/6
    0.16666666666666666

    Args:
        step: the step, from 0 to `steps`; beyond, the value stays at `end`.
        steps: the steps of the whole training.
        start: the probability at step 0.
        end: the probability at step `steps`.
        base: the base of the exponential; the higher, the later the noise rises.

    Raises:
        ConfigError: `steps` is below 1, or `base` is not above 1.
    """
    if steps < 1 or base <= 1:
        raise ConfigError(f"need steps >= 1 and base > 1, got steps={steps}, base={base:g}")
    share = min(max(step / steps, 0.0), 1.0)
    return start + (math.pow(base, share) - 1) / (base - 1) * (end - start)
