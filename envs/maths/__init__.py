"""Final-answer mathematics: from a file, from a data hub, or drawn from a generator of its own."""

from .env import Maths
from .problems import Problem, read_row
from .sources import load

__all__ = ["Maths", "Problem", "load", "read_row"]
