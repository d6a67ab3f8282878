"""Documents of a corpus, written the way Search-R1 writes them: a quoted title, then the text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ludus.errors import ConfigError

from ..fiction import Pages, build_world
from ..rows import changed_at
from .files import read_rows, text_of

_TITLES = ("title", "Title")
_TEXTS = ("text", "contents", "content", "passage", "Text")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One passage."""

    id: str
    contents: str
    """`"Title"`, a line break, and the text."""

    @property
    def title(self) -> str:
        """The first line, without its quotes.

        >>> document("1", "Thebes", "A town.").title
        'Thebes'
        """
        return self.contents.partition("\n")[0].strip().strip('"')

    @property
    def text(self) -> str:
        """What follows the first line."""
        return self.contents.partition("\n")[2].strip()


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was found."""

    document: Document
    score: float


def document(identity: str, title: str, text: str) -> Document:
    """A document from its parts."""
    return Document(id=identity, contents=f'"{title}"\n{text}')


def load_corpus(source: str) -> tuple[Document, ...]:
    """The documents of a file, loaded once for all who ask.

    Args:
        source: .json (a list), .jsonl, either of them .gz, .csv, or a hub's data set; rows are
            {title, text} or {id, contents}.

    Raises:
        ConfigError: it cannot be read, or holds no document.
    """
    return _load_corpus(source, changed_at(source))


@lru_cache(maxsize=4)
def _load_corpus(source: str, changed: int) -> tuple[Document, ...]:
    rows = enumerate(read_rows(source))
    found = [made for number, row in rows if (made := _read(row, number)) is not None]
    if not found:
        raise ConfigError(
            f"no document in {source!r}: rows need 'title' and 'text', or 'id' and 'contents'"
        )
    return tuple(found)


def _read(row: Mapping[str, Any], number: int) -> Document | None:
    text = text_of(row, _TEXTS)
    if not text:
        return None
    identity = str(row.get("id", number))
    title = text_of(row, _TITLES)
    return document(identity, title, text) if title else Document(id=identity, contents=text)


@lru_cache(maxsize=4)
def fictional_corpus(world: int, people: int) -> tuple[Document, ...]:
    """The pages of a fictional world, all realms together."""
    made = build_world(world, people)
    pages = Pages(made)
    names: Sequence[str] = list(made.entities)
    return tuple(document(str(i), name, pages.text(name)) for i, name in enumerate(names))


def shown(hits: Iterable[Hit], most_chars: int) -> str:
    """Documents as Search-R1 shows them to a policy.

    Args:
        hits: best first.
        most_chars: of one text; the rest is cut off.

    >>> shown([Hit(document=document("7", "Thebes", "A town."), score=1.0)], 100)
    'Doc 1(Title: "Thebes") A town.'
    """
    return "\n".join(
        f'Doc {number}(Title: "{_cut(hit.document.title, most_chars)}") '
        f"{_cut(hit.document.text, most_chars)}"
        for number, hit in enumerate(hits, 1)
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} [...]"
