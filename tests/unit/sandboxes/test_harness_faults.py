"""Tests whose fault a failure of the tests' side is."""

import io
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ludus.sandboxes.grading.calls import _read_report  # pyright: ignore[reportPrivateUsage]
from ludus.sandboxes.grading.options import GradingFault
from ludus.sandboxes.guest.testing.grading_job import BrokenTests, GradingJob
from ludus.sandboxes.guest.testing.idioms import examine
from ludus.sandboxes.guest.testing.interface import Interface
from ludus.sandboxes.guest.testing.peer import Gone
from ludus.sandboxes.guest.testing.run_tests import READ, write_rows
from ludus.sandboxes.guest.testing.value_wire import Malformed
from ludus.sandboxes.local.runs import RunOutcome
from ludus.sandboxes.protocol import ExecutionStatus, Usage

SERVED = RunOutcome(ExecutionStatus.OK, 0, b"", b"", Usage())


def reported(error: BaseException, *, ours: bool) -> str:
    def rows() -> Iterator[dict[str, object]]:
        if ours:
            raise error
        yield READ
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


@pytest.mark.parametrize("error", [KeyError("bug"), TypeError("bug"), MemoryError("bug")])
def test_a_failure_without_the_solution_is_ours_and_carries_no_result(error: Exception) -> None:
    with pytest.raises(GradingFault, match=f"{type(error).__name__}.*bug"):
        read(reported(error, ours=True))


@pytest.mark.parametrize(
    "error", [KeyError("bug"), Malformed("x"), Gone("x"), MemoryError(), OSError("no descriptors")]
)
def test_a_failure_that_a_solution_may_cause_fails_the_test(error: BaseException) -> None:
    passed, failed = read(reported(error, ours=False))
    assert passed.passed
    assert not failed.passed


def test_unusable_tests_stay_unusable() -> None:
    last = cast("dict[str, str]", json.loads(reported(BrokenTests("no call"), ours=True)))
    assert last == {"unusable": "no call"}


REPEATED = {
    "a class of the solution": "s = Stack()\ns.push({n})\nr = s.pop()\nassert r == {n}\n",
    "a helper": "x = helper({n})\nassert x == {n} and helper(x) == f({n})\n",
    "a changed argument": "d = dict(a={n})\nd['x'] = f(d)\nd.update(g(d))\nassert d['x'] == {n}\n",
    "arithmetic": "t = V({n})\nt += V(1)\nu = t * 2\nassert (u + t).x == {n} and abs(u - t) < 1\n",
    "values of each other": "a, b = f({n}), f(2)\na, b = b, a\nc = a\nb = c\nassert c == f(a)\n",
}
"""Tests that use the same variables again and again, as those of a class do."""


def work(form: str, count: int) -> int:
    """Return how many functions are called until tests are known to be such as can be judged."""
    calls = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    helper = "def helper(a):\n    return f(a)\n"
    tests = (helper, *(form.format(n=n) for n in range(count)))
    sys.setprofile(note)
    try:
        examine(Interface(GradingJob(tests)))
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("form", REPEATED.values(), ids=REPEATED)
def test_four_times_as_many_tests_are_read_with_less_than_eight_times_the_work(form: str) -> None:
    assert work(form, 80) < 8 * work(form, 20)
