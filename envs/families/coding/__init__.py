"""The programming environments: problems from known data sets, a data hub, or a generator."""

from .coding_env import Coding
from .problems import CodingProblem, read_row
from .sources import load
from .tools import CodingTools

__all__ = ["Coding", "CodingProblem", "CodingTools", "load", "read_row"]
