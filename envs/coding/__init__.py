"""Programming: from files of known data sets, from a data hub, or from a generator of its own."""

from .env import Coding
from .problems import Problem, read_row
from .sources import load

__all__ = ["Coding", "Problem", "load", "read_row"]
