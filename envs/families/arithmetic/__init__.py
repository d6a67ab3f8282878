"""The arithmetic environment: random expressions with exact answers, and a calculator tool."""

from .arithmetic_env import Arithmetic
from .expressions import Expression, evaluate, generate, split_of

__all__ = ["Arithmetic", "Expression", "evaluate", "generate", "split_of"]
