"""Converts tests from the shapes used in data sets to Python sources."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence

from ..guest.testing.harness import PLAIN
from .options import GradeOptions, UnusableTests


def test_sources(tests: Sequence[object], kind: str, options: GradeOptions) -> list[str]:
    """Return the tests as Python sources, which the tests' side compiles later.

    Raises:
        UnusableTests: a test is not a test of this kind.
    """
    sources: list[str] = []
    for number, test in enumerate(tests):
        source = _call_source(test, options) if kind == "function_call" else test
        if not isinstance(source, str):
            raise UnusableTests(f"test {number} is a {type(source).__name__}, not Python source")
        sources.append(_calling_check(source, function_name(options.entry_point)))
    return sources


def function_name(entry_point: str) -> str:
    """Return the name of the function under test; for a method of `class Solution`, the method's
    name.

    >>> function_name("Solution().twoSum"), function_name("f")
    ('twoSum', 'f')
    """
    return entry_point.removeprefix("Solution").removeprefix("()").removeprefix(".") or entry_point


def _calling_check(source: str, entry_point: str) -> str:
    """Return `source`, with a call of `check` appended if the source defines `check` but never
    calls it.
    """
    if not entry_point or "def check" not in source:
        return source
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    if any(
        isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body
    ) and not _calls_check(tree):
        return f"{source}\ncheck({entry_point})\n"
    return source


def _calls_check(tree: ast.Module) -> bool:
    calls = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )
    return any(isinstance(call.func, ast.Name) and call.func.id == "check" for call in calls)


def _call_source(test: object, options: GradeOptions) -> str:
    if not isinstance(test, Mapping) or "input" not in test or "output" not in test:
        raise UnusableTests("a function_call test has 'input' and 'output'")
    name = function_name(options.entry_point)
    if not name.isidentifier():
        raise UnusableTests(f"function_call needs options.entry_point, got {options.entry_point!r}")
    arguments, expected = _json_lines(test["input"]), test["output"]
    if isinstance(expected, str) and isinstance(test["input"], str):
        expected = _json(expected)
    if not isinstance(arguments, Sequence) or isinstance(arguments, str):
        raise UnusableTests("the 'input' of a function_call test is a list of arguments")
    call = f"{name}(*{list(arguments)!r})"
    return f"assert {PLAIN}({call}) == {PLAIN}({expected!r})"


def _json_lines(value: object) -> object:
    """Return the arguments of a text with a JSON value in each line, as LiveCodeBench writes
    inputs.

    A value that is not a text is returned unchanged.
    """
    return [_json(line) for line in value.split("\n")] if isinstance(value, str) else value


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UnusableTests(f"not JSON: {text[:60]!r}") from error
