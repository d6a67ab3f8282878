"""Small questions about expressions in tests."""

from __future__ import annotations

import ast


def last_name(node: ast.expr) -> str:
    """Return the last name of a path: `c` for `a.b.c` and for `c`; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def variable_of(node: ast.expr) -> str:
    """Return the key of a variable: a name, or `self.name`; empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"self.{node.attr}" if node.value.id == "self" else ""
    return ""


def mentions(value: ast.expr | None, name: str) -> bool:
    """Return whether an expression uses a variable."""
    if value is None:
        return False
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))
