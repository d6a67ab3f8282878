"""A deterministic stand-in for a judge's server, for tests and for users' CI."""

from .answers import MockMode
from .server import MockJudge

__all__ = ["MockJudge", "MockMode"]
