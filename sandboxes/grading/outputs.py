"""Grades a program by what it writes for what it reads: one run per input, outputs compared here,
outside every sandbox, or by a checker in a run of its own.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence

import msgspec

from ..guest.testing import needs
from ..local.runs import SlotLost
from ..protocol import MIB, ExecutionStatus, Sandbox
from .compare import Comparison
from .options import GradeOptions, TestResult, UnusableTests


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
    limits = options.limits(output_bytes=MIB)
    pairs = [_texts(test) for test in tests]
    judge = _Checker(sandbox, options) if options.checker else _Compared(options)
    results: list[TestResult] = []
    code = solution.encode("utf-8", "replace").decode()
    for given, expected in pairs:
        room = msgspec.structs.replace(limits, output_bytes=max(MIB, 4 * len(expected)))
        done = await sandbox.execute(code, options.language, limits=room, stdin=given)
        if done.status is ExecutionStatus.INFRA_ERROR:
            raise SlotLost(done.detail)
        if not done.ok:
            await _check_modules(sandbox, options, done.stderr)
        problem = "" if done.ok else f"{done.status} {done.detail or done.stderr[-200:]}".strip()
        problem = problem or await judge.problem(given, done.stdout, expected)
        results.append(TestResult(not problem, problem, done.usage.wall_s))
        if problem and options.stops_early:
            break
    return results


async def _check_modules(sandbox: Sandbox, options: GradeOptions, stderr: str) -> None:
    """A program that ended for want of a well-known module that is not installed there.

    Raises:
        UnusableTests: that is so.
    """
    last = stderr.rstrip().rpartition("\n")[2]
    name = needs.lacking_of(last) if options.language == "python" else ""
    if not last.startswith("ModuleNotFoundError") or not name:
        return
    tried = await sandbox.execute(f"import {name}", limits=options.limits(output_bytes=MIB))
    if f"No module named {name!r}" in tried.stderr:
        raise UnusableTests(needs.not_installed_for_solution(name))


class _Compared:
    """Compares an output with the expected one."""

    def __init__(self, options: GradeOptions) -> None:
        self._comparison = Comparison.parse(options.compare)

    async def problem(self, given: str, output: str, expected: str) -> str:
        """Why the output does not pass; empty if it does."""
        same = self._comparison.same(output, expected)
        return "" if same else f"wrong output: {output[:100]!r}"


class _Checker:
    """Has a program of the tests' author judge an output.

    Whatever ends it but a true answer is the output's fault: a checker that fails on junk, or does
    not get through with it in time, has not been shown a right one.

    Raises:
        UnusableTests: it does not compile, or defines no `check`.
    """

    def __init__(self, sandbox: Sandbox, options: GradeOptions) -> None:
        try:
            tree = ast.parse(options.checker)
        except (SyntaxError, ValueError) as error:
            raise UnusableTests(f"the checker does not compile: {error}") from error
        if not any(
            isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body
        ):
            raise UnusableTests("the checker defines no function check(input, output, expected)")
        self._sandbox, self._program = sandbox, options.checker + _ASK_CHECKER
        self._limits = options.limits(output_bytes=MIB)

    async def problem(self, given: str, output: str, expected: str) -> str:
        """Why the output does not pass; empty if it does."""
        case = json.dumps({"input": given, "output": output, "expected": expected})
        done = await self._sandbox.execute(self._program, limits=self._limits, stdin=case)
        if done.status is ExecutionStatus.INFRA_ERROR:
            raise SlotLost(done.detail)
        if done.ok:
            return ""
        said = done.detail or done.stderr.strip()[-200:]
        return f"refused by the checker: {said or repr(output[:100])}"


_ASK_CHECKER = """

import json as _json, sys as _sys
_case = _json.load(_sys.stdin)
_sys.exit(not check(_case["input"], _case["output"], _case["expected"]))
"""


def _texts(test: object) -> tuple[str, str]:
    """Input and expected output of a stdin test, in the shapes datasets write them."""
    if isinstance(test, Mapping):
        given, expected = test.get("input", ""), test.get("output", test.get("expected_output"))
        if isinstance(given, Mapping) and isinstance(expected, Mapping):  # CommonOJ
            given, expected = given.get("stdin", ""), expected.get("stdout")
        if isinstance(given, str) and isinstance(expected, str):
            return given, expected
    raise UnusableTests(f"a stdin test has text 'input' and 'output', got {str(test)[:80]!r}")
