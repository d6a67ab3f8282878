"""Follows the values of the tests: what each name is bound to, and where a value comes from.

A name is the solution's where the tests use it and nothing else binds it. The *origin* of a value
is the name of the solution whose call made it, followed through variables, fixtures and helpers.
"""

from __future__ import annotations

import ast
import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from .scopes import ALIASES, BUILTINS, MODULE_NAMES, tables
from .syntax import inside, is_text, last_name, parts_of, variable_of

_LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
"""Syntax that is looked at only as a part of other syntax."""
ACCESSORS = ("getattr", "hasattr", "setattr", "delattr")
_COPYING = ("copy", "deepcopy")
_LONGEST_WAY = 8
"""The most variables and helpers through which the origin of a value is followed."""
_LIBRARIES = MODULE_NAMES | ALIASES.keys()


def has_attribute(module: str, *path: str) -> bool:
    """Return whether a module has an attribute, which may have one in turn; True without it."""
    try:
        found: object = importlib.import_module(ALIASES.get(module, module))
    except ImportError:
        return True
    return all((found := getattr(found, name, path)) is not path for name in path)


class Origins:
    """What the names of the tests are bound to.

    Args:
        sources: the tests.
        module: the name under which the tests import the solution.
        prelude: source that runs before the tests, whose names are theirs.
    """

    def __init__(self, sources: tuple[str, ...], module: str, prelude: str) -> None:
        nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
        self.nodes = [node for node in nodes if not isinstance(node, _LEAVES)]
        self._parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self._functions: dict[str, list[ast.FunctionDef]] = {}
        self.module = module
        self.modules: set[str] = set()
        """The names under which the tests import the module of the solution."""
        self._taken: dict[str, str] = {}
        """The names that `from module import name as other` binds: other -> name."""
        self.imported: set[str] = set()
        """The names that the tests take from the solution's module, by `from module import name` or
        by `name = module.name`. They are the module's, although the tests bind them."""
        self._parameters: dict[ast.AST, tuple[ast.AST, str]] = {}
        """Name in the body of a function or lambda -> (the innermost that has a parameter of that
        name, the name). A parameter is no name of the solution, and hides one only there."""
        self._arguments: dict[tuple[ast.AST, str], list[ast.expr]] = {}
        """Parameter of a function of the tests -> the arguments that calls by name give it."""
        self._values: dict[str, list[ast.expr | None]] = {}
        self._sources: dict[str, list[ast.AST]] = {}
        """Variable -> what its values are, or are parts of."""
        self._helpers: dict[str, list[ast.expr | None]] = {}
        self._found: dict[tuple[str, frozenset[str], bool], str] = {}
        """(variable or helper, those that led to it, whether loosely) -> the origin of all that it
        is given, which many uses ask for."""
        self._read: dict[str, tuple[set[str], set[str]]] = {}
        """Variable -> the names of the solution in its sources, and the variables."""
        self._read_bindings()
        self._assigned = self._assigned_in((prelude, *sources))
        """The names in `bound` that are more than parameters."""
        self.bound = self._assigned | {node.arg for node in self.nodes if isinstance(node, ast.arg)}
        """Names to which the tests themselves assign a value."""
        self._read_libraries()
        self.standard: dict[str, str] = {}
        """Names of the standard library that the tests use as their own -> the module."""

    def _forget(self) -> None:
        """Forget what was found, since other names are the solution's now."""
        self._found.clear()
        self._read.clear()

    # --- what names are bound to ----------------------------------------------

    def _read_bindings(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef):
                self._functions.setdefault(node.name, []).append(node)
        for node in self.nodes:  # calls are given to functions, wherever these are defined
            self._read_binding(node)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                self._read_parameters(node)

    def _assigned_in(self, sources: tuple[str, ...]) -> set[str]:
        """Return the names that the tests assign, or import from elsewhere than the solution."""
        symbols = [symbol for table in tables(sources) for symbol in table.get_symbols()]
        imported = {symbol.get_name() for symbol in symbols if symbol.is_imported()}
        assigned = {symbol.get_name() for symbol in symbols if symbol.is_assigned()}
        return (imported - self._taken.keys() - self.modules) | assigned

    def _read_binding(self, node: ast.AST) -> None:
        """Record what a node gives to names of the tests, and takes from the solution's module."""
        match node:
            case ast.Import(names=names):
                own = [alias for alias in names if alias.name == self.module]
                self.modules |= {alias.asname or alias.name.partition(".")[0] for alias in own}
            case ast.ImportFrom(names=names, module=self.module):
                self._taken |= {alias.asname or alias.name: alias.name for alias in names}
                self.imported |= {each.name for each in names if each.asname in (None, each.name)}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                returned = [n for n in ast.walk(node) if isinstance(n, (ast.Return, ast.Yield))]
                given = [part.value for part in returned]
                self._helpers[name] = given
                self._sources.setdefault(name, []).extend(filter(None, given))
                if any("fixture" in ast.dump(mark) for mark in node.decorator_list):
                    self._values.setdefault(name, []).extend(given)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
                if isinstance(value, ast.Attribute) and variable_of(value.value) == self.module:
                    self.imported |= {value.attr} & set(map(variable_of, targets))
            case (
                ast.AnnAssign(target=target, value=value)
                | ast.NamedExpr(target=target, value=value)
                | ast.withitem(optional_vars=ast.expr() as target, context_expr=value)
            ):
                self._bind(target, value)
            case (
                ast.For(target=target, iter=items)
                | ast.AsyncFor(target=target, iter=items)
                | ast.comprehension(target=target, iter=items)
            ):
                for item in parts_of(items) or (None,):
                    self._bind(target, item, items)
            case ast.Call(func=ast.Name(id=name)):
                # `check(f)` passes the solution's `f` as the parameter `candidate`.
                for callee in self._functions.get(name, ()):
                    for parameter, argument in zip(callee.args.args, node.args, strict=False):
                        self._arguments.setdefault((callee, parameter.arg), []).append(argument)
                        self._sources.setdefault(parameter.arg, []).append(argument)

    def _read_parameters(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    ) -> None:
        """Record which names in the body of a function are its parameters."""
        own = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        body = function.body if isinstance(function.body, list) else [function.body]
        for statement in body if own else []:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and node.id in own:
                    self._parameters[node] = function, node.id  # Inner functions come later.

    def _bind(
        self, target: ast.expr, value: ast.expr | None, whole: ast.expr | None = None
    ) -> None:
        """Record what a target is given: `value`, or, if that is None, a part of `whole`."""
        if isinstance(target, (ast.Tuple, ast.List)):
            elements = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            same = len(elements) == len(target.elts)
            for number, part in enumerate(target.elts):
                self._bind(part, elements[number] if same else None, value or whole)
        elif key := variable_of(target):
            self._values.setdefault(key, []).append(value)
            self._sources.setdefault(key, []).extend(filter(None, (value or whole,)))

    def free(self, node: ast.AST, depth: int = 4) -> str:
        """Return the solution's name that an expression is; empty for other expressions."""
        match node:
            case ast.Attribute(value=ast.Name(id=base), attr=name):
                return name if base in self.modules else ""
            case ast.Name() if parameter := self._parameters.get(node):
                names = {
                    self.free(argument, depth - 1)
                    for argument in self._arguments.get(parameter, ())
                    if depth and self._parameters.get(argument) != parameter  # no recursion
                }
                return names.pop() if len(names) == 1 else ""
            case ast.Name(id=name):
                if (original := self._taken.get(name, name)) != name:
                    return original
                known = (self._assigned, BUILTINS, self.modules, self.standard)
                library = name in _LIBRARIES and name not in self._objects
                return "" if library or any(name in names for names in known) else name
        return ""

    def _read_libraries(self) -> None:
        """Find the modules that the tests use without an import, or as the solution's own."""
        uses = [
            (name, self._used_as_module(node))
            for node in self.nodes
            if (name := self._module_named(node)) in _LIBRARIES
        ]
        self._objects = {
            name for name, used in uses if not all(has_attribute(name, each) for each in used or ())
        }
        """Names of modules that stand for an object, since the module has no such attribute."""
        by_itself = {name for name, used in uses if used is None}
        self.libraries = {name for name, _ in uses} - self._objects - by_itself
        """Names that the tests use only as a module is used, and that stand for the module."""

    def _module_named(self, node: ast.AST) -> str:
        """Return a name that no name of the tests hides; empty for other expressions."""
        match node:
            case ast.Attribute(value=ast.Name(id=base), attr=name) if base in self.modules:
                return name
            case ast.Name(id=name, ctx=ast.Load()) if node not in self._parameters:
                return "" if name in self._assigned else name
        return ""

    def _used_as_module(self, node: ast.AST) -> list[str] | None:
        """Return the attributes that the tests use of a name as they may of a module; None for
        another use, such as a call.
        """
        match self._parents[node]:
            case ast.Attribute(attr=name):
                return [name]
            case ast.Call(func=ast.Name(id=name), args=[first, *more]) if first is node:
                asked = [str(each.value) for each in more[:1] if isinstance(each, ast.Constant)]
                return asked if name in ACCESSORS else None
            case ast.Assign(targets=[ast.Name(id=alias)]):
                uses = [n for n in self.nodes if isinstance(n, ast.Attribute)]
                names = [n.attr for n in uses if variable_of(n.value) == alias]
                return names or None
        return None

    def by_scope(self) -> Iterable[Sequence[ast.AST]]:
        """Return the nodes of each function and module of the tests, in the order of their text."""
        scopes: dict[ast.AST, list[ast.AST]] = {}
        scope_of: dict[ast.AST, ast.AST] = {}
        for node in self.nodes:  # A node comes after the one that holds it.
            parent = self._parents.get(node, node)
            is_function = isinstance(parent, ast.FunctionDef)
            scope_of[node] = parent if is_function else scope_of.get(parent, parent)
            scopes.setdefault(scope_of[node], []).append(node)
        for nodes in scopes.values():
            placed = [node for node in nodes if isinstance(node, (ast.expr, ast.stmt))]
            placed.sort(key=lambda n: (n.lineno, n.col_offset, n.end_lineno, n.end_col_offset))
            yield placed

    def used_of(self, name: str) -> set[str]:
        """Return the attributes that the tests use of a name of the solution."""
        attributes = (node for node in self.nodes if isinstance(node, ast.Attribute))
        return {node.attr for node in attributes if self.free(node.value) == name}

    # --- where a value comes from ---------------------------------------------

    def origin(
        self, node: ast.AST | None, seen: frozenset[str] = frozenset(), *, loose: bool = False
    ) -> str:
        """Return the solution's name whose call made the value of `node`; empty if that is not
        sure.

        Args:
            node: an expression.
            seen: the variables and helpers of the tests that led here.
            loose: whether a value that is calculated from an object comes from that object.
        """
        match node if len(seen) < _LONGEST_WAY else None:
            case ast.Await(value=value) | ast.NamedExpr(value=value):
                return self.origin(value, seen)
            case ast.Call(func=function, args=[value]) if last_name(function) in _COPYING:
                return self.origin(value, seen)
            case ast.Call(func=ast.Subscript(value=kind)):
                # `Stack[int]()` makes an object of `Stack`.
                name = self.free(kind)
                return name if name[:1].isupper() else ""
            case ast.Call(func=function):
                helper = function.id if isinstance(function, ast.Name) else ""
                returned = self._helpers.get(helper, [])
                return self.free(function) or self._same(f"{helper}()", lambda: returned, seen)
            case ast.BinOp(left=left, right=right) if loose and not is_text(node):
                return self.origin(left, seen, loose=True) or self.origin(right, seen, loose=True)
            case ast.UnaryOp(operand=operand) if loose:
                return self.origin(operand, seen, loose=True)
            case ast.expr() as variable if key := variable_of(variable):
                values = partial(self._values_given, key, loose=loose)
                return self._same(key, values, seen, loose=loose)
        return ""

    def _same(
        self,
        key: str,
        values: Callable[[], list[ast.expr | None]],
        seen: frozenset[str],
        *,
        loose: bool = False,
    ) -> str:
        """Return the origin that all values of a variable or helper share, but for values that it
        gives in turn: `a, b = b, a`.
        """
        if key in seen:
            return ""
        place = key, seen, loose
        if place not in self._found:
            way, given = seen | {key}, values()
            known = {variable_of(value) or value: value for value in given if value}
            others = [value for each, value in known.items() if each not in way]
            origins = {self.origin(value, way, loose=loose) for value in others}
            is_sure = len(origins) == 1 and None not in given
            self._found[place] = origins.pop() if is_sure else ""
        return self._found[place]

    def _values_given(self, key: str, *, loose: bool = False) -> list[ast.expr | None]:
        """Return what a variable is given, except values reached from itself, as by `node =
        node.next`, or, if `loose`, made of itself.
        """
        return [
            value
            for value in self._values.get(key, [])
            if not (isinstance(value, ast.Attribute) and variable_of(value.value) == key)
            and not (loose and any(isinstance(n, ast.Name) and n.id == key for n in inside(value)))
        ]

    def given(self, name: str) -> list[ast.expr]:
        """Return what the tests give a variable."""
        return [each for each in self._values_given(name) if each and variable_of(each) != name]

    def reached(
        self, node: ast.expr, parts: Callable[[ast.expr], Iterable[ast.expr]] = lambda _: ()
    ) -> Iterator[ast.expr]:
        """Yield an expression and all that it may be: what variables and parameters on the way are
        given, and what `parts` names of each.
        """
        waiting, seen = [node], set[object]()
        while waiting:
            yield (value := waiting.pop())
            waiting += parts(value)
            key = self._parameters.get(value) or variable_of(value)
            if key not in seen:
                seen.add(key)
                given = self._arguments.get(key, []) if isinstance(key, tuple) else []
                waiting += given or self.given(variable_of(value))

    def loose_origin(self, node: ast.AST | None) -> str:
        """Return the origin of an expression, also if the value is calculated from an object."""
        return self.origin(node, loose=True)

    def flows(self, node: ast.AST) -> set[str]:
        """Return the names of the solution, and of its module, from which any part of a value may
        come.
        """
        names, waiting = self._read_in([node])
        seen = set[str]()
        while waiting:
            seen.add(key := waiting.pop())
            if key not in self._read:
                self._read[key] = self._read_in(self._sources.get(key, ()))
            named, variables = self._read[key]
            names |= named
            waiting |= variables - seen
        return names

    def _read_in(self, nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
        """Return the names of the solution, and of its module, in nodes, and the variables."""
        names, variables = set[str](), set[str]()
        for inner in itertools.chain.from_iterable(map(ast.walk, nodes)):
            key = variable_of(inner) if isinstance(inner, ast.expr) else ""
            is_own = key in self.modules or key in self._taken
            if name := self.free(inner) or (key if is_own else ""):
                names.add(name)
            elif key:
                variables.add(key)
        return names, variables
