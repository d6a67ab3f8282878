"""Grades a program by what it writes for what it reads: one run per input, outputs compared here,
outside every sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from .compare import Comparison
from .grade_options import GradeOptions, TestResult, UnusableTests
from .protocol import MIB, ExecutionStatus, Sandbox
from .runs import SlotLost


async def grade_outputs(
    sandbox: Sandbox,
    solution: str,
    tests: Sequence[object],
    options: GradeOptions,
) -> list[TestResult]:
    """One result per input, in order; fewer if the first failure ends it.

    Raises:
        UnusableTests: one has no input or output. SlotLost: a run failed for reasons of ours.
    """
    comparison = Comparison.parse(options.compare)
    limits = options.limits(output_bytes=MIB)
    pairs = [_texts(test) for test in tests]
    results: list[TestResult] = []
    code = solution.encode("utf-8", "replace").decode()
    for given, expected in pairs:
        room = msgspec.structs.replace(limits, output_bytes=max(MIB, 4 * len(expected)))
        done = await sandbox.execute(code, options.language, limits=room, stdin=given)
        if done.status is ExecutionStatus.INFRA_ERROR:
            raise SlotLost(done.detail)
        problem = "" if done.ok else f"{done.status} {done.detail or done.stderr[-200:]}".strip()
        if not problem and not comparison.same(done.stdout, expected):
            problem = f"wrong output: {done.stdout[:100]!r}"
        results.append(TestResult(not problem, problem, done.usage.wall_s))
        if problem and options.stops_early:
            break
    return results


def _texts(test: object) -> tuple[str, str]:
    """Input and expected output of a stdin test, in the shapes datasets write them."""
    if isinstance(test, Mapping):
        given, expected = test.get("input", ""), test.get("output", test.get("expected_output"))
        if isinstance(given, Mapping) and isinstance(expected, Mapping):  # CommonOJ
            given, expected = given.get("stdin", ""), expected.get("stdout")
        if isinstance(given, str) and isinstance(expected, str):
            return given, expected
    raise UnusableTests(f"a stdin test has text 'input' and 'output', got {str(test)[:80]!r}")
