"""Arithmetic no model has read before: random expressions, exact answers, a calculator."""

from .env import Arithmetic
from .expressions import Expression, evaluate, generate, split_of

__all__ = ["Arithmetic", "Expression", "evaluate", "generate", "split_of"]
