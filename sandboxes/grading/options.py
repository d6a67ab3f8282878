"""What a grading is asked for, and what it finds out about each test."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ..protocol import MIB, Limits


class GradeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to grade."""

    partial: bool = False
    """Reward the fraction of passed tests instead of all or nothing."""
    stop_early: bool | None = None
    """End at the first failure; by default exactly when that cannot change the reward."""
    timeout_s: float = 10.0
    """Wall limit of the whole grading (assert, function_call) or of each input (stdin)."""
    cpu_s: float | None = None
    """CPU limit, of the same span; the wall limit if left out."""
    memory_bytes: int = 512 * MIB
    entry_point: str = ""
    """The function under test: `check(candidate)` is called with it, `function_call` calls it."""
    interface: dict[str, list[str]] = {}
    """Name of a class of the solution, or of a function that returns objects -> the attributes and
    methods that the tests may use of them, besides what the tests themselves show.
    """
    prelude: str = ""
    """Trusted source run with the tests: its names win over the solution's (helpers a prompt
    gives).
    """
    compare: str = "exact"
    """Outputs of stdin tests: `exact` (lines, ignoring space at their ends), `tokens`,
    `float:1e-6`.
    """
    checker: str = ""
    """Trusted Python for stdin tests, instead of `compare`: defines `check(input, output,
    expected)`, and an output passes if that is true. A slot of its own runs the checker.
    """
    module: str = "solution"
    """What pytest tests import the solution as."""
    language: str = "python"
    """The language of the solution; other than python only for stdin tests."""

    def limits(self, *, output_bytes: int) -> Limits:
        """The limits of one run.

        Raises:
            ValueError: one is not above 0.
        """
        return Limits(
            timeout_s=self.timeout_s,
            cpu_s=self.cpu_s or self.timeout_s,
            memory_bytes=self.memory_bytes,
            output_bytes=output_bytes,
        )

    @property
    def stops_early(self) -> bool:
        """Whether the first failure ends the grading."""
        return not self.partial if self.stop_early is None else self.stop_early

    def __post_init__(self) -> None:
        self.limits(output_bytes=1)  # refused where the mistake is, not in the middle of a run


DEFAULT_OPTIONS = GradeOptions()


@dataclass(frozen=True, slots=True)
class TestResult:
    """What one test said."""

    passed: bool
    detail: str
    seconds: float


class GradingFault(Exception):
    """The harness of the tests failed by itself: a defect of ludus, never the solution's."""


class UnusableTests(Exception):
    """The tests cannot be used: ours or the data's fault, never the solution's."""
