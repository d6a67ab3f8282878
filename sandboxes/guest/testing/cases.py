"""Runs `unittest` test cases and asynchronous pytest tests, which nothing else here would run."""

from __future__ import annotations

import asyncio
import inspect
import unittest
from collections.abc import Callable, Mapping
from typing import Any


def run_cases(names: Mapping[str, object], seen: set[object]) -> str:
    """Run the test cases among `names` that are not in `seen`, and return why a test failed, or "".

    Skipped tests do not count as passed unless others ran: a suite that runs nothing fails.
    """
    kinds: list[Any] = [
        kind
        for kind in names.values()
        if isinstance(kind, type) and issubclass(kind, unittest.TestCase) and kind not in seen
    ]
    if not kinds:
        return ""
    seen.update(kinds)
    suite = unittest.TestSuite()
    for kind in kinds:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(kind))
    result = unittest.TestResult()
    suite.run(result)
    problems = [*result.failures, *result.errors]
    if problems:
        case, text = problems[0]
        return f"{case.id().rpartition('.')[2]}: {text.strip().rpartition(chr(10))[2]}"
    if result.unexpectedSuccesses:
        return "a test passed that was expected to fail"
    if result.testsRun <= len(result.skipped):
        return "no test case ran"
    return ""


def run_async(function: Callable[..., object], arguments: dict[str, object]) -> bool:
    """Run a test that is a coroutine function; return False for any other function."""
    if not inspect.iscoroutinefunction(function):
        return False
    asyncio.run(function(**arguments))
    return True
