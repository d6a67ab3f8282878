"""Final-answer mathematics: problems from a file, from a data hub, or from a generator."""

from .maths_env import Maths
from .problems import MathsProblem, MathsRows, read_row

__all__ = ["Maths", "MathsProblem", "MathsRows", "read_row"]
