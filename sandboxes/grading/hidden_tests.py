"""Grades a solution by tests that the solution cannot see, read or reach.

*Who is at fault*: whatever the solution does (crash, loop, lie, flood the line) is an ok verdict
with reward 0. Tests that cannot be used are `invalid`; a slot that broke is `unavailable`.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar, Protocol, runtime_checkable
from weakref import WeakKeyDictionary, ref

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
    grading: Grading | None = None
    if options.reference and tests:
        grading = await References.of(sandbox).refusal(tests, kind, options)
    return on_tier(sandbox.tier, grading or await _grade(sandbox, solution, tests, kind, options))


class References:
    """Which tasks their reference solutions have settled, in a sandbox.

    Whether a task can be judged is found out by its reference solution, before any solution of a
    policy: what a solution does can then never have it excused.
    """

    _of_sandboxes: ClassVar[WeakKeyDictionary[Sandbox, References]] = WeakKeyDictionary()

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = ref(sandbox)
        self._settled: OrderedDict[bytes, str] = OrderedDict()
        """Digest of a task -> why it is refused; empty for a task that can be judged."""
        self._running: dict[bytes, asyncio.Task[Grading]] = {}

    @classmethod
    def of(cls, sandbox: Sandbox) -> References:
        """Return the settled tasks of a sandbox, which live as long as it does."""
        return cls._of_sandboxes.setdefault(sandbox, cls(sandbox))

    async def refusal(
        self, tests: Sequence[object], kind: str, options: GradeOptions
    ) -> Grading | None:
        """Return the grading that every solution of the task gets, or None if it can be judged."""
        key = blake2b(
            repr((kind, list(tests), options)).encode("utf-8", "surrogatepass"), digest_size=16
        ).digest()
        if key not in self._settled:
            grading = await self._graded(key, tests, kind, options)
            verdict = grading.verdict
            if verdict.status not in (Status.OK, Status.INVALID):
                return Grading(verdict)
            if any(result.detail.startswith(_OF_THE_MACHINE) for result in grading.results):
                # A busy machine must not settle a task for good.
                return Grading(Verdict.unavailable(f"the reference solution: {verdict.detail}"))
            self._settled[key] = "" if verdict.reward == 1.0 else verdict.detail
            if len(self._settled) > _MAX_SETTLED:
                self._settled.popitem(last=False)
        if problem := self._settled.get(key, ""):
            return Grading(Verdict.invalid(f"the reference solution does not pass: {problem}"))
        return None

    async def _graded(
        self, key: bytes, tests: Sequence[object], kind: str, options: GradeOptions
    ) -> Grading:
        """Grade the reference once, however many solutions of the task wait for it."""
        sandbox = self._sandbox()
        assert sandbox is not None, "the caller grades with it"
        task = self._running.get(key)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            alone = msgspec.structs.replace(options, partial=False, stop_early=True)
            task = asyncio.ensure_future(_grade(sandbox, options.reference, tests, kind, alone))
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return await asyncio.shield(task)


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
    failed = (
        f"test {number}: {result.detail}"
        for number, result in enumerate(results)
        if not result.passed
    )
    reasons = [f"{passed} of {total} tests passed", problem or next(failed, "")]
    numbers = {"tests_passed": float(passed), "tests_total": float(total), "seconds": seconds}
    return Verdict.of(
        fraction if options.partial else float(fraction == 1.0),
        "; ".join(filter(None, reasons)),
        parts={"tests": (fraction, 1.0)},
        metrics=numbers,
    )


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
