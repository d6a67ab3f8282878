"""The documents of a corpus, in Search-R1's format: a quoted title, a line break, and the text."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ludus.errors import ConfigError

from ...rows import changed_at
from ..fiction import Pages, build_world
from .files import place, read_rows, text_of

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
    _report_left_out(source, len(documents), left_out)
    return tuple(documents)


def _report_left_out(source: str, count: int, left_out: list[int]) -> None:
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
