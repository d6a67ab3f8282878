"""Tests whose fault a failure of the tests' side is."""

import io
import json
import os
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ludus.sandboxes.grading.calls import _read_report  # pyright: ignore[reportPrivateUsage]
from ludus.sandboxes.grading.options import GradingFault
from ludus.sandboxes.guest.testing.peer import Gone
from ludus.sandboxes.guest.testing.run_tests import write_rows
from ludus.sandboxes.guest.testing.solution_line import BrokenTests, without_solution
from ludus.sandboxes.guest.testing.value_wire import Malformed
from ludus.sandboxes.local.runs import RunOutcome
from ludus.sandboxes.protocol import ExecutionStatus, Usage

SERVED = RunOutcome(ExecutionStatus.OK, 0, b"", b"", Usage())


def reported(error: BaseException, *, ours: bool) -> str:
    def rows() -> Iterator[dict[str, object]]:
        if ours:
            with without_solution():
                raise error
        yield {"test": 0, "passed": True, "detail": "", "seconds": 0.0}
        raise error

    report = io.StringIO()
    write_rows(report, rows())
    return report.getvalue()


def read(text: str) -> Any:
    report = os.memfd_create("report")
    try:
        os.write(report, text.encode())
        return _read_report(report, SERVED, "")
    finally:
        os.close(report)


@pytest.mark.parametrize("error", [KeyError("bug"), TypeError("bug"), RecursionError("bug")])
def test_a_failure_without_the_solution_is_ours_and_carries_no_result(error: Exception) -> None:
    with pytest.raises(GradingFault, match=f"{type(error).__name__}.*bug"):
        read(reported(error, ours=True))


@pytest.mark.parametrize("error", [KeyError("bug"), Malformed("x"), Gone("x"), MemoryError()])
def test_a_failure_that_a_solution_may_cause_fails_the_test(error: BaseException) -> None:
    passed, failed = read(reported(error, ours=False))
    assert passed.passed
    assert not failed.passed


@pytest.mark.parametrize("error", [MemoryError(), OSError("no descriptors"), Gone("closed")])
def test_want_of_resources_excuses_nobody(error: BaseException) -> None:
    (failed,) = read(reported(error, ours=True))
    assert not failed.passed


def test_unusable_tests_stay_unusable() -> None:
    last = cast("dict[str, str]", json.loads(reported(BrokenTests("no call"), ours=True)))
    assert last == {"unusable": "no call"}
