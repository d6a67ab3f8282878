"""Episodes as a self-contained HTML page that opens from the file, without network."""

from .page import PageHead, page_of
from .tokens import Detokenizer, load_detokenizer

__all__ = ["Detokenizer", "PageHead", "load_detokenizer", "page_of"]
