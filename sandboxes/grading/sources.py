"""Converts tests from the shapes used in data sets to Python sources.

Tests take every name that they do not define from the solution. `repr` of infinity is the name
`inf`, so a solution could say what that is, and with it which answer is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from ..guest.testing.harness import PLAIN
from .options import GradeOptions, UnusableTests

_NAMED = {"inf": "1e999", "-inf": "-1e999", "nan": "(1e999 - 1e999)"}
"""What `repr` writes with a name. A literal too large for a float is read as infinity."""
_SCALARS: tuple[Any, ...] = (NoneType, bool, int, float, str, bytes)
_CONTAINERS: dict[Any, str] = {list: "[{}]", tuple: "(*[{}],)", set: "{{*[{}]}}"}


def literal(value: object, *, allow_nan: bool = True) -> str:
    """Return `value` as source that uses no name. Subclasses are written as the plain class.

    Args:
        value: None, a bool, number, text or bytes, or a list, tuple, dict or set of such values.
        allow_nan: whether NaN may occur; an expected value with NaN is equal to no answer.

    Raises:
        ValueError: the value is not plain, too large, nested too deeply, or has a NaN that is not
            allowed.

    >>> literal([float("inf"), {"k": (None, -1.5)}])
    "[1e999, {'k': (*[None, -1.5],)}]"
    """
    try:
        return _written(value, allow_nan)
    except RecursionError as error:
        raise ValueError("a value is nested too deeply") from error


def _written(value: object, allow_nan: bool) -> str:
    for kind in _SCALARS:
        if isinstance(value, kind):
            # The `repr` of a subclass may be anything, so that of the plain class is used.
            text: str = kind.__repr__(value)
            if text == "nan" and not allow_nan:
                raise ValueError("an expected NaN, which no answer equals")
            return _NAMED.get(text, text)
    if isinstance(value, dict):
        pairs = [[_written(part, allow_nan) for part in pair] for pair in value.items()]
        return f"{{{', '.join(map(': '.join, pairs))}}}"
    for container, form in _CONTAINERS.items():
        if isinstance(value, container):
            return form.format(", ".join(_written(part, allow_nan) for part in value))
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
    idle = re.search(r"(?m)^def check\(", source) and not re.search(r"(?m)^check\(", source)
    return f"{source}\ncheck({entry_point})\n" if entry_point and idle else source


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
