"""What the names of the tests stand for: which belong to the solution, and where values come from.

A name is the solution's where the tests use it and nothing else binds it. The origin of a value is
the name of the solution whose call made it, followed through variables, fixtures and helpers.
"""

from __future__ import annotations

import ast
import builtins

from .scopes import ALIASES, MODULE_NAMES


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


_BUILTINS = frozenset(dir(builtins))
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class NamesOfTests:
    """The bindings of the tests' own names, and the solution's names among the others.

    Args:
        trees: the syntax trees of the tests.
        module: the name under which the tests import the solution.
    """

    def __init__(self, trees: list[ast.Module], module: str) -> None:
        self.module = module
        self.modules: set[str] = set()
        """The names under which the tests import the module of the solution."""
        self.bound: set[str] = set()
        """Names to which the tests themselves assign a value."""
        self.nodes = [node for tree in trees for node in ast.walk(tree)]
        self._functions: dict[str, list[ast.FunctionDef]] = {}
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef):
                self._functions.setdefault(node.name, []).append(node)
        self._renamed: dict[str, str] = {}
        self._values: dict[str, list[ast.expr | None]] = {}
        self._helpers: dict[str, list[ast.expr | None]] = {}
        self._read_names()
        self.names = {self.free(n) for n in self.nodes if isinstance(n, (ast.Name, ast.Attribute))}
        """Every name of the solution that the tests use."""
        self.names.discard("")

    def _read_names(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    (self.modules if alias.name == self.module else self.bound).add(name)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if node.module != self.module:
                        self.bound.add(alias.asname or alias.name)
                    elif alias.asname:
                        self._renamed[alias.asname] = alias.name
            elif isinstance(node, _SCOPES):
                self.bound.add(node.name)
                if not isinstance(node, ast.ClassDef):
                    inside = list(ast.walk(node))
                    returned = [
                        part.value for part in inside if isinstance(part, (ast.Return, ast.Yield))
                    ]
                    self._helpers[node.name] = returned
                    for argument in (part for part in inside if isinstance(part, ast.arg)):
                        self.bound.add(argument.arg)
                    if any(
                        isinstance(mark, ast.AST) and "fixture" in ast.dump(mark)
                        for mark in node.decorator_list
                    ):
                        self._values.setdefault(node.name, []).extend(returned)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                self.bound.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
                self.bound.add(node.id)
            self._read_binding(node)

    def _read_binding(self, node: ast.AST) -> None:
        """Record what a name, or an attribute of `self`, is given."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            self._bind(node.target, node.value)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            is_literal = isinstance(node.iter, (ast.List, ast.Tuple, ast.Set))
            for value in node.iter.elts if is_literal else [None]:  # type: ignore[attr-defined]
                self._bind(node.target, value)
        elif isinstance(node, ast.withitem) and node.optional_vars:
            self._bind(node.optional_vars, node.context_expr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            # `check(f)` passes the solution's `f` as the parameter `candidate`.
            for callee in self._functions.get(node.func.id, ()):
                for parameter, argument in zip(callee.args.args, node.args, strict=False):
                    if isinstance(argument, ast.Name) and argument.id != parameter.arg:
                        self._renamed[parameter.arg] = argument.id

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            elements = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            same = len(elements) == len(target.elts)
            for number, part in enumerate(target.elts):
                self._bind(part, elements[number] if same else None)
        elif key := variable_of(target):
            self._values.setdefault(key, []).append(value)

    def free(self, node: ast.expr) -> str:
        """Return the solution's name that an expression is; empty for other expressions."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return node.attr if node.value.id in self.modules else ""
        if not isinstance(node, ast.Name):
            return ""
        name = self._renamed.get(node.id, node.id)
        if name != node.id:
            return name
        is_defined = name in self.bound or name in _BUILTINS or name in self.modules
        return "" if is_defined or name in MODULE_NAMES or name in ALIASES else name

    # --- where a value comes from ---------------------------------------------

    def origin(self, node: ast.expr | None, depth: int = 8) -> str:
        """Return the solution's name whose call made the value of `node`; empty if that is not
        sure.
        """
        if node is None or depth == 0:
            return ""
        if isinstance(node, (ast.Await, ast.NamedExpr)):
            return self.origin(node.value, depth - 1)
        if isinstance(node, ast.Call):
            # `Stack[int]()` makes an object of `Stack`.
            subscripted = isinstance(node.func, ast.Subscript)
            name = self.free(node.func.value if subscripted else node.func)  # type: ignore[attr-defined]
            if subscripted and not name[:1].isupper():
                name = ""
            if last_name(node.func) in ("copy", "deepcopy") and len(node.args) == 1:
                return self.origin(node.args[0], depth - 1)
            if not name and isinstance(node.func, ast.Name) and node.func.id in self._helpers:
                return self._same(self._helpers[node.func.id], depth)
            return name
        key = variable_of(node)
        return self._same(self._values_given(key), depth) if key else ""

    def _values_given(self, key: str) -> list[ast.expr | None]:
        """Return what a variable is given, except values reached from itself: `node =
        node.next`.
        """
        return [
            value
            for value in self._values.get(key, [])
            if not (isinstance(value, ast.Attribute) and variable_of(value.value) == key)
        ]

    def given(self, name: str) -> list[ast.expr]:
        """Return what the tests give a variable."""
        return [
            value
            for value in self._values_given(name)
            if value is not None and variable_of(value) != name
        ]

    def _same(self, values: list[ast.expr | None], depth: int) -> str:
        origins = {self.origin(value, depth - 1) for value in values}
        return origins.pop() if len(origins) == 1 else ""

    def loose_origin(self, node: ast.expr) -> str:
        """Return the origin of an expression, also if the value is calculated from an object."""
        if isinstance(node, ast.Name):
            values = [
                value for value in self._values_given(node.id) if not mentions(value, node.id)
            ]
            origins = {self.loose_origin(value) if value else "" for value in values}
            return origins.pop() if len(origins) == 1 else ""
        if isinstance(node, ast.BinOp):
            return self.loose_origin(node.left) or self.loose_origin(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.loose_origin(node.operand)
        return self.origin(node)
