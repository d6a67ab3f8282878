"""Mathematics: is the final answer of a response the gold answer?"""

from .conventions import Conventions, conventions
from .extraction import THINKING, Extraction, extract
from .scoring import MathsVerifier, equivalent, verify

__all__ = [
    "THINKING",
    "Conventions",
    "Extraction",
    "MathsVerifier",
    "conventions",
    "equivalent",
    "extract",
    "verify",
]
