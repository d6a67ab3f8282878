"""Reads what a docstring says about a function and the arguments (Google, NumPy or reST style)."""

from __future__ import annotations

import re
from collections.abc import Sequence

_GOOGLE = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_GOOGLE_ENTRY = re.compile(r"^\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_SECTION = re.compile(
    r"^(?:Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|See Also|"
    r"References|Warnings?|Attributes|Keyword Args):?\s*$"
)
_REST = re.compile(r"^\s*:(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)$")
_REST_FIELD = re.compile(r"^\s*:\w[^:]*:")
_NUMPY_ENTRY = re.compile(r"^(\w+)(?:\s*:.*)?$")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    r"""Return the description, without the sections, and the description of each argument.

    >>> read_docstring("Add.\n\nArgs:\n    a: the first\n        number\n")
    ('Add.', {'a': 'the first number'})
    """
    lines = text.expandtabs().splitlines()
    end = next((i for i in range(len(lines)) if _begins_section(lines, i)), len(lines))
    described: dict[str, str] = {}
    for index, line in enumerate(lines):
        if _GOOGLE.match(line):
            described |= _google(lines[index + 1 :])
        elif line.strip() == "Parameters" and _is_rule(lines, index + 1):
            described |= _numpy(lines[index + 2 :])
        elif match := _REST.match(line):
            described[match[1]] = _join_lines(match[2], _until_field(lines[index + 1 :]))
    return "\n".join(lines[:end]).strip(), described


def _begins_section(lines: Sequence[str], index: int) -> bool:
    line = lines[index]
    if _REST_FIELD.match(line):
        return True
    if not _SECTION.match(line):
        return False
    return line.rstrip().endswith(":") or _is_rule(lines, index + 1)


def _is_rule(lines: Sequence[str], index: int) -> bool:
    return index < len(lines) and re.fullmatch(r"\s*-{3,}\s*", lines[index]) is not None


def _google(lines: Sequence[str]) -> dict[str, str]:
    descriptions: dict[str, str] = {}
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


def _until_field(lines: Sequence[str]) -> list[str]:
    """Return the lines that continue a reST field: indented, up to the next field."""
    kept_lines: list[str] = []
    for line in lines:
        if not line.strip() or not line[0].isspace() or _REST_FIELD.match(line):
            break
        kept_lines.append(line)
    return kept_lines


def _join_lines(first: str, more_lines: Sequence[str]) -> str:
    return " ".join(
        part for part in (first.strip(), *(line.strip() for line in more_lines)) if part
    )
