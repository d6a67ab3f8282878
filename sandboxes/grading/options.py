"""The options of a grading, and the result of each test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import msgspec

from ..protocol import MIB, Limits


class GradingOptions(TypedDict, total=False):
    """The options of a grading as keyword arguments; see `GradeOptions`."""

    partial: bool
    stop_early: bool | None
    timeout_s: float
    cpu_s: float | None
    memory_bytes: int
    entry_point: str
    interface: dict[str, list[str]]
    prelude: str
    compare: str
    checker: str
    reference: str
    module: str
    language: str


class GradeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a grading: rewards, limits, and how the tests meet the solution."""

    partial: bool = False
    """Whether the reward is the fraction of passed tests instead of all or nothing."""
    stop_early: bool | None = None
    """Whether the first failure ends the grading; by default only where that cannot change the
    reward.
    """
    timeout_s: float = 10.0
    """The limit of wall time, in seconds: of the whole grading, or of each input for stdin tests.
    """
    cpu_s: float | None = None
    """The limit of CPU time, in seconds, over the same span; by default equal to `timeout_s`."""
    memory_bytes: int = 512 * MIB
    entry_point: str = ""
    """The name of the function under test: `check(candidate)` gets it, `function_call` calls it."""
    interface: dict[str, list[str]] = {}
    """The attributes and methods that tests may use of objects, besides those the tests themselves
    show.

    Keys are names of classes of the solution, or of functions that return objects.
    """
    prelude: str = ""
    """Trusted source run with the tests, such as helpers that the prompt gives.

    Names defined here win over names of the solution.
    """
    compare: str = "exact"
    """How outputs of stdin tests are compared: `exact`, `tokens` or `float:1e-6`; see `Comparison`.
    """
    checker: str = ""
    """Trusted Python source that judges outputs of stdin tests, instead of `compare`.

    The source defines `check(input, output, expected)`, and an output passes if that returns a true
    value. The checker runs in a slot of its own.
    """
    reference: str = ""
    """A right solution, which settles whether the tests can be judged.

    It is graded once, before the first solution of the task. Where it does not pass, every verdict
    of the task is `invalid`; where it passes, every failure of a solution is a reward of 0. Without
    one, only the tests' own text may refuse a task.
    """
    module: str = "solution"
    """The module name under which pytest tests import the solution."""
    language: str = "python"
    """The language of the solution; languages other than python are possible only with stdin tests.
    """

    def limits(self, *, output_bytes: int) -> Limits:
        """Return the limits of a run of the solution, with the given output limit.

        Raises:
            ValueError: a limit is not above 0.
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
        # A limit that cannot be is refused here, and not in the middle of a run.
        self.limits(output_bytes=1)


DEFAULT_OPTIONS = GradeOptions()


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of a test: whether the test passed, the reason if not, and the wall time in
    seconds.
    """

    passed: bool
    detail: str
    seconds: float


class GradingFault(Exception):
    """The harness of the tests failed by itself, which is a defect of ludus and never of the
    solution.
    """


class UnusableTests(Exception):
    """The tests cannot be used, which is a fault of the tests and never of the solution."""
