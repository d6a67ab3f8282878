"""Reads what a docstring says about a function and its arguments (Google, NumPy or reST style)."""

from __future__ import annotations

import re
from collections.abc import Sequence

_GOOGLE_HEADING = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_GOOGLE_ENTRY = re.compile(r"^\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_SECTION = re.compile(
    r"^(?:Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|See Also|"
    r"References|Warnings?|Attributes|Keyword Args):?\s*$"
)
_REST_ARGUMENT = re.compile(
    r"^\s*:(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)$"
)
_REST_FIELD = re.compile(r"^\s*:\w[^:]*:")
_NUMPY_ENTRY = re.compile(r"^(\w+)(?:\s*:.*)?$")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    r"""Return the description, without the sections, and the description of each argument.

    >>> read_docstring("Add.\n\nArgs:\n    a: the first\n        number\n")
    ('Add.', {'a': 'the first number'})
    """
    lines = text.expandtabs().splitlines()
    end = next((i for i in range(len(lines)) if _begins_section(lines, i)), len(lines))
    descriptions: dict[str, str] = {}
    for index, line in enumerate(lines):
        if _GOOGLE_HEADING.match(line):
            descriptions |= _google(lines[index + 1 :])
        elif line.strip() == "Parameters" and _is_rule(lines, index + 1):
            descriptions |= _numpy(lines[index + 2 :])
        elif match := _REST_ARGUMENT.match(line):
            more_lines = _continuation(lines[index + 1 :])
            descriptions[match[1]] = _join_lines(match[2], more_lines)
    return "\n".join(lines[:end]).strip(), descriptions


def _begins_section(lines: Sequence[str], index: int) -> bool:
    """Return whether a line is the heading of a section, in any of the three styles."""
    line = lines[index]
    if _REST_FIELD.match(line):
        return True
    if not _SECTION.match(line):
        return False
    return line.rstrip().endswith(":") or _is_rule(lines, index + 1)


def _is_rule(lines: Sequence[str], index: int) -> bool:
    """Return whether a line is the row of hyphens under a heading of NumPy's style."""
    return index < len(lines) and re.fullmatch(r"\s*-{3,}\s*", lines[index]) is not None


def _google(lines: Sequence[str]) -> dict[str, str]:
    """Return the descriptions of arguments in the lines after the heading `Args:`."""
    descriptions: dict[str, str] = {}
    # The argument whose description goes on, and the indent of its entry: a line with a deeper
    # indent belongs to the description, also if it looks like an entry ("note: ...").
    last, depth = "", 0
    for line in lines:
        if line.strip() and not line[0].isspace():
            break
        indent = len(line) - len(line.lstrip())
        match = _GOOGLE_ENTRY.match(line)
        if match and (not last or indent <= depth):
            last, depth = match[1], indent
            descriptions[last] = match[2].strip()
        elif last and line.strip():
            descriptions[last] = _join_lines(descriptions[last], [line])
    return descriptions


def _numpy(lines: Sequence[str]) -> dict[str, str]:
    """Return the descriptions of arguments in the lines after `Parameters` and its rule."""
    descriptions: dict[str, str] = {}
    last = ""
    for index, line in enumerate(lines):
        if _begins_section(lines, index):
            break
        match = _NUMPY_ENTRY.match(line)
        if match:
            last = match[1]
            descriptions[last] = ""
        elif last and line.strip():
            descriptions[last] = _join_lines(descriptions[last], [line])
    return descriptions


def _continuation(lines: Sequence[str]) -> list[str]:
    """Return the lines that continue a reST field: the indented ones before the next field."""
    continuation: list[str] = []
    for line in lines:
        if not line.strip() or not line[0].isspace() or _REST_FIELD.match(line):
            break
        continuation.append(line)
    return continuation


def _join_lines(first: str, more_lines: Sequence[str]) -> str:
    stripped_lines = [line.strip() for line in (first, *more_lines)]
    return " ".join(line for line in stripped_lines if line)
