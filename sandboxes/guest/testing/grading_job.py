"""The job that the driver gives to the process of the tests."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple


class GradingJob(NamedTuple):
    """The job of a test runner, as the driver sends it in the options of a request."""

    tests: tuple[str, ...]
    """The sources of the tests."""
    interface: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The names of the solution whose objects have attributes, and these."""
    prelude: str = ""
    module: str = "solution"
    entry_point: str = ""
    stop_early: bool = True
    reference: str = ""
    """A reference solution that has passed the tests, or is passing them now."""

    @classmethod
    def of(cls, options: dict[str, Any]) -> GradingJob:
        """Return the job that the driver has sent, as a key of what is known of the tests."""
        interface = tuple((name, tuple(each)) for name, each in options["interface"].items())
        return cls(**{**options, "tests": tuple(options["tests"]), "interface": interface})


class BrokenTests(Exception):
    """The tests cannot be used; that is the tests' fault, whatever the solution does."""


@contextmanager
def deep_trees() -> Generator[None]:
    """Allow deep recursion: long expressions make deep trees, which are read with recursion."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEP_TREES))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


_DEEP_TREES = 50_000
