"""The programming environments: problems from known data sets, a data hub, or a generator."""

from .env import Coding
from .problems import Problem, read_row
from .sources import load
from .tools import CodingTools

__all__ = ["Coding", "CodingTools", "Problem", "load", "read_row"]
