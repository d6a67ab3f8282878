"""Grades a solution by tests that the solution cannot see, read or reach.

*Who is at fault*: whatever the solution does (crash, loop, lie, flood the line) is an ok verdict
with reward 0. Tests that cannot be used are `invalid`; a slot that broke is `unavailable`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ludus.errors import ConfigError
from ludus.verdict import Verdict

from ..local.runs import SlotLost
from ..local.slot_sandbox import SlotSandbox
from ..protocol import Sandbox
from .calls import grade_calls
from .compare import Comparison
from .options import DEFAULT_OPTIONS, GradeOptions, GradingFault, TestResult, UnusableTests
from .outputs import grade_outputs

__all__ = ["DEFAULT_OPTIONS", "GradeOptions", "Grading", "TestResult", "grade", "grade_in_detail"]

KINDS = {
    "assert": "assert", "asserts": "assert", "check": "assert",
    "stdin": "stdin", "stdio": "stdin", "function_call": "function_call", "pytest": "pytest",
    "unittest": "assert",
}  # fmt: skip
"""The kinds of tests: each name that callers may write, and the kind it means."""


@dataclass(frozen=True, slots=True)
class Grading:
    """A verdict with the result of each test that was run."""

    verdict: Verdict
    results: tuple[TestResult, ...] = ()
    tier: str = ""
    """The isolation tier the solution ran in, which the verdict's detail names too; empty if
    unknown.
    """


async def grade(
    sandbox: SlotSandbox,
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    options: GradeOptions = DEFAULT_OPTIONS,
) -> Verdict:
    """Grade `solution` and return the verdict alone; see `grade_in_detail` for arguments and
    errors.
    """
    return (await grade_in_detail(sandbox, solution, tests, kind=kind, options=options)).verdict


async def grade_in_detail(
    sandbox: Sandbox,
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    options: GradeOptions = DEFAULT_OPTIONS,
) -> Grading:
    """Grade `solution`, and return the verdict with the result of each test.

    Args:
        sandbox: where the solution and the tests run; kinds other than `stdin` need slots.
        solution: the source text.
        tests: in the form that `kind` asks for. `assert`: Python sources, each an assertion, or a
            source that defines and calls `check(candidate)`. `pytest`: the sources of one test
            file, which imports the solution as `options.module`. `function_call`: {"input":
            [arguments], "output": result}. `stdin`: {"input": text, "output": text}.
        kind: a key of `KINDS`.
        options: limits, partial reward and comparison.

    Raises:
        ConfigError: the kind or comparison is unknown; tests of any kind but `stdin` need slots.
    """
    if kind not in KINDS:
        raise ConfigError(f"no kind of tests named {kind!r}; known: {', '.join(KINDS)}")
    Comparison.parse(options.compare)
    return on_tier(sandbox.tier, await _grade(sandbox, solution, tests, kind, options))


def on_tier(tier: str, grading: Grading) -> Grading:
    """Return the grading with the tier added to the verdict's detail."""
    detail = f"{grading.verdict.detail}; tier {tier}"
    verdict = msgspec.structs.replace(grading.verdict, detail=detail)
    return Grading(verdict, grading.results, tier)


async def _grade(
    sandbox: Sandbox, solution: str, tests: Sequence[object], kind: str, options: GradeOptions
) -> Grading:
    started = time.perf_counter()
    if not tests:
        return Grading(Verdict.invalid("there are no tests"))
    try:
        if KINDS[kind] == "stdin":
            results = await grade_outputs(sandbox, solution, tests, options)
        elif not isinstance(sandbox, SlotSandbox):
            raise ConfigError(
                f"tests of kind {kind!r} need slots, not the tier {sandbox.tier!r}: take a tier of "
                "slots (ludus sandbox doctor), or tests of kind 'stdin'"
            )
        else:
            results = await grade_calls(sandbox, solution, tests, KINDS[kind], options)
    except UnusableTests as error:
        return Grading(Verdict.invalid(str(error)))
    except GradingFault as error:
        return Grading(Verdict.error(f"the harness of the tests failed: {error}"))
    except SlotLost as error:
        return Grading(Verdict.unavailable(f"the sandbox failed: {error}"))
    total = max(len(results), 1 if KINDS[kind] == "pytest" else len(tests))
    seconds = time.perf_counter() - started
    passed = sum(result.passed for result in results)
    fraction = passed / total
    reward = fraction if options.partial else float(passed == total)
    first = next(
        ((number, result) for number, result in enumerate(results) if not result.passed), None
    )
    detail = f"{passed} of {total} tests passed"
    if first:
        detail += f"; test {first[0]}: {first[1].detail}"
    numbers = {"tests_passed": float(passed), "tests_total": float(total), "seconds": seconds}
    verdict = Verdict.of(reward, detail, parts={"tests": (fraction, 1.0)}, metrics=numbers)
    if KINDS[kind] == "pytest":
        verdict = msgspec.structs.replace(verdict, detail=f"proxied: {verdict.detail}")
    return Grading(verdict, tuple(results))
