"""The search environment: multi-hop questions over a corpus, and Search-R1's retriever protocol."""

from .documents import Document, Hit, load_corpus, noise_at
from .protocol import Retriever, RetrieveReply, RetrieveRequest
from .questions import QuestionShape, SearchQuestion, exact_match, f1, normalize
from .retrievers import (
    Bm25Index,
    LocalRetriever,
    RemoteRetriever,
    RetrieverService,
    corpus_index,
    fictional_index,
)
from .search_env import Search
from .sources import Source, Style

__all__ = [
    "Bm25Index",
    "Document",
    "Hit",
    "LocalRetriever",
    "QuestionShape",
    "RemoteRetriever",
    "RetrieveReply",
    "RetrieveRequest",
    "Retriever",
    "RetrieverService",
    "Search",
    "SearchQuestion",
    "Source",
    "Style",
    "corpus_index",
    "exact_match",
    "f1",
    "fictional_index",
    "load_corpus",
    "noise_at",
    "normalize",
]
