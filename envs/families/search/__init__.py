"""The search environment: multi-hop questions over a corpus, and Search-R1's retriever protocol."""

from .answers import exact_match, f1, normalize
from .bm25 import Bm25Index, corpus_index, fictional_index
from .documents import Document, Hit, load_corpus
from .noise import noise_at
from .protocol import Retriever, RetrieveReply, RetrieveRequest
from .questions import QuestionShape, SearchQuestion
from .retrievers import LocalRetriever, RemoteRetriever
from .search_env import Search
from .service import RetrieverService
from .settings import Source, Style

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
