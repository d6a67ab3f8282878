"""The tests' side of many gradings in the same process, for tests that leave no trace.

For each job the driver receives a word when it is known what kind of tests they are, and, if they
are started here, a second word when they are over. Names, objects and the line to the solution
belong to a single job.
"""

from __future__ import annotations

import gc
import os
import resource
import socket
from types import CodeType

from ..run.request import Request, receive
from .run_tests import PEER, Job, compile_tests, may_be_uncalled, results, write_rows
from .scopes import leave_no_trace
from .solution_line import BrokenTests, sources_of

BEGUN, FRESH, OVER = b"begun", b"fresh", b"over"
"""The words to the driver: the tests run here; they need a fresh process; they are over."""

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
    """Take jobs from the driver's socket until the driver closes."""
    line = socket.socket(fileno=PEER)
    gc.enable()
    gc.set_threshold(_YOUNG_OBJECTS)
    before = _peak_kib()
    for number in range(MAX_JOBS):
        job, streams = receive(line, number)
        with (
            os.fdopen(streams["report"], "w") as report,
            socket.socket(fileno=streams["peer"]) as far,
        ):
            tests = _traceless(job.options)
            line.send(FRESH if tests is None else BEGUN)
            if tests is not None:
                write_rows(report, results(tests, job.options, far.detach()))
        if tests is not None:
            line.send(OVER)
        if _peak_kib() - before > _MAX_GROWN_KIB:
            break
    return 0


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _traceless(job: Job) -> list[CodeType] | None:
    """Return the compiled tests; None for tests that need a fresh process or are not Python."""
    try:
        tests = compile_tests(job)
        fresh = job["prelude"] or may_be_uncalled(job)
        return None if fresh or not leave_no_trace(sources_of(job), tests) else tests
    except (BrokenTests, RecursionError, MemoryError):
        return None
