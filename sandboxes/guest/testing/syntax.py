"""Small questions about expressions of tests."""

from __future__ import annotations

import ast


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`, and of `c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def variable_of(node: ast.expr) -> str:
    """What a variable is kept under: its name, or `self.name`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"self.{node.attr}" if node.value.id == "self" else ""
    return ""


def mentions(value: ast.expr | None, name: str) -> bool:
    """Whether a variable is calculated from itself."""
    if value is None:
        return False
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))
