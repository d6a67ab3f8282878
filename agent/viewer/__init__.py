"""Runs and episodes as pages: live from a server, or as a file that needs no network."""

from .page import PageHead, page_of, write_report
from .run import RunReader, find_runs
from .tokens import Detokenizer, load_detokenizer

__all__ = [
    "Detokenizer",
    "PageHead",
    "RunReader",
    "find_runs",
    "load_detokenizer",
    "page_of",
    "write_report",
]
