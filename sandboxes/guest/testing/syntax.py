"""Reads single expressions of the tests: names, parts of collections, comparisons, operators."""

from __future__ import annotations

import ast

_CLOSE = ("isclose", "allclose", "array_equal")
_UNCOMPARING = ("assertIs", "assertTrue", "assertFalse", "assertRaises")
DECIDED = ("assertIn", "assertNotIn", "assertTrue", "assertFalse")
"""Assertions whose first argument is compared or is true, and is no collection."""
_OPERATORS = {"mult": "mul", "matmult": "matmul", "div": "truediv", "usub": "neg", "uadd": "pos"}


def last_name(node: ast.expr) -> str:
    """Return the last name of a path: `c` for `a.b.c` and for `c`; empty for other expressions."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def variable_of(node: ast.expr) -> str:
    """Return the key of a variable: a name, or `self.name`; empty for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"self.{name}"
    return ""


def parts_of(node: ast.expr) -> list[ast.expr]:
    """Return the parts of a list, tuple or set that is written down."""
    return node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else []


def sides_of(node: ast.AST) -> list[ast.expr]:
    """Return both or more sides of a comparison by value; none for `is` and for other syntax."""
    match node:
        case ast.Compare(ops=[ast.Is() | ast.IsNot(), *_]):
            return []
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Call(func=function, args=[left, right, *_]):
            name = last_name(function)
            compares = name.startswith("assert") and not name.startswith((*_UNCOMPARING, *DECIDED))
            return [left, right] if compares or name in _CLOSE else []
    return []


def is_text(node: ast.AST | None) -> bool:
    """Return whether an expression puts values into a text by `%`."""
    match node:
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
            return True
    return False


def operator_name(node: ast.operator | ast.unaryop) -> str:
    """Return the name of an operator in the module `operator`."""
    name = type(node).__name__.lower()
    return _OPERATORS.get(name, name.removeprefix("bit"))
