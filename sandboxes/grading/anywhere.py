"""Grades with any sandbox: in the slots of this machine, or on the server of a remote sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..protocol import Sandbox
from .hidden_tests import DEFAULT_OPTIONS, GradeOptions, Grading, grade_in_detail


@runtime_checkable
class Grader(Protocol):
    """A sandbox that grades by itself, such as a remote sandbox, whose server grades."""

    async def grade_in_detail(
        self,
        solution: str,
        tests: Sequence[object],
        *,
        kind: str = "assert",
        options: GradeOptions = DEFAULT_OPTIONS,
    ) -> Grading:
        """Grade `solution` and return the result of each test; see
        `ludus.sandboxes.grade_in_detail`.
        """
        ...


async def grade_with(
    sandbox: Sandbox,
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    options: GradeOptions = DEFAULT_OPTIONS,
) -> Grading:
    """Grade `solution` with whatever `sandbox` offers; see `ludus.sandboxes.grade_in_detail`.

    Raises:
        ConfigError: the kind or the comparison is unknown, or is not possible in this sandbox.
    """
    if isinstance(sandbox, Grader):
        return await sandbox.grade_in_detail(solution, tests, kind=kind, options=options)
    return await grade_in_detail(sandbox, solution, tests, kind=kind, options=options)
