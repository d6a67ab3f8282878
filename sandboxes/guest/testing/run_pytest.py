"""Runs a hidden pytest file against proxies: `import solution` is the line to the other process.

pytest itself runs here, without any plugin, ini file or conftest but ours. What the solution raises
arrives as a built-in exception, so it cannot skip a test.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..run.request import Request
from . import failures, scopes
from .grading_job import BrokenTests, GradingJob, deep_trees
from .harness import DETAIL_LETTERS, TestHarness
from .run_tests import PEER, READ, report

if TYPE_CHECKING:
    import pytest

_MODULE = "test_hidden"
_FILE = f"{_MODULE}.py"
_NOT_RUN = (False, "it did not run", 0.0)


class _Results:
    """A pytest plugin that collects a result per test: that of the worst phase."""

    def __init__(self, harness: TestHarness) -> None:
        self._harness = harness
        self.found: dict[str, tuple[bool, str, float] | None] = {}
        """(passed, detail, seconds) of each test; None for one that was skipped."""
        self.problem = ""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.found = {item.nodeid: _NOT_RUN for item in session.items}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problem = str(report.longrepr)[-DETAIL_LETTERS:]

    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Run a test that is a coroutine function."""
        import asyncio
        import inspect

        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        # As in pytest's own hook: the fixtures that the function names, and none used by others.
        names = pyfuncitem._fixtureinfo.argnames  # pyright: ignore[reportPrivateUsage]
        fixtures = {name: pyfuncitem.funcargs[name] for name in names}
        asyncio.run(pyfuncitem.obj(**fixtures))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        wrong = self._harness.problem() if report.when != "teardown" else ""
        before = self.found.get(report.nodeid, _NOT_RUN)
        if before is None or (report.skipped and not wrong):
            self.found[report.nodeid] = None
            return
        passed, detail, seconds = before
        if wrong or report.failed:
            passed = False
            detail = wrong[:DETAIL_LETTERS] or str(report.longrepr)[-DETAIL_LETTERS:]
        elif report.when == "call":
            passed, detail = report.passed, ""
        self.found[report.nodeid] = passed, detail, seconds + report.duration


def run(request: Request) -> int:
    """Run the file in `request.options` (tests, module, stop_early); write a line per test."""
    return report(_rows(GradingJob.of(request.options)))


def _rows(job: GradingJob) -> Iterator[dict[str, object]]:
    harness = TestHarness(PEER)
    failures.own_module = _MODULE
    source = _prepared(job, harness)
    try:
        import pytest  # a large module, which only these children load
    except ImportError:
        raise BrokenTests(scopes.not_installed(["pytest"])) from None
    yield READ
    harness.meet()
    with open(_FILE, "w") as stream:
        stream.write(source)
    results = _Results(harness)
    # Only the hidden file configures pytest: no cache, no conftest, no ini file.
    arguments = ["-q", "-p", "no:cacheprovider", "--noconftest", "-c", "/dev/null", "--rootdir=."]
    # A solution that gives no parameters would have its tests skipped.
    arguments += ["-o", "empty_parameter_set_mark=fail_at_collect"]
    arguments += ["-x"] if job.stop_early else []
    pytest.main([*arguments, _FILE], plugins=[results])
    rows = [*filter(None, results.found.values())]
    if results.problem or not rows:
        rows.append((False, results.problem or "no test ran", 0.0))
    for number, (passed, detail, seconds) in enumerate(rows):
        yield {"test": number, "passed": passed, "detail": detail, "seconds": seconds}


def _prepared(job: GradingJob, harness: TestHarness) -> str:
    """Return the file to run, with marks where objects under test are meant.

    Raises:
        BrokenTests: the file does not compile, or cannot be judged.
    """
    source = "\n\n".join(job.tests)
    job = job._replace(tests=(source,))
    harness.begin(job)
    with deep_trees():
        if not harness.interface.classes:
            return source
        import ast

        from .rewriting import MARKS, marked

        vars(builtins).update(MARKS)
        return ast.unparse(*marked(job))
