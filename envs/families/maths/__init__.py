"""Final-answer mathematics: problems from a file, from a data hub, or from a generator."""

from .maths_env import Maths
from .problems import MathsProblem, read_row
from .sources import load

__all__ = ["Maths", "MathsProblem", "load", "read_row"]
