"""Converts tests from the shapes used in data sets to Python sources.

Tests take every name that they do not define from the solution. `repr` of infinity is the name
`inf`, so a solution could say what that is, and with it which answer is right.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Mapping, Sequence

from ..guest.testing.harness import PLAIN
from .options import GradeOptions, UnusableTests

_INFINITY = "1e999"  # A literal too large for a float is read as infinity.
_NAN = f"({_INFINITY} - {_INFINITY})"


def literal(value: object, *, allow_nan: bool = True) -> str:
    """Return `value` as source that uses no name. Subclasses are written as the plain class.

    Args:
        value: None, a bool, number, text or bytes, or a list, tuple, dict or set of such values.
        allow_nan: whether NaN may occur; an expected value with NaN is equal to no answer.

    Raises:
        ValueError: the value is not plain, too large, nested too deeply, or has a NaN that is not
            allowed.

    >>> literal([float("inf"), {"k": (None, -1.5)}])
    "[1e999, {'k': (None, -1.5)}]"
    """
    try:
        return _written(value, allow_nan)
    except RecursionError as error:
        raise ValueError("a value is nested too deeply") from error


def _written(value: object, allow_nan: bool) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        if math.isinf(value):
            return _INFINITY if value > 0 else f"-{_INFINITY}"
        if not allow_nan:
            raise ValueError("an expected NaN, which no answer equals")
        return _NAN
    if value is None or isinstance(value, bool):
        return repr(value)
    # The `repr` of a subclass may be anything, so that of the plain class is used.
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, bytes):
        return bytes.__repr__(value)

    def parts(values: Iterable[object]) -> list[str]:
        return [_written(part, allow_nan) for part in values]

    if isinstance(value, list):
        return f"[{', '.join(parts(value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(parts(value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        pairs = zip(parts(value.keys()), parts(value.values()), strict=True)
        return f"{{{', '.join(f'{key}: {content}' for key, content in pairs)}}}"
    if isinstance(value, set):
        return f"{{{', '.join(parts(value)) or '*()'}}}"
    raise ValueError(
        f"a {type(value).__name__}, which has no literal; write the test as assertions"
    )


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
    defines = any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body)
    called = (
        node.value.func
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )
    calls = any(isinstance(function, ast.Name) and function.id == "check" for function in called)
    return f"{source}\ncheck({entry_point})\n" if defines and not calls else source


def _call_source(test: object, options: GradeOptions) -> str:
    if not isinstance(test, Mapping) or "input" not in test or "output" not in test:
        raise UnusableTests("a function_call test has 'input' and 'output'")
    name = function_name(options.entry_point)
    if not name.isidentifier():
        raise UnusableTests(f"function_call needs options.entry_point, got {options.entry_point!r}")
    arguments, expected = test["input"], test["output"]
    if isinstance(arguments, str):
        # A text has a JSON value in each line, as LiveCodeBench writes inputs.
        arguments = [_json(line) for line in arguments.split("\n")]
        expected = _json(expected) if isinstance(expected, str) else expected
    if not isinstance(arguments, Sequence) or isinstance(arguments, str):
        raise UnusableTests("the 'input' of a function_call test is a list of arguments")
    try:
        call = f"{name}(*{literal(list(arguments))})"
        return f"assert {PLAIN}({call}) == {PLAIN}({literal(expected, allow_nan=False)})"
    except ValueError as error:
        raise UnusableTests(f"a function_call test has {error}") from error


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableTests(f"not JSON: {text[:60]!r}") from error
