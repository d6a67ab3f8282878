"""Marks the places in tests where an object of a class under test is meant, and what they do.

A mark is where the tests' syntax shows that an object under test is meant.

A proxy cannot know whether the tests mean it (`Vector(1, 2) * 3`) or a value that should have come
in its place (`account.balance() - 3`). The tests' syntax shows which: here such places are turned
into calls of `OPERATE`, `COMPARE` and `TYPE`, and proxies refuse operators everywhere else.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from .interface import Interface
from .proxies import (
    OWN_EQUALITY,
    SIGNS,
    Handle,
    as_plain,
    forward,
    has_own,
    held,
    is_known,
    line_of,
    operate_on_plain,
    token_of,
)
from .values import OpaqueClass


def operate(name: str, left: object, right: object) -> object:
    """Apply an operator where the tests' syntax shows that an object under test is meant."""
    if isinstance(left, Handle) or isinstance(right, Handle):
        for side in (left, right):
            if isinstance(side, Handle) and not is_known(side):
                return operate_on_plain(name, side, (left, right))
        result = forward(name, left, right)
        if name == "contains" and isinstance(left, Handle) and type(result) is not bool:
            raise line_of(left).refuse(token_of(left), "in")
        return result
    function: Callable[[object, object], object] = getattr(operator, name)
    return function(left, right)


def compare(name: str, means_objects: bool, left: object, right: object) -> object:
    """Carry out a comparison that the tests themselves write down.

    `means_objects`: the tests' syntax shows that objects under test are compared.
    """
    left, right = _plain_side(left, name), _plain_side(right, name)
    for side, opposite in ((left, right), (right, left)):
        if not isinstance(side, Handle):
            continue
        if name not in ("eq", "ne"):
            both_known = is_known(side) and isinstance(opposite, Handle) and is_known(opposite)
            if means_objects and both_known:
                idiom = f"compare objects of the solution by {SIGNS[name]}"
                raise line_of(side).cannot_judge(idiom)
            raise line_of(side).refuse(token_of(side), SIGNS[name])
        if means_objects and is_known(side) and opposite is not None and has_own(side, "__eq__"):
            raise line_of(side).cannot_judge(OWN_EQUALITY)
    function: Callable[[object, object], object] = getattr(operator, name)
    return function(left, right)


def _plain_side(side: object, name: str) -> object:
    """Return the plain data of a side, where the solution's class leaves the comparison to plain
    data.
    """
    if not isinstance(side, Handle):
        return side
    if name in ("eq", "ne") and is_known(side) and not has_own(side, "__eq__"):
        return side
    plain = as_plain(side, f"__{name}__")
    return side if plain is None else plain


def type_of(item: object) -> object:
    """Return the class of an object; for an object under test, a proxy of the solution's class."""
    handle = held(item)
    if isinstance(handle, Handle) and (is_known(handle) or handle is not item):
        return line_of(handle).ask("class", token_of(handle))
    return type(item)


def is_instance(item: object, kinds: type | tuple[type, ...]) -> bool:
    """Do what `isinstance` does, but an object whose class derives from plain data is plain data
    too.
    """
    if isinstance(item, kinds):
        return True
    plain = as_plain(item, "") if isinstance(item, Handle) else None
    return isinstance(plain, kinds)


def is_same(left: object, right: object) -> bool:
    """Do what `is` does; a class that the solution sent is the class that it stands for."""
    if isinstance(left, OpaqueClass) or isinstance(right, OpaqueClass):
        return bool(left == right)
    return left is right


OPERATE, COMPARE = "_ludus_operate", "_ludus_compare"
TYPE, INSTANCE, SAME = "_ludus_type", "_ludus_instance", "_ludus_same"
"""The names under which rewritten tests call what carries out operators, comparisons, `type()` and
`isinstance()`.
"""

_BINARY: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "and_", ast.BitOr: "or_",
    ast.BitXor: "xor", ast.LShift: "lshift", ast.RShift: "rshift",
}  # fmt: skip
_ORDER: dict[type, str] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_EQUAL: dict[type, str] = {ast.Eq: "eq", ast.NotEq: "ne"}


def mark(names: dict[str, object]) -> None:
    """Add the functions behind the marks to the names of the tests."""
    names[OPERATE], names[COMPARE] = operate, compare
    names[TYPE], names[INSTANCE], names[SAME] = type_of, is_instance, is_same


def rewritten(tree: ast.Module, interface: Interface) -> ast.Module:
    """Return the tests with the calls in place; `tree` itself is changed."""
    rewritten_tree = _Rewriter(interface).visit(tree)
    assert isinstance(rewritten_tree, ast.Module)
    return ast.fix_missing_locations(rewritten_tree)


class _Rewriter(ast.NodeTransformer):
    """Replaces the operators that concern objects under test by calls."""

    def __init__(self, interface: Interface) -> None:
        self._interface = interface

    def _is_object(self, node: ast.expr) -> bool:
        return self._interface.is_object(node)

    # `Interface` is asked about expressions before `generic_visit` replaces some of them by calls,
    # because it knows only the expressions that the tests wrote.

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        means_objects = self._is_object(node.left) or self._is_object(node.right)
        self.generic_visit(node)
        if not means_objects:
            return node
        return _call(OPERATE, node, _BINARY[type(node.op)], node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        target = node.target
        if not isinstance(target, ast.Name) or not self._is_object(_loaded(target)):
            return self.generic_visit(node)
        self.generic_visit(node)
        # `a += b` becomes `a = operate("iadd", a, b)`; `and_` and `or_` lose the underscore.
        name = "i" + _BINARY[type(node.op)].rstrip("_")
        value = _call(OPERATE, node, name, _loaded(target), node.value)
        return ast.copy_location(ast.Assign([target], value), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) != 1:
            return self.generic_visit(node)
        kind, right = type(node.ops[0]), node.comparators[0]
        sides = (node.left, right)
        means_objects = any(map(self._interface.means_objects, sides))
        contains = kind in (ast.In, ast.NotIn) and self._is_object(right)
        self.generic_visit(node)
        right = node.comparators[0]
        if kind in (ast.Is, ast.IsNot) and not isinstance(right, ast.Constant):
            call = _call(SAME, node, node.left, right)
            return call if kind is ast.Is else ast.copy_location(ast.UnaryOp(ast.Not(), call), call)
        if contains:
            call = _call(OPERATE, node, "contains", right, node.left)
            return call if kind is ast.In else ast.copy_location(ast.UnaryOp(ast.Not(), call), call)
        if kind in _ORDER or (kind in _EQUAL and means_objects):
            name = {**_ORDER, **_EQUAL}[kind]
            # Whether objects are meant decides who is to blame if a proxy is compared: the tests,
            # which cannot be judged then, or the solution, which fails.
            sure = ast.copy_location(ast.Constant(means_objects), node)
            return _call(COMPARE, node, name, sure, node.left, right)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) and not node.keywords else ""
        operation = {("type", 1): TYPE, ("isinstance", 2): INSTANCE}.get((name, len(node.args)))
        if operation and name not in self._interface.bound:
            node.func = ast.copy_location(ast.Name(operation, ast.Load()), node.func)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr != "__class__" or not isinstance(node.ctx, ast.Load):
            return node
        return _call(TYPE, node, node.value)


def _loaded(target: ast.Name) -> ast.Name:
    return ast.copy_location(ast.Name(target.id, ast.Load()), target)


def _call(name: str, location: ast.AST, *arguments: Any) -> ast.Call:
    call_arguments: list[ast.expr] = [
        ast.Constant(part) if isinstance(part, str) else part for part in arguments
    ]
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), call_arguments, []), location)
