"""Grades a solution by tests that it cannot see, read or reach.

The solution runs in one slot and answers calls; the tests run in another and hold the expected
values. Between them go function names and plain values. Reading stdin-and-stdout problems needs no
second slot: outputs are compared here.

*Who is at fault*: whatever the solution does (crash, loop, lie, flood the line) is an ok verdict
with reward 0. Tests that do not compile are `invalid`; a slot that broke is `unavailable`.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import socket
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.verdict import Verdict

from .compare import Comparison
from .inside.prove import PLAIN
from .inside.request import PROVE, PROVE_PYTEST, SERVE, Request
from .protocol import MIB, ExecutionStatus, Limits, Sandbox
from .slot_sandbox import SlotSandbox
from .slots import Outcome, Slot, SlotLost

KINDS = {
    "assert": "assert", "asserts": "assert", "check": "assert",
    "stdin": "stdin", "stdio": "stdin", "function_call": "function_call", "pytest": "pytest",
}  # fmt: skip
"""kind as callers write it -> kind."""

_REPORT_BYTES = 4 * MIB
_GRACE_S = 0.05
"""How long the solution's side may take to end by itself once the tests are over."""

_TEST_SIDE_EXTRA_S = 2.0
_TRIES = 2


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
    prelude: str = ""
    """Trusted source run with the tests: its names win over the solution's (helpers a prompt
    gives).
    """
    compare: str = "exact"
    """Outputs of stdin tests: `exact` (lines, ignoring space at their ends), `tokens`,
    `float:1e-6`.
    """
    module: str = "solution"
    """What pytest tests import the solution as."""
    language: str = "python"
    """Of the solution; other than python only for stdin tests."""

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

    def __post_init__(self) -> None:
        self.limits(output_bytes=1)  # refused where the mistake is, not in the middle of a run


DEFAULT_OPTIONS = GradeOptions()


@dataclass(frozen=True, slots=True)
class TestResult:
    """What one test said."""

    passed: bool
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Grading:
    """A verdict with the result of each test that was run."""

    verdict: Verdict
    results: tuple[TestResult, ...] = ()


async def grade(
    sandbox: SlotSandbox,
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    options: GradeOptions = DEFAULT_OPTIONS,
) -> Verdict:
    """Grade `solution`; see `grade_in_detail`."""
    return (await grade_in_detail(sandbox, solution, tests, kind=kind, options=options)).verdict


async def grade_in_detail(
    sandbox: Sandbox,
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    options: GradeOptions = DEFAULT_OPTIONS,
) -> Grading:
    """Grade `solution`, with each test's result.

    Args:
        tests: `assert`: Python sources, each an assertion, or one that defines and calls
            `check(candidate)`.
            `pytest`: the sources of one test file, which imports the solution as `options.module`.
            `function_call`: {"input": [arguments], "output": result}. `stdin`: {"input": text,
                "output": text}.

    Raises:
        ConfigError: an unknown kind or comparison; tests of any kind but `stdin` need slots.
    """
    if kind not in KINDS:
        raise ConfigError(f"no kind of tests named {kind!r}; known: {', '.join(KINDS)}")
    comparison = Comparison.parse(options.compare)
    started = time.perf_counter()
    if not tests:
        return Grading(Verdict.invalid("there are no tests"))
    try:
        if KINDS[kind] == "stdin":
            results = await _grade_outputs(sandbox, solution, tests, options, comparison)
        elif not isinstance(sandbox, SlotSandbox):
            raise ConfigError(f"tests of kind {kind!r} need slots, not the tier {sandbox.tier!r}")
        else:
            sources = _sources(tests, KINDS[kind], options)
            mode = PROVE_PYTEST if KINDS[kind] == "pytest" else PROVE
            results = await _grade_calls(sandbox, solution, mode, sources, options)
    except _Unusable as error:
        return Grading(Verdict.invalid(str(error)))
    except SlotLost as error:
        return Grading(Verdict.unavailable(f"the sandbox failed: {error}"))
    total = max(len(results), 1 if KINDS[kind] == "pytest" else len(tests))
    seconds = time.perf_counter() - started
    verdict = _verdict(results, total, options, seconds)
    if KINDS[kind] == "pytest":
        verdict = msgspec.structs.replace(verdict, detail=f"proxied: {verdict.detail}")
    return Grading(verdict, tuple(results))


class _Unusable(Exception):
    """The tests cannot be used."""


def _verdict(
    results: list[TestResult], total: int, options: GradeOptions, seconds: float
) -> Verdict:
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
    return Verdict.of(reward, detail, parts={"tests": (fraction, 1.0)}, metrics=numbers)


def _stops_early(options: GradeOptions) -> bool:
    return not options.partial if options.stop_early is None else options.stop_early


# --- calls: two slots ---------------------------------------------------------


def _sources(tests: Sequence[object], kind: str, options: GradeOptions) -> list[str]:
    """The tests as Python sources. (Whether they compile, the tests' side finds out.)

    Raises:
        _Unusable: one is not a test of this kind.
    """
    sources: list[str] = []
    for number, test in enumerate(tests):
        source = _call_source(test, options) if kind == "function_call" else test
        if not isinstance(source, str):
            raise _Unusable(f"test {number} is a {type(source).__name__}, not Python source")
        sources.append(_calling_check(source, options.entry_point))
    return sources


def _calling_check(source: str, entry_point: str) -> str:
    """`source`, with the call of its `check` that it may lack."""
    if not entry_point or "def check" not in source:
        return source
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    if _defines_check(tree) and not _calls_check(tree):
        return f"{source}\ncheck({entry_point})\n"
    return source


def _defines_check(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body)


def _calls_check(tree: ast.Module) -> bool:
    calls = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )
    return any(isinstance(call.func, ast.Name) and call.func.id == "check" for call in calls)


def _call_source(test: object, options: GradeOptions) -> str:
    if not isinstance(test, Mapping) or "input" not in test or "output" not in test:
        raise _Unusable("a function_call test has 'input' and 'output'")
    if not options.entry_point.isidentifier():
        raise _Unusable(f"function_call needs options.entry_point, got {options.entry_point!r}")
    arguments, expected = _json_lines(test["input"]), test["output"]
    if isinstance(expected, str) and isinstance(test["input"], str):
        expected = _json(expected)
    if not isinstance(arguments, Sequence) or isinstance(arguments, str):
        raise _Unusable("the 'input' of a function_call test is a list of arguments")
    called = f"{options.entry_point}(*{list(arguments)!r})"
    return f"assert {PLAIN}({called}) == {PLAIN}({expected!r})"


def _json_lines(value: object) -> object:
    """LiveCodeBench writes one JSON argument a line."""
    return [_json(line) for line in value.split("\n")] if isinstance(value, str) else value


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _Unusable(f"not JSON: {text[:60]!r}") from error


async def _grade_calls(
    sandbox: SlotSandbox, solution: str, mode: str, sources: list[str], options: GradeOptions
) -> list[TestResult]:
    job: dict[str, object] = {
        "tests": sources,
        "prelude": options.prelude,
        "module": options.module,
        "stop_early": _stops_early(options),
    }
    code = solution.encode("utf-8", "replace")
    kind = sandbox.kind_for(code, *(source.encode("utf-8", "replace") for source in sources))
    for attempt in range(_TRIES):
        try:
            async with sandbox.pool(kind).take(2) as (solver, prover):
                return await _run_pair(
                    solver, prover, code, Request(mode=mode, options=job), options
                )
        except SlotLost:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


async def _run_pair(
    solver: Slot, prover: Slot, code: bytes, task: Request, options: GradeOptions
) -> list[TestResult]:
    limits = options.limits(output_bytes=1)
    patient = Limits(
        timeout_s=limits.timeout_s + _TEST_SIDE_EXTRA_S,
        cpu_s=limits.cpu_s + _TEST_SIDE_EXTRA_S,
        memory_bytes=max(limits.memory_bytes, 1024 * MIB),
    )
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    report = os.memfd_create("report")
    try:
        serving = asyncio.ensure_future(
            solver.run(Request(mode=SERVE, blobs=[code]), limits, peers=[("peer", near.detach())])
        )
        await asyncio.sleep(0)  # let it begin: loading the solution takes longer than the tests
        lines = [("peer", far.detach()), ("report", os.dup(report))]
        proved = await _until_proved(serving, prover.run(task, patient, peers=lines))
        return _read_report(report, await _end(solver, serving), proved)
    finally:
        os.close(report)


async def _until_proved(
    serving: asyncio.Future[Outcome], proving: Coroutine[None, None, Outcome]
) -> Outcome:
    """Run the tests; if that fails, take the solution's run back as well."""
    try:
        return await proving
    except BaseException:
        serving.cancel()
        with suppress(asyncio.CancelledError, SlotLost):
            await serving
        raise


async def _end(solver: Slot, serving: asyncio.Future[Outcome]) -> Outcome:
    """See that the solution ends, now that the tests are over."""
    if not serving.done():
        await asyncio.wait([serving], timeout=_GRACE_S)
    if not serving.done():
        solver.kill_run()
    return await serving


def _read_report(report: int, served: Outcome, proved: Outcome) -> list[TestResult]:
    """The results, one per test that ran; what is missing counts as failed, with the reason.

    Raises:
        SlotLost: the sandbox, not the solution, is why they are missing.
        _Unusable: the tests do not compile.
    """
    rows = _rows(report)
    results = [
        TestResult(row["passed"], row["detail"], row["seconds"]) for row in rows if "test" in row
    ]
    last = rows[-1] if rows else {}
    if "unusable" in last:
        raise _Unusable(last["unusable"])
    if results and not results[-1].passed and served.status in _ENDED_BADLY:
        if served.status is ExecutionStatus.INFRA_ERROR:
            raise SlotLost(served.detail)
        results[-1] = TestResult(
            False, f"{served.status}: the solution {served.detail}", results[-1].seconds
        )
    if "done" in last:
        return results
    if proved.status is ExecutionStatus.INFRA_ERROR:
        raise SlotLost(proved.detail)
    reason = last.get("fault") or f"{proved.status} {proved.detail}".strip()
    missing = f"the tests did not end: {reason}"
    return [*results, TestResult(False, missing, proved.usage.wall_s)]


_ENDED_BADLY = (ExecutionStatus.TIMEOUT, ExecutionStatus.OOM, ExecutionStatus.INFRA_ERROR)


def _rows(report: int) -> list[dict[str, Any]]:
    lines = os.pread(report, _REPORT_BYTES, 0).splitlines()
    return [json.loads(line) for line in lines if line.endswith(b"}")]


# --- outputs: one slot per input ----------------------------------------------


async def _grade_outputs(
    sandbox: Sandbox,
    solution: str,
    tests: Sequence[object],
    options: GradeOptions,
    comparison: Comparison,
) -> list[TestResult]:
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
        if problem and _stops_early(options):
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
    raise _Unusable(f"a stdin test has text 'input' and 'output', got {str(test)[:80]!r}")
