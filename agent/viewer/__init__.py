"""Episodes as a self-contained HTML page that opens from the file, without network."""

from .page import page_of
from .tokens import Detokenizer, load_detokenizer

__all__ = ["Detokenizer", "load_detokenizer", "page_of"]
