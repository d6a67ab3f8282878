"""The tests' side of a grading: run each test against proxies of the solution, and report on a
descriptor of its own.

The solution is another process in another slot. What it can send is data; what passes is decided
here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from types import CodeType
from typing import TextIO

from .bench import PLAIN, Bench, Job, UnusableTests, describe
from .request import Request

__all__ = ["PEER", "PLAIN", "REPORT", "Bench", "Job", "UnusableTests", "describe", "run"]

PEER, REPORT = 3, 4
"""Descriptors: the line to the solution, and the file for results."""


def run(request: Request) -> int:
    """Run the tests in `request.options`: tests, prelude, stop_early."""
    with os.fdopen(REPORT, "w") as report:
        write_rows(report, _rows(request.options))
    return 0


def write_rows(report: TextIO, rows: Iterator[dict[str, object]]) -> None:
    """Write a line for each row at once, and one that says how it ended.

    `{"done": true}`: all rows are there. `{"unusable": reason}`: the tests cannot be used.
    `{"fault": reason}`: this side broke, which is ours or the tests' doing.
    """
    try:
        for row in rows:
            report.write(json.dumps(row) + "\n")
            report.flush()
    except UnusableTests as error:
        report.write(json.dumps({"unusable": str(error)}) + "\n")
    except BaseException as error:
        report.write(json.dumps({"fault": f"{type(error).__name__}: {error}"}) + "\n")
    else:
        report.write('{"done": true}\n')


def _rows(job: Job) -> Iterator[dict[str, object]]:
    tests = compile_tests(job)
    bench = Bench(PEER)
    _check_calls(job)
    yield from bench.results(bench.prepare(tests, job), stop_early=bool(job["stop_early"]))


def _check_calls(job: Job) -> None:
    """Tests in functions that nobody calls would be passed by everything.

    Raises:
        UnusableTests: there are some.
    """
    sources: list[str] = job["tests"]  # type: ignore[assignment]
    if any("def check" in source or "def test" in source for source in sources):
        import ast

        from .idioms import uncalled

        if problem := uncalled(list(map(ast.parse, sources))):
            raise UnusableTests(problem)


def compile_tests(job: Job) -> list[CodeType]:
    """The tests as code.

    Raises:
        UnusableTests: one does not compile.
    """
    sources: list[str] = job["tests"]  # type: ignore[assignment]
    tests: list[CodeType] = []
    for number, source in enumerate(sources):
        try:
            tests.append(compile(source, "tests", "exec", dont_inherit=True))
        except (SyntaxError, ValueError) as error:
            raise UnusableTests(f"test {number} does not compile: {error}") from error
    return tests
