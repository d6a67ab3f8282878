"""The tests' side of a grading: runs each test against proxies of the solution, and reports.

The solution is another process in another slot. All it can send is data; what is accepted is
decided here. The report goes to a descriptor that the solution cannot reach.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import socket
from collections.abc import Iterator
from typing import TextIO

from ..run.request import Request, receive
from .grading_job import BrokenTests, GradingJob, deep_trees
from .harness import TestHarness

PEER, REPORT = 3, 4
"""The descriptors of the line to the solution, and of the file for results."""
BEGUN, FRESH, OVER = b"begun", b"fresh", b"over"
"""The words to the driver: the tests run here; they need a fresh process; they are over."""
READ: dict[str, object] = {"read": True}
"""The row that says that the tests have been read, before anything is asked of the solution: whose
fault it is that there is no result depends on this row, and never on the solution."""

_YOUNG_OBJECTS = 20_000
"""The number of new objects after which the garbage collector looks at them.

A grading makes thousands of syntax nodes, so the interpreter's 700 would mean several collections
for each; memory stays bounded by the limits below.
"""
MAX_JOBS = 1000
_MAX_GROWN_KIB = 128 << 10
"""After `MAX_JOBS` jobs, or when memory has grown by so many KiB, the process ends: a new process
is cheap.
"""


def run(request: Request) -> int:
    """Run the tests of the job in `request.options`."""
    return report(results(GradingJob.of(request.options), PEER))


def report(rows: Iterator[dict[str, object]]) -> int:
    """Write the rows to the file for results, and return the exit code."""
    with os.fdopen(REPORT, "w") as stream:
        write_rows(stream, rows)
    return 0


def write_rows(stream: TextIO, rows: Iterator[dict[str, object]]) -> None:
    """Write each row as a line at once, then a line that says how the tests ended.

    `{"done": true}`: all rows are there. `{"unusable": reason}`: the tests cannot be used.
    `{"fault": reason}`: this side broke; before the row `READ`, by itself.
    """
    end = '{"done": true}'
    try:
        for row in rows:
            stream.write(json.dumps(row) + "\n")
            stream.flush()
    except BrokenTests as error:
        end = json.dumps({"unusable": str(error)})
    except BaseException as error:
        end = json.dumps({"fault": f"{type(error).__name__}: {error}"})
    stream.write(end + "\n")


def results(job: GradingJob, line: int) -> Iterator[dict[str, object]]:
    """Run tests and yield the result of each. Everything that they do not define comes from the
    solution's process, by `line`.
    """
    harness = TestHarness(line)
    try:
        tests = harness.prepare(job)
        yield READ
        harness.fetch()
        yield from harness.results(tests, stop_early=job.stop_early)
    finally:
        harness.close()


# --- many gradings in one process -----------------------------------------------


def run_many(request: Request) -> int:
    """Run the tests of many gradings, for tests that leave no trace, until the driver closes.

    For each job the driver receives a word when it is known what kind of tests they are, and, if
    they are started here, a second word when they are over. Names, objects and the line to the
    solution belong to a single job.
    """
    line = socket.socket(fileno=PEER)
    gc.enable()
    gc.set_threshold(_YOUNG_OBJECTS)
    before = _peak_kib()
    for number in range(MAX_JOBS):
        request, streams = receive(line, number)
        job = GradingJob.of(request.options)
        with (
            os.fdopen(streams["report"], "w") as stream,
            socket.socket(fileno=streams["peer"]) as far,
        ):
            is_traceless = _leaves_no_trace(job)
            line.send(BEGUN if is_traceless else FRESH)
            if is_traceless:
                write_rows(stream, results(job, far.detach()))
        if is_traceless:
            line.send(OVER)
        if _peak_kib() - before > _MAX_GROWN_KIB:
            break
    return 0


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _leaves_no_trace(job: GradingJob) -> bool:
    """Return whether tests may run here; not if they need a fresh process, or are not Python."""
    from .interface import interface_of

    try:
        with deep_trees():
            return not job.prelude and interface_of(job).leaves_no_trace
    except Exception:  # Their own process meets the same, and says so.
        return False
