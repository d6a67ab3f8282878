"""Marks the places in tests where a proxy must know that the tests themselves ask.

Python gives an object no say in `type(x)`, `isinstance(x, plain)` and `is`. Such places are turned
into calls of the functions below.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from types import CodeType
from typing import Any

from . import proxies
from .grading_job import GradingJob
from .interface import interface_of
from .proxies import Handle, as_plain, ask, held, state_of


def type_of(item: object) -> object:
    """Return the class of an object; for an object under test, a proxy of the solution's class."""
    handle = held(item)
    if isinstance(handle, Handle) and (state_of(handle).known or not proxies.is_function(handle)):
        return ask(handle, "class")
    return type(item)


def is_instance(item: object, kinds: type | tuple[type, ...]) -> bool:
    """Do what `isinstance` does, but an object whose class derives from plain data is plain data
    too.
    """
    plain = as_plain(item, "") if isinstance(item, Handle) else None
    return isinstance(item, kinds) or (plain is not None and isinstance(plain, kinds))


MARKS: dict[str, object] = {"_ludus_type": type_of, "_ludus_instance": is_instance,
          "_ludus_same": proxies.is_same}  # fmt: skip
"""The functions above, by the names under which rewritten tests call them."""


_PLACES = re.compile(r"\bis\b|\btype\b|\bisinstance\b|__class__")
"""What shows that there may be such places."""


def marked(job: GradingJob) -> list[ast.Module]:
    """Return the syntax trees of tests in which such places call the functions of `MARKS`."""
    rewriter = _Rewriter(interface_of(job).bound)
    return [ast.fix_missing_locations(rewriter.visit(ast.parse(test))) for test in job.tests]


@lru_cache(maxsize=256)
def compiled(job: GradingJob) -> list[CodeType]:
    """Return tests that are ready to run, marked where that is needed."""
    if not any(map(_PLACES.search, job.tests)):
        return interface_of(job).codes
    return [compile(tree, "tests", "exec", dont_inherit=True) for tree in marked(job)]


class _Rewriter(ast.NodeTransformer):
    """Replaces operators and calls that concern objects of the solution.

    `bound`: the names to which the tests assign.
    """

    def __init__(self, bound: set[str]) -> None:
        self._bound = bound

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        kind, right = type(node.ops[0]), node.comparators[0]
        if len(node.ops) != 1 or kind not in (ast.Is, ast.IsNot) or isinstance(right, ast.Constant):
            return node
        call = _call("_ludus_same", node, node.left, right)
        return call if kind is ast.Is else ast.copy_location(ast.UnaryOp(ast.Not(), call), call)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) and not node.keywords else ""
        mark = {("type", 1): "_ludus_type", ("isinstance", 2): "_ludus_instance"}.get(
            (name, len(node.args))
        )
        if mark and name not in self._bound:
            node.func = ast.copy_location(ast.Name(mark, ast.Load()), node.func)
        return node

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        return node  # A pattern holds no calls.

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr != "__class__" or not isinstance(node.ctx, ast.Load):
            return node
        return _call("_ludus_type", node, node.value)


def _call(name: str, location: ast.AST, *arguments: Any) -> ast.Call:
    call = ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
    return ast.copy_location(call, location)
