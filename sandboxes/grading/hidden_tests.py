"""Grades a solution by tests that the solution cannot see, read or reach.

*Who is at fault*: whatever the solution does (crash, loop, lie, flood the line) is an ok verdict
with reward 0. Tests that cannot be used are `invalid`; a slot that broke is `unavailable`.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import msgspec

from ludus.errors import ConfigError
from ludus.verdict import Status, Verdict

from ..local.runs import SlotLost
from ..local.slot_sandbox import SlotSandbox
from ..protocol import ExecutionStatus, Sandbox
from .calls import grade_calls
from .options import DEFAULT_OPTIONS, GradeOptions, GradingFault, TestResult, UnusableTests
from .outputs import Comparison, grade_outputs

__all__ = ["DEFAULT_OPTIONS", "GradeOptions", "Grading", "TestResult", "grade_in_detail"]

KINDS = dict.fromkeys(("assert", "asserts", "check", "unittest"), "assert")
KINDS |= {"stdin": "stdin", "stdio": "stdin", "function_call": "function_call", "pytest": "pytest"}
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
    if isinstance(sandbox, Grader):
        return await sandbox.grade_in_detail(solution, tests, kind=kind, options=options)
    if kind not in KINDS:
        raise ConfigError(f"no kind of tests named {kind!r}; known: {', '.join(KINDS)}")
    Comparison.parse(options.compare)
    refused = options.reference and tests and await _refusal(sandbox, tests, kind, options)
    return on_tier(sandbox.tier, refused or await _grade(sandbox, solution, tests, kind, options))


@runtime_checkable
class Grader(Protocol):
    """A sandbox that grades by itself, such as a remote sandbox, whose server grades."""

    grade_in_detail: Callable[..., Awaitable[Grading]]


_Gradings = OrderedDict[bytes, asyncio.Task[Grading]]
_REFERENCES: WeakKeyDictionary[Sandbox, _Gradings] = WeakKeyDictionary()
"""For each sandbox, the gradings of reference solutions by the digest of the task: those that have
settled whether a task can be judged, and those that run.
"""


async def _refusal(
    sandbox: Sandbox, tests: Sequence[object], kind: str, options: GradeOptions
) -> Grading | None:
    """Return the grading that every solution of a task gets, or None if it can be judged.

    That is found out by its reference solution, once, and before any solution of a policy: what a
    solution does can then never have it excused.
    """
    text = repr((kind, list(tests), options))
    key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    gradings = _REFERENCES.setdefault(sandbox, OrderedDict())
    task = gradings.get(key)
    if task is None or not (task.done() or task.get_loop() is asyncio.get_running_loop()):
        alone = msgspec.structs.replace(options, partial=False, stop_early=True)
        task = asyncio.ensure_future(_grade(sandbox, options.reference, tests, kind, alone))
        task.add_done_callback(lambda done: None if _settles(done) else gradings.pop(key, None))
        gradings[key] = task
        if len(gradings) > _MAX_SETTLED:
            gradings.popitem(last=False)
    verdict = (await asyncio.shield(task)).verdict
    if verdict.reward == 1.0:
        return None
    if _settles(task):
        return Grading(Verdict.invalid(f"the reference solution does not pass: {verdict.detail}"))
    late = Verdict.unavailable(f"the reference solution: {verdict.detail}")
    return Grading(late if verdict.status is Status.OK else verdict)


def _settles(task: asyncio.Task[Grading]) -> bool:
    """Return whether the end of a reference's grading says for good if the task can be judged. A
    busy machine must not.
    """
    if task.cancelled() or task.exception():
        return False
    status, results = task.result().verdict.status, task.result().results
    cut_off = any(result.detail.startswith(_OF_THE_MACHINE) for result in results)
    return status in (Status.OK, Status.INVALID) and not cut_off


_MAX_SETTLED = 10_000
_OF_THE_MACHINE = (str(ExecutionStatus.TIMEOUT), str(ExecutionStatus.OOM))
"""How results begin that a limit of time or memory has cut off."""


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
    verdict = verdict_of(results, total, options, seconds)
    if KINDS[kind] == "pytest":
        verdict = msgspec.structs.replace(verdict, detail=f"proxied: {verdict.detail}")
    return Grading(verdict, tuple(results))


def verdict_of(
    results: Sequence[TestResult],
    total: int,
    options: GradeOptions,
    seconds: float,
    *,
    problem: str = "",
) -> Verdict:
    """Return the verdict on the results of `total` tests; with a `problem`, none of them counts."""
    passed = sum(result.passed for result in results)
    fraction = 0.0 if problem else passed / total
    failed = (f"test {n}: {result.detail}" for n, result in enumerate(results) if not result.passed)
    reasons = [f"{passed} of {total} tests passed", problem or next(failed, "")]
    numbers = {"tests_passed": float(passed), "tests_total": float(total), "seconds": seconds}
    return Verdict.of(
        fraction if options.partial else float(fraction == 1.0),
        "; ".join(filter(None, reasons)),
        parts={"tests": (fraction, 1.0)},
        metrics=numbers,
    )
