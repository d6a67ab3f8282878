"""Grades functions: the solution runs in one slot and answers calls, the tests run in another.

Between them go function names and plain values; the expected values stay with the tests. The tests'
side is a process that has proved other solutions before where the tests leave no trace in it, and a
new one where they might.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from ..guest.run.request import PROVE, PROVE_PYTEST, SERVE, Request
from ..local.runs import RunOutcome, SlotLost
from ..local.slot_sandbox import SlotSandbox
from ..local.slots import Slot
from ..protocol import MIB, ExecutionStatus, Limits
from .options import GradeOptions, GradingFault, TestResult, UnusableTests
from .runners import GradingRunners
from .sources import function_name, test_sources

_REPORT_BYTES = 4 * MIB
_GRACE_S = 0.05
"""How long the solution's side may take to end by itself once the tests are over."""

_TEST_SIDE_EXTRA_S = 2.0
_TRIES = 2
_ENDED_BADLY = (ExecutionStatus.TIMEOUT, ExecutionStatus.OOM, ExecutionStatus.INFRA_ERROR)


async def grade_calls(
    sandbox: SlotSandbox,
    solution: str,
    tests: Sequence[object],
    kind: str,
    options: GradeOptions,
) -> list[TestResult]:
    """One result per test, in order; fewer if the first failure ends it.

    Raises:
        UnusableTests: they are no tests, or do not compile.
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
    }
    grading = _Grading(sandbox, solution.encode("utf-8", "replace"), job, options)
    for attempt in range(_TRIES):
        try:
            if kind == "pytest":
                return await grading.with_new_processes(PROVE_PYTEST)
            return await grading.with_a_test_runner() or await grading.with_new_processes(PROVE)
        except SlotLost:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


class _Grading:
    """One solution, one list of tests."""

    def __init__(
        self, sandbox: SlotSandbox, code: bytes, job: dict[str, object], options: GradeOptions
    ) -> None:
        self._sandbox, self._code, self._job, self._options = sandbox, code, job, options
        sources: list[str] = job["tests"]  # type: ignore[assignment]
        self._kind = sandbox.kind_for(code, *(text.encode("utf-8", "replace") for text in sources))
        self._limits = options.limits(output_bytes=1)

    async def with_a_test_runner(self) -> list[TestResult] | None:
        """Grade with a tests' side that stays; None if these tests need one of their own, or if
        either side was lost.
        """
        report = os.memfd_create("report")
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            async with GradingRunners.of(self._sandbox).take() as test_runner:
                with far:
                    begun = await test_runner.begin(self._job, far.fileno(), report)
                if not begun:
                    return None
                async with (
                    self._sandbox.pool(self._kind).take() as (solver,),
                    self._serving(solver, near.detach()) as serving,
                ):
                    serving.add_done_callback(lambda _: test_runner.hurry(_TEST_SIDE_EXTRA_S))
                    over = await test_runner.over()
            return _read_report(report, await serving, "") if over else None
        except SlotLost:
            return None
        finally:
            near.close()
            os.close(report)

    async def with_new_processes(self, mode: str) -> list[TestResult]:
        """Grade with two new processes."""
        limits = self._limits
        patient = Limits(
            timeout_s=limits.timeout_s + _TEST_SIDE_EXTRA_S,
            cpu_s=limits.cpu_s + _TEST_SIDE_EXTRA_S,
            memory_bytes=max(limits.memory_bytes, 1024 * MIB),
        )
        report = os.memfd_create("report")
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            async with (
                self._sandbox.pool(self._kind).take(2) as (solver, other),
                self._serving(solver, near.detach()) as serving,
            ):
                request = Request(mode=mode, options=self._job)
                lines = [("peer", far.detach()), ("report", os.dup(report))]
                proved = await other.run(request, patient, peers=lines)
            if proved.status is ExecutionStatus.INFRA_ERROR:
                raise SlotLost(proved.detail)
            return _read_report(report, await serving, f"{proved.status} {proved.detail}".strip())
        finally:
            near.close()
            far.close()
            os.close(report)

    @asynccontextmanager
    async def _serving(self, solver: Slot, line: int) -> AsyncGenerator[asyncio.Future[RunOutcome]]:
        """Run the solution beside the block; it has ended when the block is left, however that
        was.
        """
        request = Request(mode=SERVE, blobs=[self._code])
        run = solver.run(request, self._limits, peers=[("peer", line)])
        serving = asyncio.ensure_future(run)
        try:
            await asyncio.sleep(0)  # it begins: loading the solution takes longer than the tests
            yield serving
            await _end(solver, serving)
        except BaseException:
            serving.cancel()
            with suppress(asyncio.CancelledError, SlotLost):
                await serving
            raise


async def _end(solver: Slot, serving: asyncio.Future[RunOutcome]) -> None:
    """See that the solution ends, now that the tests are over."""
    if not serving.done():
        await asyncio.wait([serving], timeout=_GRACE_S)
    if not serving.done():
        solver.kill_run()
    await serving


def _read_report(report: int, served: RunOutcome, ended: str) -> list[TestResult]:
    """The results, one per test that ran; what is missing counts as failed, with the reason.

    Raises:
        SlotLost: the sandbox, not the solution, is why they are missing.
        UnusableTests: the tests do not compile.
        GradingFault: the harness failed in a step that uses nothing of the solution.
    """
    rows = _rows(report)
    results = [
        TestResult(row["passed"], row["detail"], row["seconds"]) for row in rows if "test" in row
    ]
    last = rows[-1] if rows else {}
    if "unusable" in last:
        raise UnusableTests(last["unusable"])
    if "ours" in last:
        raise GradingFault(last["ours"])
    if results and not results[-1].passed and served.status in _ENDED_BADLY:
        if served.status is ExecutionStatus.INFRA_ERROR:
            raise SlotLost(served.detail)
        results[-1] = TestResult(
            False, f"{served.status}: the solution {served.detail}", results[-1].seconds
        )
    if "done" in last:
        return results
    missing = f"the tests did not end: {last.get('fault') or ended}"
    return [*results, TestResult(False, missing, served.usage.wall_s)]


def _rows(report: int) -> list[dict[str, Any]]:
    size = min(os.fstat(report).st_size, _REPORT_BYTES)
    lines = os.pread(report, size, 0).splitlines()
    return [json.loads(line) for line in lines if line.endswith(b"}")]
