"""Grading by whatever sandbox there is: in its slots, or over there where it is somewhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..protocol import Sandbox
from .hidden_tests import DEFAULT_OPTIONS, GradeOptions, Grading, grade_in_detail


@runtime_checkable
class Grader(Protocol):
    """A sandbox that grades by itself."""

    async def grade_in_detail(
        self,
        solution: str,
        tests: Sequence[object],
        *,
        kind: str = "assert",
        options: GradeOptions = DEFAULT_OPTIONS,
    ) -> Grading:
        """See `ludus.sandboxes.grade_in_detail`."""
        ...


async def grade_with(
    sandbox: Sandbox,
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    options: GradeOptions = DEFAULT_OPTIONS,
) -> Grading:
    """Grade `solution`; see `ludus.sandboxes.grade_in_detail`.

    Raises:
        ConfigError: an unknown kind or comparison, or not one for this sandbox.
    """
    if isinstance(sandbox, Grader):
        return await sandbox.grade_in_detail(solution, tests, kind=kind, options=options)
    return await grade_in_detail(sandbox, solution, tests, kind=kind, options=options)
