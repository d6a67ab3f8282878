"""BM25 search over a corpus, by the library bm25s (Lù, arXiv 2407.03618).

The index uses Lucene's variant with k1 = 1.5 and b = 0.75, and lower-cased words of two letters and
more without English stop words.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ludus.errors import MissingExtra

from ...rows import changed_at
from .documents import Document, Hit, fictional_corpus, load_corpus


class Bm25Index:
    """A thread-safe index in memory; the same query always has the same result."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        try:
            library = importlib.import_module("bm25s")
        except ImportError:
            raise MissingExtra.of("search", needed_for="BM25 search") from None
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # the library sets DEBUG by itself
        self._library = library
        self._index: Any = self._library.BM25()
        words = self._words([document.contents for document in documents])
        # A corpus of stop words alone has no vocabulary, and bm25s cannot index it.
        self._is_empty = not any(words)
        if not self._is_empty:
            self._index.index(words, show_progress=False)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return, for each query, at most `topk` documents, best first.

        A document that shares no word with the query is not found. Where scores are equal, the
        order of the corpus decides.
        """
        if self._is_empty or topk < 1:
            return [[] for _ in queries]
        return [self._top_hits(words, topk) for words in self._words(queries)]

    def _top_hits(self, words: list[str], topk: int) -> list[Hit]:
        word_ids = self._index.get_tokens_ids(words)
        if not word_ids:
            return []
        scores = self._index.get_scores(word_ids)
        # The documents with the `topk` highest scores above 0; ties are in corpus order.
        positions = scores.nonzero()[0]
        if len(positions) > topk:
            values = scores[positions]
            values.partition(len(values) - topk)
            positions = positions[scores[positions] >= values[-topk]]
        order = (-scores[positions]).argsort(kind="stable")
        best: list[int] = positions[order][:topk].tolist()
        return [Hit(document=self.documents[n], score=float(scores[n])) for n in best]

    def _words(self, texts: Sequence[str]) -> list[list[str]]:
        if not texts:
            return []
        words: list[list[str]] = self._library.tokenize(
            list(texts), stopwords="en", return_ids=False, show_progress=False
        )
        return words


_building = threading.Lock()


def corpus_index(source: str) -> Bm25Index:
    """Return the index of a file's documents, built once for all environments of the process.

    Raises:
        ConfigError: `load_corpus` refuses the file.
        MissingExtra: bm25s is not installed.
    """
    with _building:
        return _corpus_index(source, changed_at(source))


def fictional_index(world: int, people: int) -> Bm25Index:
    """Return the index of a fictional world, built once for all environments of the process."""
    with _building:
        return _fictional_index(world, people)


@lru_cache(maxsize=4)
def _corpus_index(source: str, changed: int) -> Bm25Index:
    return Bm25Index(load_corpus(source))


@lru_cache(maxsize=4)
def _fictional_index(world: int, people: int) -> Bm25Index:
    return Bm25Index(fictional_corpus(world, people))
