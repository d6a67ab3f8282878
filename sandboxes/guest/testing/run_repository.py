"""Runs hidden tests of a whole repository in the repository's own process.

The graded code can reach the tests here; that is the price of `in_process`, and the verdicts say
so. Three measures limit what that code can do. Only a supervisor that runs no code of the
repository can write the report. The pytest that reads the tests was loaded before any code of the
repository. And the driver has left out the files by which the repository configures pytest.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from ..jail import syscalls as sc
from ..run import uploads
from ..run.request import Request

if TYPE_CHECKING:
    import pytest

REPORT = 3
"""The descriptor of the report, which only the supervisor has."""

MAX_BYTES = 4 << 20
"""The most bytes of results that the supervisor reads from the worker."""
MAX_SECONDS = 1e9
"""No test takes longer: a time that is endless or no number is forged, and no answer carries it."""
_DETAIL_LETTERS = 300


def run(request: Request) -> int:
    """Write `options["tests"]` (path -> source) over the uploaded files, run pytest, and report.

    The report has a JSON line per result {id, passed, detail, seconds}, then {"ended": exit
    status}.
    """
    # Without "" in the path, which is the folder of the repository, no file of the repository can
    # take the place of a module of pytest. For the same reason pytest is imported here already.
    sys.path[:] = [folder for folder in sys.path if folder]
    import pytest

    tests: Mapping[str, bytes] = request.options["tests"]  # type: ignore[assignment]
    uploads.write_files(dict(tests))
    reader, writer = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(REPORT)
        os.close(reader)
        # The repository's code would write results of its own, if it could guess the number.
        number = random.SystemRandom().randrange(100, 900)
        os.dup2(writer, number, inheritable=False)
        os.close(writer)
        _run_tests(pytest, request.options, number)
    os.close(writer)
    # The worker has the same user id, and must not be able to trace this process.
    sc.prctl(sc.PR_SET_DUMPABLE, 0)
    with os.fdopen(reader, "rb") as source:
        data = source.read(MAX_BYTES)
        # The worker may write anything: lines that do not have the shape of a result are skipped.
        rows: list[dict[str, object]] = []
        for line in data.splitlines():
            try:
                name, passed, detail, seconds = json.loads(line)
            except (ValueError, TypeError, RecursionError):
                continue
            has_texts = type(name) is str and type(detail) is str
            is_time = type(seconds) in (int, float) and 0 <= seconds < MAX_SECONDS
            if has_texts and is_time and type(passed) is bool:
                shown = detail[-_DETAIL_LETTERS:]
                rows.append({"id": name, "passed": passed, "detail": shown, "seconds": seconds})
    exit_code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    with os.fdopen(REPORT, "w") as report:
        report.writelines(f"{json.dumps(row)}\n" for row in [*rows, {"ended": exit_code}])
    return 0


def _run_tests(pytest: Any, options: Mapping[str, object], writer: int) -> None:
    """Run the tests in the repository's process; never returns."""
    code = 1
    try:
        folder = os.getcwd()
        paths: list[str] = options["paths"]  # type: ignore[assignment]
        sys.path += [os.path.normpath(os.path.join(folder, path)) for path in paths]
        # A plugin that the repository installs would run in every test.
        os.environ.update(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        os.environ.pop("PYTEST_ADDOPTS", None)
        targets: list[str] = options["targets"]  # type: ignore[assignment]
        with os.fdopen(writer, "wb") as stream:
            code = int(pytest.main([*_ARGUMENTS, *targets], plugins=[_Results(stream)]))
    finally:
        os._exit(code)


_ARGUMENTS = (
    "-q", "-c", "/dev/null", "--rootdir=.", "--confcutdir=.", "-p", "no:cacheprovider",
    "--import-mode=importlib", "-o", "addopts=",
)  # fmt: skip
_NOT_PASSED = (False, "it was skipped or expected to fail", 0.0)


class _Results:
    """A pytest plugin that writes the result of each test as soon as the test has ended.

    A test passes if its call passed and neither its set-up nor its tear-down failed.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._ended: dict[str, tuple[bool, str, float]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._report_test(str(report.nodeid), False, str(report.longrepr), 0.0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        passed, detail, seconds = self._ended.get(report.nodeid, _NOT_PASSED)
        if report.failed:
            passed, detail = False, str(report.longrepr)
        elif report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            passed, detail = True, ""
        self._ended[report.nodeid] = passed, detail, seconds + report.duration

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._report_test(nodeid, *self._ended.get(nodeid, _NOT_PASSED))

    def _report_test(self, name: str, passed: bool, detail: str, seconds: float) -> None:
        row = [name, passed, detail[-_DETAIL_LETTERS:], seconds]
        self._stream.write(json.dumps(row).encode() + b"\n")
        self._stream.flush()
