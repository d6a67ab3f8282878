"""Follows the values of the tests: what each name is bound to, and where a value comes from.

A name is the solution's where the tests use it and nothing else binds it. The *origin* of a value
is the name of the solution whose call made it, followed through variables, fixtures and helpers.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType
from typing import Any, TypeVar

from .grading_job import BrokenTests, GradingJob
from .scopes import ALIASES, BUILTINS, MODULE_NAMES, global_names
from .syntax import is_text, last_name, parts_of, variable_of

_Node = TypeVar("_Node", bound=ast.AST)
_LEAVES = frozenset(
    kind
    for base in (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
    for kind in base.__subclasses__()
)
"""Syntax that is looked at only as a part of other syntax."""
_ATOMS = frozenset({ast.Name, ast.Constant})
"""Syntax that holds nothing to read."""
ACCESSORS = ("getattr", "hasattr", "setattr", "delattr")
_COPYING = ("copy", "deepcopy")
_BINDING = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Assign,
    ast.AnnAssign, ast.NamedExpr, ast.withitem, ast.For, ast.AsyncFor, ast.comprehension, ast.Call,
)  # fmt: skip
_MOST_ROUNDS = 8
"""How often the values of all variables are followed at most; in order, one round is enough."""
_LIBRARIES = MODULE_NAMES | ALIASES.keys()


def has_attribute(module: str, *path: str) -> bool:
    """Return whether a module has an attribute, which may have one in turn; True without it."""
    try:
        owner: object = importlib.import_module(ALIASES.get(module, module))
    except ImportError:
        return True
    return all((owner := getattr(owner, name, path)) is not path for name in path)


class Origins:
    """What the names of the tests are bound to.

    Args:
        job: the tests, and how they are run.

    Raises:
        BrokenTests: a test does not compile.
    """

    def __init__(self, job: GradingJob) -> None:
        self.nodes: list[ast.AST] = []
        """The nodes of the tests' syntax trees, in order: a node comes before its children."""
        self._of_kind: dict[type[ast.AST], list[ast.AST]] = {}
        self._parents: dict[ast.AST, ast.AST] = {}
        self._spans: dict[ast.AST, tuple[int, int]] = {}
        """Node -> its number, and the number behind the last node inside of it."""
        self.codes: list[CodeType] = []
        """The tests, compiled."""
        for number, source in enumerate(job.tests):
            try:
                self._read_tree(ast.parse(source))
                self.codes.append(compile(source, "tests", "exec", dont_inherit=True))
            except (SyntaxError, ValueError) as error:
                raise BrokenTests(f"test {number} does not compile: {error}") from error
        self._functions: dict[str, list[ast.FunctionDef]] = {}
        self.module = job.module
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
        self._read: dict[str, tuple[set[str], set[str]]] = {}
        """Variable -> the names of the solution in its sources, and the variables."""
        self._read_bindings()
        self.loaded, self.binds, named = global_names(job.tests, job.prelude)
        self._assigned = named - self._taken.keys() - self.modules
        """The names that the tests assign, or import from elsewhere than the solution."""
        self.bound = self._assigned | {node.arg for node in self.of(ast.arg)}
        """Names to which the tests themselves assign a value."""
        self._read_libraries()
        self.standard: dict[str, str] = {}
        """Names of the standard library that the tests use as their own -> the module."""
        self._origins: dict[object, str | None] = {}
        """(variable or helper, whether loosely) -> the origin of all that it is given; parameter ->
        the name of the solution that every call gives it. None where that is not known yet."""
        self._follow()

    # --- syntax -----------------------------------------------------------------

    def _read_tree(self, tree: ast.AST) -> None:
        first, waiting = len(self.nodes), [tree]
        sizes: dict[ast.AST, int] = {}
        while waiting:
            node = waiting.pop()
            sizes[node] = 1
            self.nodes.append(node)
            self._of_kind.setdefault(type(node), []).append(node)
            if type(node) not in _ATOMS:
                parts = [part for part in ast.iter_child_nodes(node) if type(part) not in _LEAVES]
                for part in parts:
                    self._parents[part] = node
                waiting += parts[::-1]
        for number in range(len(self.nodes) - 1, first - 1, -1):
            node = self.nodes[number]
            self._spans[node] = number, number + sizes[node]
            if node is not tree:
                sizes[self._parents[node]] += sizes[node]

    def of(self, *kinds: type[_Node]) -> list[_Node]:
        """Return the nodes of some kinds, in order within each."""
        return [node for kind in kinds for node in self._of_kind.get(kind, ())]  # type: ignore[misc]

    def within(self, *nodes: ast.AST | None) -> list[ast.AST]:
        """Return nodes and all that they hold, in order."""
        spans = [self._spans[node] for node in nodes if node]
        return [node for start, end in spans for node in self.nodes[start:end]]

    # --- what names are bound to ----------------------------------------------

    def _read_bindings(self) -> None:
        for function in self.of(ast.FunctionDef):
            self._functions.setdefault(function.name, []).append(function)
        for node in self.of(*_BINDING):
            self._read_binding(node)

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
                inner = self.within(node)
                given = [n.value for n in inner if isinstance(n, (ast.Return, ast.Yield))]
                self._helpers[name] = given
                self._sources.setdefault(name, []).extend(filter(None, given))
                if any("fixture" in ast.dump(mark) for mark in node.decorator_list):
                    self._values.setdefault(name, []).extend(given)
                self._read_parameters(node, *node.body)
            case ast.Lambda(body=body):
                self._read_parameters(node, body)
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
        self, function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, *body: ast.AST
    ) -> None:
        """Record which names in the body of a function are its parameters."""
        own = {node.arg for node in self.within(function.args) if isinstance(node, ast.arg)}
        for node in self.within(*body) if own else ():
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

    def free(self, node: ast.AST) -> str:
        """Return the solution's name that an expression is; empty for other expressions."""
        return self._free(node) or ""

    def _free(self, node: ast.AST | None) -> str | None:
        """Likewise; None for a parameter of which it is not known yet."""
        match node:
            case ast.Attribute(value=ast.Name(id=base), attr=name):
                return name if base in self.modules else ""
            case ast.Name() if parameter := self._parameters.get(node):
                return self._origins.get(parameter, "")
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
            for node in self.of(ast.Attribute, ast.Name)
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
                uses = self.of(ast.Attribute)
                names = [n.attr for n in uses if variable_of(n.value) == alias]
                return names or None
        return None

    # --- where a value comes from ---------------------------------------------

    def origin(self, node: ast.AST | None) -> str:
        """Return the solution's name whose call made the value of `node`; empty if that is not
        sure.
        """
        return self._origin(node) or ""

    def loose_origin(self, node: ast.AST | None) -> str:
        """Return the origin of an expression, also if the value is calculated from an object."""
        return self._loose(node) or ""

    def _loose(self, node: ast.AST | None) -> str | None:
        match node:
            case ast.BinOp(left=left, right=right) if not is_text(node):
                return self._loose(left) or self._loose(right)
            case ast.UnaryOp(operand=operand):
                return self._loose(operand)
        return self._origin(node, loose=True)

    def _origin(self, node: ast.AST | None, *, loose: bool = False) -> str | None:
        """Likewise; None for a variable of which no value is known yet."""
        match node:
            case ast.Await(value=value) | ast.NamedExpr(value=value):
                return self._origin(value)
            case ast.Call(func=function, args=[value]) if last_name(function) in _COPYING:
                return self._origin(value)
            case ast.Call(func=ast.Subscript(value=kind)):
                # `Stack[int]()` makes an object of `Stack`.
                name = self.free(kind)
                return name if name[:1].isupper() else ""
            case ast.Call(func=function):
                helper = function.id if isinstance(function, ast.Name) else ""
                return self.free(function) or self._origins.get((f"{helper}()", False), "")
            case ast.expr() as variable if key := variable_of(variable):
                return self._origins.get((key, loose), "")
        return ""

    def _follow(self) -> None:
        """Find what all values of each variable, helper and parameter share, from what those in
        them share. Where they wait for each other, as in `a, b = b, a`, the others count.
        """
        given: list[tuple[object, Callable[[Any], str | None], Sequence[object]]] = [
            *((place, self._free, values) for place, values in self._arguments.items()),
            *(((f"{name}()", False), self._origin, each) for name, each in self._helpers.items()),
            *(((key, False), self._origin, self._values_given(key)) for key in self._values),
            *(((key, True), self._loose, self._values_given(key, True)) for key in self._values),
        ]
        self._read.clear()
        self._origins = dict.fromkeys(place for place, _, _ in given)
        for _ in range(_MOST_ROUNDS):
            before = {**self._origins}
            for place, name_of, values in given:
                names = {*map(name_of, values)} - {None}
                self._origins[place] = names.pop() if len(names) == 1 else "" if names else None
            if self._origins == before:
                return

    def _values_given(self, key: str, loose: bool = False) -> list[ast.expr | None]:
        """Return what a variable is given, except values reached from itself, as by `node =
        node.next`, or, if `loose`, made of itself.
        """
        return [
            value
            for value in self._values.get(key, [])
            if not (isinstance(value, ast.Attribute) and variable_of(value.value) == key)
            and not (
                loose and any(isinstance(n, ast.Name) and n.id == key for n in self.within(value))
            )
        ]

    def given(self, name: str) -> list[ast.expr]:
        """Return what the tests give a variable."""
        return [each for each in self._values_given(name) if each and variable_of(each) != name]

    def reached(
        self, *nodes: ast.expr, parts: Callable[[ast.expr], Iterable[ast.expr]] = lambda _: ()
    ) -> Iterator[ast.expr]:
        """Yield expressions and all that they may be: what variables and parameters on the way are
        given, and what `parts` names of each.
        """
        waiting, seen = [*nodes], set[object]()
        while waiting:
            yield (value := waiting.pop())
            waiting += parts(value)
            key = self._parameters.get(value) or variable_of(value)
            if key not in seen:
                seen.add(key)
                given = self._arguments.get(key, []) if isinstance(key, tuple) else []
                waiting += given or self.given(variable_of(value))

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
        for inner in self.within(*nodes):
            if not isinstance(inner, (ast.Name, ast.Attribute)):
                continue
            key = variable_of(inner)
            is_own = key in self.modules or key in self._taken
            if name := self.free(inner) or (key if is_own else ""):
                names.add(name)
            elif key:
                variables.add(key)
        return names, variables
