"""The programming environments: problems from known data sets, a data hub, or a generator."""

from .coding_env import Coding
from .problems import CodingProblem, CodingRows, read_row
from .tools import CodingTools

__all__ = ["Coding", "CodingProblem", "CodingRows", "CodingTools", "read_row"]
