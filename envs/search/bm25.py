"""BM25 over a corpus, by the library bm25s (Lù, arXiv 2407.03618): Lucene's variant, k1 = 1.5,
b = 0.75, lower-cased words of two letters and more, English stop words left out.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ludus.errors import MissingExtra

from ..rows import changed_at
from .documents import Document, Hit, fictional_corpus, load_corpus


class Bm25Index:
    """An index in memory. Thread-safe, and the same question always has the same answer."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        self._library = _bm25s()
        self._index: Any = self._library.BM25()
        words = self._words([one.contents for one in documents])
        # A corpus of stop words alone has no vocabulary, and bm25s cannot index it.
        self._is_empty = not any(words)
        if not self._is_empty:
            self._index.index(words, show_progress=False)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """For each query the `topk` best documents, or fewer: one that shares no word with the
        query is not found.
        """
        most = min(topk, len(self.documents))
        if self._is_empty or not queries or most < 1:
            return [[] for _ in queries]
        numbers, scores = self._index.retrieve(
            self._words(queries), k=most, show_progress=False, n_threads=0
        )
        rows = zip(numbers.tolist(), scores.tolist(), strict=True)
        return [self._hits(found, values) for found, values in rows]

    def _hits(self, numbers: list[int], scores: list[float]) -> list[Hit]:
        pairs = zip(numbers, scores, strict=True)
        return [Hit(document=self.documents[n], score=score) for n, score in pairs if score > 0]

    def _words(self, texts: Sequence[str]) -> list[list[str]]:
        words: list[list[str]] = self._library.tokenize(
            list(texts), stopwords="en", return_ids=False, show_progress=False
        )
        return words


_building = threading.Lock()


def corpus_index(source: str) -> Bm25Index:
    """The index of a file's documents, built once for all environments of the process.

    Raises:
        ConfigError: what `load_corpus` refuses.
        MissingExtra: bm25s is not installed.
    """
    with _building:
        return _corpus_index(source, changed_at(source))


def fictional_index(world: int, people: int) -> Bm25Index:
    """The index of a fictional world, built once."""
    with _building:
        return _fictional_index(world, people)


@lru_cache(maxsize=4)
def _corpus_index(source: str, changed: int) -> Bm25Index:
    return Bm25Index(load_corpus(source))


@lru_cache(maxsize=4)
def _fictional_index(world: int, people: int) -> Bm25Index:
    return Bm25Index(fictional_corpus(world, people))


def _bm25s() -> Any:
    try:
        library = importlib.import_module("bm25s")
    except ImportError:
        raise MissingExtra.of("search", needed_for="BM25 search") from None
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG by itself
    return library
