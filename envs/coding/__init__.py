"""Programming: from files of known data sets, from a data hub, or from a generator of its own."""

from .env import Coding
from .problems import Problem, read_row
from .sources import load
from .tools import CodingTools

__all__ = ["Coding", "CodingTools", "Problem", "load", "read_row"]
