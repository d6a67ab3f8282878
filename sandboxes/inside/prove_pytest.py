"""Runs a hidden pytest file against proxies: `import solution` is the line to the other process.

pytest itself runs here, with no plugin, ini or conftest but its own; what the solution raises
arrives as a built-in exception, so it cannot skip a test.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from . import needs
from .prove import PEER, REPORT, Bench, Job, UnusableTests, write_rows
from .request import Request

_FILE = "test_hidden.py"
_DETAIL_LETTERS = 300


class SolutionModule(ModuleType):
    """The module the tests import; each name is asked for when it is first used."""

    def __init__(self, name: str, bench: Bench) -> None:
        super().__init__(name)
        self.__dict__["_bench"] = bench

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        bench: Bench = self.__dict__["_bench"]
        bench.resolve([name])
        if name not in bench.names:
            raise AttributeError(f"the solution has no {name!r}")
        return bench.names[name]


class _Results:
    """Collects one result a test: its worst phase."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[bool, str, float]] = {}
        self.problem = ""
        self.skipped: set[str] = set()
        self._collected: list[str] = []

    def pytest_collection_finish(self, session: Any) -> None:
        self._collected = [item.nodeid for item in session.items]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.problem = str(report.longrepr)[-_DETAIL_LETTERS:]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped:
            self.skipped.add(report.nodeid)
            return
        passed, detail, seconds = self.found.get(report.nodeid, (False, "", 0.0))
        if report.when == "call":
            passed = report.passed
        if report.failed:
            passed, detail = False, str(report.longrepr)[-_DETAIL_LETTERS:]
        self.found[report.nodeid] = passed, detail, seconds + report.duration

    def all(self) -> Iterator[tuple[bool, str, float]]:
        """One result for each test there is, whether or not it was come to; skipped ones left
        out.
        """
        for name in dict.fromkeys([*self._collected, *self.found]):
            if name not in self.skipped:
                yield self.found.get(name, (False, "it did not run", 0.0))


def run(request: Request) -> int:
    """Run the file in `request.options` (tests, module, stop_early); write a line for each test."""
    with os.fdopen(REPORT, "w") as report:
        write_rows(report, _rows(request.options))
    return 0


def _run_pytest(job: Job) -> _Results:
    sources: list[str] = job["tests"]  # type: ignore[assignment]
    with open(_FILE, "w") as stream:
        stream.write("\n\n".join(sources))
    results = _Results()
    arguments = ["-q", "-p", "no:cacheprovider", "--noconftest", "-c", "/dev/null", "--rootdir=."]
    arguments += ["-x"] if job["stop_early"] else []
    try:
        import pytest  # large: only these children load it
    except ImportError:
        raise UnusableTests(needs.not_installed(["pytest"])) from None

    pytest.main([*arguments, _FILE], plugins=[results])
    return results


def _rows(job: Job) -> Iterator[dict[str, object]]:
    module = str(job["module"])
    bench = Bench(PEER)
    bench.meet()
    sys.modules[module] = SolutionModule(module, bench)
    results = _run_pytest(job)
    _check_modules(job, results)
    number = 0
    for number, (passed, detail, seconds) in enumerate(results.all(), start=1):
        yield {"test": number - 1, "passed": passed, "detail": detail, "seconds": seconds}
    if results.problem or not number:
        detail = results.problem or "no test ran"
        yield {"test": number, "passed": False, "detail": detail, "seconds": 0.0}


def _check_modules(job: Job, results: _Results) -> None:
    """Tests that lack a module failed by themselves.

    Raises:
        UnusableTests: they do.
    """
    sources: list[str] = job["tests"]  # type: ignore[assignment]
    said = [results.problem, *(detail for _, detail, _ in results.found.values())]
    if any("ModuleNotFoundError" in text for text in said) and (
        lacking := needs.missing_modules(sources)
    ):
        raise UnusableTests(needs.not_installed(lacking))
