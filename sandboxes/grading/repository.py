"""Grades a whole repository by hidden pytest files that run in the same process as the repository.

This is for what functions and values cannot express: packages with state, command lines, files. The
tests' process can be reached by what it tests, so the promise of the other kinds does not hold
here, and the verdict begins with `in_process`. What holds: the repository is a copy nobody can
change any more; its conftest, pytest settings, plugins and compiled files are left out; the tests
are written last; a supervisor, which runs nothing of the repository, takes the results; and every
expected test has to be among them, passed, and no other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from ludus.verdict import Verdict

from ..guest.run.request import PROVE_REPOSITORY, Request
from ..guest.testing.run_repository import MAX_BYTES
from ..local.runs import RunOutcome, SlotLost
from ..local.slot_sandbox import SlotSandbox
from ..paths import check_files, check_path
from ..protocol import MIB, ExecutionStatus
from .calls import read_rows, twice
from .hidden_tests import Grading, on_tier, verdict_of
from .options import DEFAULT_OPTIONS, GradeOptions, TestResult

# Files with which a repository would configure pytest or the interpreter, or run code at its start.
_LEFT_OUT = frozenset(
    ("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "sitecustomize.py", "usercustomize.py")
)
_LEFT_OUT_SUFFIXES = (".pyc", ".pyo", ".pth")
_ROOM_BYTES = 32 * MIB
"""The most bytes of all files of the repository, and again of all hidden tests."""
_REPORT_BYTES = 2 * MAX_BYTES
"""The most bytes of a report that are read: the supervisor reads `MAX_BYTES` of results, and writes
them with field names. Only results that are shorter than those of any test take more.
"""


async def grade_repository(
    sandbox: SlotSandbox,
    files: Mapping[str, bytes | str],
    tests: Mapping[str, bytes | str],
    expected: Sequence[str],
    *,
    paths: Sequence[str] = (".", "src"),
    options: GradeOptions = DEFAULT_OPTIONS,
) -> Grading:
    """Run `tests` over a copy of `files`, and compare the results with the expected tests.

    Args:
        sandbox: where the tests run.
        files: the repository, content by path.
        tests: hidden files, content by path; they replace files of the repository. Files called
            `test_*.py` or `*_test.py` are run.
        expected: the ids of exactly the tests there are, such as `tests/test_a.py::test_b[1]`.
        paths: folders of the repository from which its packages are imported, after everything
            else.
        options: of these, `partial`, `timeout_s` and `cpu_s` (of the whole grading) and
            `memory_bytes` are used.

    Raises:
        ConfigError: a path is not allowed, or the files do not fit.
    """
    if not expected or len(set(expected)) != len(expected):
        return Grading(Verdict.invalid("the expected test ids are missing, or not each given once"))
    hidden = check_files(tests, room_bytes=_ROOM_BYTES)
    targets = sorted(
        path for path in hidden if any(map(PurePosixPath(path).match, ("test_*.py", "*_test.py")))
    )
    if not targets:
        return Grading(Verdict.invalid("none of the tests is called test_*.py or *_test.py"))
    request = _request(files, hidden, targets, paths)
    started = time.perf_counter()
    try:
        rows, outcome = await twice(lambda: _run(sandbox, request, options))
    except SlotLost as error:
        return on_tier(sandbox.tier, Grading(Verdict.unavailable(f"the sandbox failed: {error}")))
    grading = _grading(rows, outcome, expected, options, time.perf_counter() - started)
    return on_tier(sandbox.tier, grading)


def _request(
    files: Mapping[str, bytes | str],
    hidden: dict[str, bytes],
    targets: list[str],
    paths: Sequence[str],
) -> Request:
    """Return the request to test a repository. It has the hidden tests, and the repository's files
    but for those that would configure pytest or the interpreter.

    A file of the repository that stands where a hidden test or its folder goes is left out as well.
    """
    folders = {str(parent) for path in hidden for parent in PurePosixPath(path).parents}
    repository = {
        path: data
        for path, data in files.items()
        if path.rpartition("/")[2] not in _LEFT_OUT
        and not path.endswith(_LEFT_OUT_SUFFIXES)
        and "__pycache__" not in path.split("/")
        and path not in folders
        and not any(str(parent) in hidden for parent in (path, *PurePosixPath(path).parents))
    }
    return Request(
        mode=PROVE_REPOSITORY,
        files=check_files(repository, room_bytes=_ROOM_BYTES),
        options={
            "tests": hidden,
            "targets": targets,
            "paths": [path if path == "." else check_path(path) for path in paths],
        },
    )


async def _run(
    sandbox: SlotSandbox, request: Request, options: GradeOptions
) -> tuple[list[dict[str, Any]], RunOutcome]:
    """Run the tests, and return the lines of the report and how the run ended.

    Raises:
        SlotLost: the sandbox failed.
    """
    # A run in this mode has no output pipes: its results come through `report`, a file in memory.
    limits = options.limits(output_bytes=1)
    kind = sandbox.kind_for(*request.files.values())
    with os.fdopen(os.memfd_create("report"), "rb") as report:
        async with sandbox.pool(kind).take() as (slot,):
            # The run closes the descriptor that it is given, so it is given a copy.
            copied = os.dup(report.fileno())
            outcome = await slot.run(request, limits, peers=[("report", copied)])
        if outcome.status is ExecutionStatus.INFRA_ERROR:
            raise SlotLost(outcome.detail)
        return read_rows(report.fileno(), _REPORT_BYTES), outcome


def _grading(
    rows: list[dict[str, Any]],
    outcome: RunOutcome,
    expected: Sequence[str],
    options: GradeOptions,
    seconds: float,
) -> Grading:
    """Return the grading of a finished run. The repository shares a process with the tests and can
    forge lines of the report, so any sign that the report is not sound makes the reward 0.
    """
    result_of: dict[str, TestResult] = {}
    for row in (row for row in rows if "id" in row):
        before = result_of.get(row["id"])
        # A test that is reported twice has failed if either result has: the passed one may be
        # forged.
        if before is None or before.passed:
            result_of[row["id"]] = TestResult(row["passed"], row["detail"], row["seconds"])
    missing = TestResult(False, "it did not run", 0.0)
    results = tuple(result_of.get(name, missing) for name in expected)
    # `problem` says why no result counts, and is empty if the report is sound. pytest exits with 0
    # if all tests passed and with 1 if some failed; any other code means that it did not finish.
    unexpected = sorted(set(result_of) - set(expected))
    exit_code = rows[-1].get("ended") if rows else None
    if exit_code is None:
        problem = f"the report of the tests has no end: {outcome.status} {outcome.detail}".rstrip()
    elif unexpected:
        problem = f"there are tests nobody expected: {', '.join(unexpected[:3])}"[:300]
    elif exit_code not in (0, 1) or (exit_code == 1 and all(result.passed for result in results)):
        problem = f"the process ended with {exit_code}, which its results do not explain"
    else:
        problem = ""
    verdict = verdict_of(results, len(results), options, seconds, problem=problem)
    marked = msgspec.structs.replace(verdict, detail=f"in_process: {verdict.detail}")
    return Grading(marked, results)
