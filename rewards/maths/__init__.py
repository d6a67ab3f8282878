"""Verification of mathematics: whether the final answer of a response equals the gold answer."""

from .conventions import Conventions, conventions
from .explain import DecisionStep, explain, render
from .extracting.candidate import Extraction
from .extracting.extraction import extract
from .golds import GoldProblem, check_golds, examples
from .scoring import MathsVerifier, equivalent, verify

__all__ = [
    "Conventions",
    "DecisionStep",
    "Extraction",
    "GoldProblem",
    "MathsVerifier",
    "check_golds",
    "conventions",
    "equivalent",
    "examples",
    "explain",
    "extract",
    "render",
    "verify",
]
