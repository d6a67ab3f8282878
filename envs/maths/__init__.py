"""Final-answer mathematics: problems from a file, from a data hub, or from a generator."""

from .env import Maths
from .problems import Problem, read_row
from .sources import load

__all__ = ["Maths", "Problem", "load", "read_row"]
