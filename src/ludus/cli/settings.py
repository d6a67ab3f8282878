"""The settings of a config class as help text: name, default, and the docstring under the field."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
import typing
from collections.abc import Iterator
from typing import Any


def describe(cls: Any, prefix: str = "") -> str:
    """One line a setting, sections after plain settings."""
    return "\n".join(_lines(cls, prefix))


def _lines(cls: Any, prefix: str) -> Iterator[str]:
    documented = field_docs(cls)
    sections: list[tuple[str, Any]] = []
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            sections.append((field.name, hints[field.name]))
            continue
        shown = f"--{prefix}{field.name}={_default(field)}"
        yield f"  {shown:<36} {documented.get(field.name, '')}".rstrip()
    for name, inner in sections:
        yield f"\n  {prefix}{name}: {(inspect.getdoc(inner) or '').splitlines()[0]}"
        yield from _lines(inner, f"{prefix}{name}.")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return str(field.default)
    made = field.default_factory() if field.default_factory is not dataclasses.MISSING else ""
    return str(made)


def field_docs(cls: type) -> dict[str, str]:
    """The string under each field of a dataclass, on one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found: dict[str, str] = {}
    for node, after in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = _docstring(after)
            if text:
                found[node.target.id] = text
    return found


def _docstring(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        value = node.value.value
        return " ".join(value.split()) if isinstance(value, str) else ""
    return ""
