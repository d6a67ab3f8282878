"""Grades functions: the solution answers calls in a slot, and the tests run in another slot.

Between the slots go function names and plain values; the expected values stay with the tests. Where
the tests leave no trace in their process, a test runner is used that has graded other solutions
before; where they might, a new process is started.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import IO, Any, TypeVar

from ..guest.run.request import PROVE, PROVE_PYTEST, SERVE, Request
from ..guest.testing.run_tests import READ
from ..local.runs import Beside, RunOutcome, SlotLost, refusal
from ..local.slot_sandbox import SlotSandbox
from ..local.slots import Slot
from ..protocol import MIB, ExecutionStatus, Limits
from .options import GradeOptions, GradingFault, TestResult, UnusableTests
from .runners import GradingRunners
from .sources import function_name, test_sources

T = TypeVar("T")


def read_rows(report: int, limit_bytes: int) -> list[dict[str, Any]]:
    """Return the lines of the report that were written to their end, of its first `limit_bytes`.

    The last line may be cut off, by the end of its writer or by the limit. What shows that is the
    line break that it lacks, since a cut line may end with any character that the solution likes.
    """
    data = os.pread(report, min(os.fstat(report).st_size, limit_bytes), 0)
    complete = data[: data.rfind(b"\n") + 1]
    return [
        {key: _sendable(value) for key, value in json.loads(line).items()}
        for line in complete.splitlines()
    ]


def _sendable(value: object) -> object:
    """Return a text without lone surrogates. A solution can put them into the text of an error, and
    a verdict with them could not be encoded to be sent.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


_REPORT_BYTES = 4 * MIB
_GRACE_S = 0.05
"""Seconds the solution's side may take to end by itself once the tests are over."""

_TEST_SIDE_EXTRA_S = 2.0
_AT_A_LIMIT = (ExecutionStatus.TIMEOUT, ExecutionStatus.OOM)


async def grade_calls(
    sandbox: SlotSandbox, solution: str, tests: Sequence[object], kind: str, options: GradeOptions
) -> list[TestResult]:
    """Return a result for each test, in order; the list is shorter if the first failure ends the
    grading.

    Raises:
        UnusableTests: a test is not a test of this kind, or does not compile.
        GradingFault: the harness of the tests failed.
        SlotLost: the sandbox failed, twice.
    """
    job: dict[str, object] = {
        "tests": test_sources(tests, kind, options),
        "prelude": options.prelude,
        "module": options.module,
        "interface": options.interface,
        "entry_point": function_name(options.entry_point),
        "stop_early": options.stops_early,
        "reference": options.reference,
    }
    grading = _Grading(sandbox, solution.encode("utf-8", "replace"), job, options)

    async def run() -> list[TestResult]:
        if kind == "pytest":
            return await grading.with_new_processes(PROVE_PYTEST)
        return await grading.with_a_test_runner() or await grading.with_new_processes(PROVE)

    return await twice(run)


async def twice(run: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `run`; if the sandbox fails, and not the program in it, `run` is called
    a second time.

    Raises:
        SlotLost: the sandbox failed twice, or no descriptor is left.
    """
    try:
        return await run()
    except (SlotLost, OSError):
        try:
            return await run()
        except OSError as error:
            raise SlotLost(refusal("a grading cannot begin", error)) from error


class _Grading:
    """The grading of a solution by a list of tests, which may be tried again after a slot was
    lost.
    """

    def __init__(
        self, sandbox: SlotSandbox, code: bytes, job: dict[str, object], options: GradeOptions
    ) -> None:
        self._sandbox, self._code, self._job, self._options = sandbox, code, job, options
        sources: list[str] = job["tests"]  # type: ignore[assignment]
        self._kind = sandbox.kind_for(code, *(text.encode("utf-8", "replace") for text in sources))
        self._limits = options.limits(output_bytes=1)

    async def with_a_test_runner(self) -> list[TestResult] | None:
        """Grade with a test runner that serves many gradings.

        Returns None if these tests need a process of their own, or if either side was lost; the
        caller then grades with new processes.
        """
        our_end, far = socket.socketpair()
        try:
            with our_end, far, os.fdopen(os.memfd_create("report"), "rb") as report:
                async with GradingRunners.of(self._sandbox).take() as test_runner:
                    has_begun = await test_runner.begin(self._job, far.fileno(), report.fileno())
                    far.close()  # so that our end notices when the tests close theirs
                    if not has_begun:
                        return None
                    async with (
                        self._sandbox.pool(self._kind).take() as (solver,),
                        self._serving(solver, test_runner.slot, our_end, report) as serving,
                    ):
                        ended = await test_runner.over(serving, _TEST_SIDE_EXTRA_S)
                if not (ended and os.fstat(report.fileno()).st_size):
                    return None
                # Tests that never end are not tried again: they would not end in a new process.
                return _read_report(report.fileno(), await serving, ExecutionStatus.TIMEOUT)
        except SlotLost:
            return None

    async def with_new_processes(self, mode: str) -> list[TestResult]:
        """Grade with a new process for the solution and another for the tests.

        The tests' side has a little more time than the solution's, so that a solution that runs too
        long is reported as such.

        Raises:
            SlotLost: the sandbox failed.
            UnusableTests: the tests cannot be read in this time.
        """
        limits = self._limits
        patient = Limits(
            timeout_s=limits.timeout_s + _TEST_SIDE_EXTRA_S,
            cpu_s=limits.cpu_s + _TEST_SIDE_EXTRA_S,
            memory_bytes=max(limits.memory_bytes, 1024 * MIB),
        )
        our_end, far = socket.socketpair()
        with our_end, far, os.fdopen(os.memfd_create("report"), "rb") as report:
            async with (
                self._sandbox.pool(self._kind).take(2) as (solver, tester),
                self._serving(solver, tester, our_end, report) as serving,
            ):
                request = Request(mode=mode, options=self._job)
                lines = [("report", os.dup(report.fileno())), ("peer", far.detach())]
                proved = await tester.run(request, patient, peers=lines, beside=Beside(solver))
            if proved.status is ExecutionStatus.INFRA_ERROR:
                raise SlotLost(proved.detail)
            if proved.status in _AT_A_LIMIT and not os.fstat(report.fileno()).st_size:
                raise UnusableTests(f"the tests cannot be read: that {proved.detail}")
            ended_reason = f"{proved.status} {proved.detail}".strip()
            return _read_report(report.fileno(), await serving, ended_reason)

    @asynccontextmanager
    async def _serving(
        self, solver: Slot, tester: Slot, line: socket.socket, report: IO[bytes]
    ) -> AsyncGenerator[asyncio.Future[RunOutcome]]:
        """Run the solution beside the block; the solution has ended when the block is left, by any
        way. It is not charged for the time in which the tests are read.
        """
        request = Request(mode=SERVE, blobs=[self._code])
        beside = Beside(tester, lambda: os.fstat(report.fileno()).st_size > 0)
        peers = [("peer", line.detach())]
        run = solver.run(request, self._limits, peers=peers, beside=beside)
        serving = asyncio.ensure_future(run)
        try:
            # The task begins here, before the tests are sent: loading the solution takes longer.
            await asyncio.sleep(0)
            yield serving
            # The tests are over, and their end of the line is closed. A solution that has not ended
            # a moment later is killed.
            if not serving.done():
                await asyncio.wait([serving], timeout=_GRACE_S)
            if not serving.done():
                solver.kill_run()
            await serving
        except BaseException:
            serving.cancel()
            with suppress(asyncio.CancelledError, SlotLost):
                await serving
            raise


def _read_report(report: int, outcome: RunOutcome, ended_reason: str) -> list[TestResult]:
    """Return the results, with a failed result in place of what is missing, which says why.

    Raises:
        SlotLost: results are missing by a fault of the sandbox, or the tests were never read.
        UnusableTests: the tests cannot be used.
        GradingFault: the harness failed to read the tests, in which the solution has no part.
    """
    rows = read_rows(report, _REPORT_BYTES)
    results = [
        TestResult(row["passed"], row["detail"], row["seconds"]) for row in rows if "test" in row
    ]
    last = rows[-1] if rows else {}
    if "unusable" in last:
        raise UnusableTests(last["unusable"])
    if READ not in rows:
        if "fault" in last:
            raise GradingFault(last["fault"])
        raise SlotLost(f"the process of the tests ended before it had read them: {ended_reason}")
    is_passed = "done" in last and all(result.passed for result in results)
    if outcome.status is ExecutionStatus.INFRA_ERROR and not is_passed:
        raise SlotLost(outcome.detail)
    if results and not results[-1].passed and outcome.status in _AT_A_LIMIT:
        results[-1] = TestResult(
            False, f"{outcome.status}: the solution {outcome.detail}", results[-1].seconds
        )
    if "done" in last:
        return results
    missing = f"the tests did not end: {last.get('fault') or ended_reason}"
    return [*results, TestResult(False, missing, outcome.usage.wall_s)]
