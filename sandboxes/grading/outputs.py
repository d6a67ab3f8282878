"""Grades a program by the output for each input, compared exactly, by tokens or by numbers.

Each input gets a run of its own. Outputs are compared in this process, outside every sandbox, or by
a checker in a further run.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ludus.errors import ConfigError

from ..local.runs import SlotLost
from ..protocol import MIB, Execution, ExecutionStatus, Limits, Sandbox
from .options import GradeOptions, TestResult, UnusableTests

_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?|[+-]?(inf|nan)", re.ASCII | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A way to compare an output with the expected output."""

    kind: str
    """How to compare: `exact`, `tokens` or `float`."""
    tolerance: float = 0.0
    """How far a float may be off: absolutely, or relative to the larger of the two numbers,
    whichever allows more.
    """

    @classmethod
    def parse(cls, text: str) -> Comparison:
        """Read a comparison, written `exact`, `tokens` or `float:TOLERANCE`.

        `exact` compares lines, without spaces at the ends of lines and empty lines at the end.
        `tokens` compares the words between spaces. `float` does too, but words that are numbers
        need only be close.

        Raises:
            ConfigError: the text is none of these, or the tolerance is not in [0, 1).
        """
        if text in ("exact", "tokens"):
            return cls(text)
        kind, _, tolerance = text.partition(":")
        if kind == "float" and _NUMBER.fullmatch(tolerance) and 0 <= float(tolerance) < 1:
            return cls("float", float(tolerance))
        raise ConfigError(
            f"compare {text!r} is not 'exact', 'tokens' or 'float:TOLERANCE', 0 <= TOLERANCE < 1"
        )

    def same(self, output: str, expected: str) -> bool:
        r"""Return whether `output` is as good as `expected`.

        >>> Comparison.parse("exact").same("1 2 \n3\n\n", "1 2\n3")
        True
        >>> Comparison.parse("float:1e-6").same("0.3333333", "0.33333333")
        True
        """
        if self.kind == "exact":
            return _lines(output) == _lines(expected)
        words, expected_words = output.split(), expected.split()
        if self.kind == "tokens":
            return words == expected_words
        return len(words) == len(expected_words) and all(map(self._close, words, expected_words))

    def _close(self, word: str, expected_word: str) -> bool:
        numbers = _NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected_word)
        allowed = {"rel_tol": self.tolerance, "abs_tol": self.tolerance}
        close = numbers and math.isclose(float(word), float(expected_word), **allowed)
        return word == expected_word or bool(close)


def _lines(text: str) -> str:
    return "\n".join(map(str.rstrip, text.split("\n"))).rstrip("\n")


async def grade_outputs(
    sandbox: Sandbox, solution: str, tests: Sequence[object], options: GradeOptions
) -> list[TestResult]:
    """Return a result for each input, in order; the list is shorter if the first failure ends the
    grading.

    Raises:
        UnusableTests: a test has no input or output, or the checker cannot be used.
        SlotLost: a run failed by a fault of the sandbox.
    """
    limits = options.limits(output_bytes=MIB)
    pairs = [_texts(test) for test in tests]
    comparison = Comparison.parse(options.compare)
    checker = _checker_of(options.checker) if options.checker else ""
    results: list[TestResult] = []
    # A lone surrogate cannot be encoded as UTF-8. It is the solution's mistake, and must fail there
    # and not in this process.
    code = solution.encode("utf-8", "replace").decode()
    for stdin, expected in pairs:
        # A right output must fit, and a character of it has at most 4 bytes.
        room = msgspec.structs.replace(limits, output_bytes=max(MIB, 4 * len(expected)))
        execution = await _run(sandbox, code, options.language, limits=room, stdin=stdin)
        output, problem = execution.stdout, ""
        if not execution.ok:
            said = execution.detail or execution.stderr[-200:]
            problem = f"{execution.status} {said}".strip()
        elif checker:
            # It passes only if the checker says so. If the checker fails on an output or is too
            # slow, the output is refused, since a usable checker works on every right output.
            case = json.dumps({"input": stdin, "output": output, "expected": expected})
            checked = await _run(sandbox, checker, limits=limits, stdin=case)
            if not checked.ok:
                said = checked.detail or checked.stderr.strip()[-200:] or repr(output[:100])
                problem = f"refused by the checker: {said}"
        elif not comparison.same(output, expected):
            problem = f"wrong output: {output[:100]!r}"
        results.append(TestResult(not problem, problem, execution.usage.wall_s))
        if problem and options.stops_early:
            break
    return results


async def _run(
    sandbox: Sandbox, code: str, *language: str, limits: Limits, stdin: str
) -> Execution:
    execution = await sandbox.execute(code, *language, limits=limits, stdin=stdin)
    if execution.status is ExecutionStatus.INFRA_ERROR:
        raise SlotLost(execution.detail)
    return execution


def _checker_of(source: str) -> str:
    """Return the program of a checker, which judges one output.

    Raises:
        UnusableTests: the checker does not compile, or defines no `check`.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise UnusableTests(f"the checker does not compile: {error}") from error
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in body):
        raise UnusableTests("the checker defines no function check(input, output, expected)")
    return source + _ASK_CHECKER


_ASK_CHECKER = """

import json as _json, sys as _sys
_case = _json.load(_sys.stdin)
_sys.exit(not check(_case["input"], _case["output"], _case["expected"]))
"""


def _texts(test: object) -> tuple[str, str]:
    """Return the input and expected output of a stdin test, from any shape in which datasets write
    tests.

    Raises:
        UnusableTests: the test has no such texts.
    """
    if isinstance(test, Mapping):
        stdin, expected = test.get("input", ""), test.get("output", test.get("expected_output"))
        if isinstance(stdin, Mapping) and isinstance(expected, Mapping):  # CommonOJ
            stdin, expected = stdin.get("stdin", ""), expected.get("stdout")
        if isinstance(stdin, str) and isinstance(expected, str):
            return stdin, expected
    raise UnusableTests(f"a stdin test has text 'input' and 'output', got {str(test)[:80]!r}")
