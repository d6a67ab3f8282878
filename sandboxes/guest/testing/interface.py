"""Finds out from the tests alone what of the solution they use, and in which way.

A name is the solution's where the tests use it and nothing else binds it. The *origin* of a value
is the name of the solution whose call made it, followed through variables, fixtures and helpers.

A name of the solution is *a class* where the tests use it so: its objects have attributes that no
plain value has, or attributes are set on them, or `isinstance` names it, or a name in CapWords is
called and the result is never compared with a value, calculated with or asserted. A function is *a
maker* where its result is used in that way. Where the tests only calculate with the result of a
name in CapWords, they do not show what it is. The classes that a reference solution defines, and
the option `interface`, say the rest.

Of objects, the tests may use the attributes that occur in the tests and that no plain value has,
and other attributes where they are used on what a class or a maker made. A name like `startswith`
or `pop` on anything else means a text or a list.
"""

from __future__ import annotations

import ast
import builtins
import importlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache

from .idiom_words import HELPERS, JUDGES
from .plain_attributes import (
    ARRAY_ATTRIBUTES,
    OF_VALUES,
    PLAIN_ATTRIBUTES,
    PLAIN_METHODS,
    PREDICATES,
)
from .scopes import ALIASES, BUILTINS, MODULE_NAMES, tables
from .syntax import (
    DECIDED,
    inside,
    is_text,
    last_name,
    operator_name,
    parts_of,
    sides_of,
    variable_of,
)

_LOOKING = ("hash", "index", "count", "remove", "add")
_COLLECTING = ("set", "frozenset", "dict", "Counter")
"""What looks up the items of what it is given, and not the argument itself."""
_LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
"""Syntax that is looked at only as a part of other syntax."""
_ACCESSORS = ("getattr", "hasattr", "setattr", "delattr")


_COPYING = ("copy", "deepcopy")
_LONGEST_WAY = 8
"""The most variables and helpers through which the origin of a value is followed."""


_BOUNDS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_LIBRARIES = MODULE_NAMES | ALIASES.keys()


def _has(module: str, *path: str) -> bool:
    """Return whether a module has an attribute, which may have one in turn; True without it."""
    try:
        found: object = importlib.import_module(ALIASES.get(module, module))
    except ImportError:
        return True
    return all((found := getattr(found, name, path)) is not path for name in path)


def _read_reference(source: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return what a reference solution defines (name -> `class` or `def`), and the names that it
    takes from modules (name -> the module).
    """
    defined: dict[str, str] = {}
    imported: dict[str, str] = {}
    with suppress(SyntaxError, ValueError):  # its own grading says so
        for node in ast.parse(source).body:
            match node:
                case ast.ClassDef(name=name):
                    defined[name] = "class"
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    defined[name] = "def"
                case ast.ImportFrom(names=names, module=str(module), level=0):
                    imported |= {each.name: module for each in names if not each.asname}
    return defined, imported


class Interface:
    """The tests' use of the solution's names.

    Args:
        sources: the tests.
        declared: (name of the solution, attributes) from the option `interface`.
        module: the name under which the tests import the solution.
        entry_point: the function or class under test, if the task names one.
        reference: the reference solution, or "".
        prelude: source that runs before the tests, whose names are theirs.
    """

    def __init__(
        self,
        sources: tuple[str, ...],
        declared: tuple[tuple[str, tuple[str, ...]], ...],
        module: str,
        entry_point: str,
        reference: str,
        prelude: str,
    ) -> None:
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
        self._read_bindings()
        self._assigned = self._assigned_in((prelude, *sources))
        """The names in `bound` that are more than parameters."""
        self.bound = self._assigned | {node.arg for node in self.nodes if isinstance(node, ast.arg)}
        """Names to which the tests themselves assign a value."""
        self._read_libraries()
        self.standard: dict[str, str] = {}
        """Names of the standard library that the tests use as their own -> the module."""
        self.names = {self.free(node) for node in self.nodes} - {""}
        """Every name of the solution that the tests use."""
        self.has_reference = bool(reference)
        defined, imported = _read_reference(reference)
        own = {entry_point, *defined, *dict(declared)}
        self.standard, self.unsure = self._standard(own, imported, entry_point)
        self.names -= self.standard.keys()
        self.classes = {name for name, _ in declared}
        self.declared = self.classes | {name for name, kind in defined.items() if kind == "class"}
        """The names that the option `interface` or the reference shows to make objects."""
        self.makers = set(self.classes)
        """Classes and makers whose results the tests use as objects, whatever the name's case; each
        is in `classes` too."""
        self.attributes = {name for _, names in declared for name in names}
        """Attributes of the solution's objects that the tests may use."""
        self.acted: set[str] = set()
        """Names whose results do something in a statement of its own, as in `bag.add(3)`."""
        self.stated: set[str] = set()
        """Methods of whose answers the tests never make use."""
        self.said: set[str] = set()
        """Every attribute that the tests name, of any value."""
        # An entry point in CapWords is read like any other name, as a class where it is used so.
        declared_class = entry_point in self.classes or entry_point[:1].isupper()
        self._read_uses("" if declared_class else entry_point, defined)

    def _standard(
        self, own: set[str], imported: dict[str, str], entry_point: str
    ) -> tuple[dict[str, str], set[str]]:
        """Return the helpers that the solution may not supply, since it could judge itself by
        them (name -> module), and those of which only a reference could say whose they are.

        Args:
            own: the entry point, and what the reference and the option `interface` define.
            imported: what the reference imports.
            entry_point: the entry point.
        """
        helpers = {
            name: module
            for name, module in {**HELPERS, **imported}.items()
            if name in self.names and name not in own
        }
        for node in self.nodes:
            match node:
                case ast.Attribute(value=value, attr=attribute):
                    name = self.origin(value)
                    is_class = name in helpers and name[0].isupper()
                    if is_class and not _has(helpers[name], name, attribute):
                        del helpers[name]  # a class of the solution of that name
        asked = {self.free(n) for n in self.nodes if isinstance(n, ast.Attribute)} | self.imported
        free = helpers.keys() - asked
        if not (self.modules or self.names - free):
            free = set()  # The tests use nothing else of the solution.
        met = {name for each in map(self._meeting, self.nodes) if len(each) > 1 for name in each}
        settled = self.has_reference or entry_point in self.names
        standard = {n for n in free if n in JUDGES or (settled and n in met)}
        standard |= helpers.keys() & imported.keys()
        unsure = (met & (free | (asked & JUDGES.keys() & helpers.keys()))) - standard
        return {name: helpers[name] for name in standard}, unsure

    def _meeting(self, node: ast.AST) -> set[str]:
        """Return the names of the solution that a statement uses together."""
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return self.flows(node) - self.modules
        parts = ast.iter_child_nodes(node) if isinstance(node, ast.stmt) else ()
        sides = [self.flows(part) for part in parts if isinstance(part, ast.expr)]
        return set().union(*sides) - self.modules

    def flows(self, node: ast.AST) -> set[str]:
        """Return the names of the solution, and of its module, from which any part of a value may
        come.
        """
        names: set[str] = set()
        seen: set[str] = set()
        sources = [node]
        while sources:
            for inner in ast.walk(sources.pop()):
                key = variable_of(inner) if isinstance(inner, ast.expr) else ""
                is_own = key in self.modules or key in self._taken
                if name := self.free(inner) or (key if is_own else ""):
                    names.add(name)
                elif key and key not in seen:
                    seen.add(key)
                    sources += self._sources.get(key, ())
        return names

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
            name for name, used in uses if not all(_has(name, each) for each in used or ())
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
                return asked if name in _ACCESSORS else None
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
        self, node: ast.AST | None, seen: tuple[str, ...] = (), *, loose: bool = False
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
                return self.free(function) or self._same(f"{helper}()", returned, seen)
            case ast.BinOp(left=left, right=right) if loose and not is_text(node):
                return self.origin(left, seen, loose=True) or self.origin(right, seen, loose=True)
            case ast.UnaryOp(operand=operand) if loose:
                return self.origin(operand, seen, loose=True)
            case ast.expr() as variable if key := variable_of(variable):
                return self._same(key, self._values_given(key, loose=loose), seen, loose=loose)
        return ""

    def _same(
        self, key: str, values: list[ast.expr | None], seen: tuple[str, ...], *, loose: bool = False
    ) -> str:
        """Return the origin that all values of a variable or helper share, but for values that it
        gives in turn: `a, b = b, a`.
        """
        seen = (*seen, key)
        known = {variable_of(value) or value: value for value in values if value}
        others = [value for each, value in known.items() if each not in seen]
        origins = {self.origin(value, seen, loose=loose) for value in others}
        return origins.pop() if len(origins) == 1 and None not in values else ""

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

    def loose_origin(self, node: ast.AST | None) -> str:
        """Return the origin of an expression, also if the value is calculated from an object."""
        return self.origin(node, loose=True)

    def is_object(self, node: ast.expr) -> bool:
        """Return whether an expression is sure to be an object of a class or maker under test."""
        return self.origin(node) in self.makers

    # --- what it is used for --------------------------------------------------

    def _read_uses(self, function: str, reference: Mapping[str, str]) -> None:
        """Find the classes, makers and attributes.

        `function`: a name that is neither; `reference`: what the reference solution defines.
        """
        uses, objects, alike, kept = self._seen_uses()
        arrays = ARRAY_ATTRIBUTES if self.bound & {"np", "numpy"} else frozenset()
        plain = PLAIN_ATTRIBUTES | arrays
        compared, calculated = self._compared()
        objects |= alike - compared - calculated
        objects |= {name for name, attributes in uses.items() if attributes - plain}
        if function not in uses:
            objects.discard(function)
        objects |= {name for name, kind in reference.items() if kind == "class"} - compared
        objects &= self.names
        self.makers |= objects
        undecided = self.names - self.makers - compared - {function}
        undecided = {n for n in undecided if n[:1].isupper() and reference.get(n) != "def"}
        self.unclear = undecided & calculated
        """Names in CapWords with whose results the tests calculate and that nothing else shows to
        be classes."""
        self.classes |= objects | (undecided - calculated)
        self.kept = (self.classes & kept) - uses.keys()
        """Classes of whose objects, which the tests keep in variables or make of nothing, no
        attribute is used. `in` asks them, and arithmetic with plain values does not: a value may be
        compared by it in a helper (`abs(a - b)`)."""
        made = {attribute for name in self.makers for attribute in uses.get(name, ())}
        of_classes = {attribute for name in self.classes for attribute in uses.get(name, ())}
        self.attributes |= (self.said - plain) | (made - PREDICATES)
        self.data_methods = (made & PREDICATES) | (of_classes - PREDICATES)
        """Methods that plain values have too, and that objects under test answer with data; and
        the predicates that the tests ask of them. On any other object a predicate would be the
        outcome of a test, said by the solution."""

    def _seen_uses(self) -> tuple[dict[str, set[str]], set[str], set[str], set[str]]:
        """Note what the tests say, do and state; return the attributes that they use of each
        origin, the names that are used as classes or makers, those whose results are compared with
        each other, and those whose results are kept or made of nothing.
        """
        uses: dict[str, set[str]] = {}
        # No plain value is called.
        objects = {self.origin(node.func) for node in self.nodes if isinstance(node, ast.Call)}
        alike: set[str] = set()
        answered: set[str] = set()
        chained: set[tuple[str, str]] = set()
        """(method, attribute of what it gives)"""
        kept = {self.origin(value) for values in self._values.values() for value in values}
        for node in self.nodes:
            match node:
                case ast.Attribute(value=value, attr=name):
                    self.said.add(name)
                    origin = self.loose_origin(value)
                    uses.setdefault(origin, set()).add(name)
                    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
                        chained.add((value.func.attr, name))
                    if owner := self.free(value):
                        objects.add(owner)
                        self.attributes.add(name)
                    if self._of_an_object(node):
                        objects.add(origin)
                    if call := self._called(node):
                        is_stated = isinstance(self._parents[call], ast.Expr)
                        self.acted |= {self.origin(value)} if is_stated else set()
                        (self.stated if is_stated else answered).add(name)
                case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                    self.acted.add(origin := self.origin(value))
                    objects |= {origin} if origin[:1].isupper() else set()
                case ast.Call(func=ast.Name(id=name), args=[_, ast.Constant(value=said), *_]) if (
                    name in _ACCESSORS
                ):
                    self.said.add(str(said))
                case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                    objects |= set(map(self.free, getattr(kinds, "elts", [kinds])))
                case ast.Call(func=ast.Name(id="dict"), args=[_]) | ast.keyword(arg=None):
                    self.said.add("keys")
                case ast.Call(func=ast.expr() as made, args=[], keywords=[]):
                    kept.add(self.free(made))
                case ast.Compare():
                    alike.add(self._compares_its_like(node))
        self.stated -= answered
        gives_objects = {giver for giver, name in chained if name not in PLAIN_ATTRIBUTES}
        self.stated |= {name for giver, name in chained if giver in gives_objects}
        return uses, objects, alike, kept

    def _called(self, node: ast.AST) -> ast.Call | None:
        """Return the call of an expression, if it is called."""
        parent = self._parents.get(node)
        return parent if isinstance(parent, ast.Call) and parent.func is node else None

    def _of_an_object(self, node: ast.Attribute) -> bool:
        """Return whether the use of an attribute shows that only an object can have the
        attribute.
        """
        call = self._called(node)
        if not isinstance(node.ctx, ast.Load) or (node.attr in PLAIN_METHODS and not call):
            return True
        statement = call and isinstance(self._parents.get(call), ast.Expr)
        bare = isinstance(node.value, ast.Call) and not (node.value.args or node.value.keywords)
        return self.origin(node.value)[:1].isupper() and bool(statement or bare)

    def _compared(self) -> tuple[set[str], set[str]]:
        """Return the names whose results are compared with values or asserted, which make plain
        values, and those whose results are calculated with.
        """
        compared: set[str] = set()
        calculated: set[str] = set()
        alike = {
            inner
            for node in self.nodes
            if isinstance(node, ast.Compare) and self._compares_its_like(node)
            for inner in ast.walk(node)
        }
        for node in self.nodes:
            match node:
                case (
                    ast.Assert(test=result)
                    | ast.Compare(left=result, ops=[ast.In() | ast.NotIn(), *_])
                ):
                    others = getattr(node, "comparators", [])
                    parts = {self.origin(part) for other in others for part in parts_of(other)}
                    compared |= {self.origin(result)} - parts
                case ast.Call(func=ast.Attribute(attr=name), args=[result, *_]) if name in DECIDED:
                    compared.add(self.origin(result))
                case ast.Compare() | ast.Call():
                    origins = set(map(self.loose_origin, sides_of(node)))
                    if len(origins) > 1:
                        compared |= set(map(self.origin, sides_of(node)))
                        calculated |= origins
                case (
                    ast.BinOp(left=left, right=right) | ast.AugAssign(target=left, value=right)
                ) if node not in alike and not is_text(node):
                    parts = {self.origin(left), self.origin(right)}
                    calculated |= parts if len(parts) > 1 else set()
        return compared, calculated

    def _compares_its_like(self, node: ast.Compare) -> str:
        """Return the CapWords name whose results (or values calculated from results) are on all
        sides.
        """
        origins = set(map(self.loose_origin, (node.left, *node.comparators)))
        name = origins.pop() if len(origins) == 1 else ""
        return name if name[:1].isupper() else ""

    def _means_objects(self, node: ast.AST | None) -> bool:
        """Return whether an expression is sure to be, or to hold, objects under test."""
        match node:
            case ast.List() | ast.Tuple() | ast.Set() | ast.Dict() | ast.BinOp():
                return any(map(self._means_objects, ast.iter_child_nodes(node)))
            case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part):
                return self._means_objects(part)
            case ast.expr() as expression:
                return self.origin(expression) in self.classes
        return False

    def compares(self, node: ast.AST) -> bool:
        """Return whether a node is sure to compare or to look up objects under test."""
        match node:
            case ast.Compare(left=left, ops=operators, comparators=others):
                looks = any(not isinstance(operator, (ast.Is, ast.IsNot)) for operator in operators)
                return looks and sum(map(self._means_objects, [left, *others])) > 1
            case ast.Dict(keys=parts) | ast.Set(elts=parts):
                return any(map(self._means_objects, parts))
            case ast.Subscript(value=value, slice=key) if not self.is_object(value):
                return self._means_objects(key) and not isinstance(value, (ast.List, ast.Tuple))
            case ast.Call(func=ast.Attribute(value=value)) if self.is_object(value):
                return False  # A method of the object's own.
            case ast.Call(func=function, args=given) if not self.free(function):
                name = last_name(function)
                if name in _COLLECTING:
                    given = [part for part in given if not self.origin(part)]
                elif name in DECIDED:
                    given = given[:1] * name.endswith("In")
                elif name not in _LOOKING:
                    given = sides_of(node)
                return any(map(self._means_objects, given))
        return False

    def is_close(self, node: ast.AST) -> bool:
        """Return whether a node is a comparison like `abs(a - b) < eps`, in which `-` may be that
        of an object under test.
        """
        match node:
            case ast.Compare(left=left, ops=[operator, *_], comparators=others):
                return isinstance(operator, _BOUNDS[:4]) and any(
                    map(self.is_close, [left, *others])
                )
            case ast.Call(args=[value]) | ast.UnaryOp(operand=value):
                return self.is_close(value)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self._may_be_object(left) or self._may_be_object(right)
        return False

    def _may_be_object(self, node: ast.expr) -> bool:
        """Return whether an expression may be an object that the tests make by the name of a class,
        whose operators meet plain values.
        """
        seen: set[object] = set()
        waiting = [node]
        while waiting:
            name = self.origin(given := waiting.pop())
            if name in self.classes and (name[:1].isupper() or name in self.declared):
                return True
            key, parameter = variable_of(given), self._parameters.get(given)
            if (parameter or key) not in seen:
                seen.add(parameter or key)
                waiting += self._arguments.get(parameter, []) if parameter else self.given(key)
        return False

    def in_helper(self, node: ast.AST) -> bool:
        """Return whether a node stands in a function that is no test, such as one that calls itself
        for each part of a tree.
        """
        while not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if (outer := self._parents.get(node)) is None:
                return False
            node = outer
        return not (node.name == "check" or node.name.lower().startswith("test"))

    def deciders(self, node: ast.AST) -> Iterable[ast.AST]:
        """Return what decides whether a statement or call is carried out, within its function."""
        functions = ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda
        while not isinstance(node, functions) and node in self._parents:
            inner, node = node, self._parents[node]
            match node:
                case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                    yield test
                case ast.BoolOp(values=[first, *_]) if inner is not first:
                    yield first
                case ast.Try(body=body) if inner not in body:
                    yield from body
                case ast.Match(subject=subject):
                    yield subject

    def judges_by_equality(self) -> str:
        """Return a CapWords name whose result the tests compare with the result of another name of
        the solution, as in `f(1) == P(1)`; else "".
        """
        for node in self.nodes:
            origins = set(map(self.origin, sides_of(node))) - {""}
            capitals = sorted(name for name in origins if name[:1].isupper())
            if len(origins) > 1 and capitals:
                return capitals[0]
        return ""

    def identifies(self) -> str:
        """Return a name, of no class or maker, of which the tests ask by `is` whether two results
        are the same; else "".
        """
        asked = [
            {self.origin(node.left), self.origin(node.comparators[0])}
            for node in self.nodes
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))
        ]
        names = (origins.pop() for origins in asked if len(origins) == 1)
        return next((name for name in names if name and name not in self.classes), "")

    @cached_property
    def drives_generators(self) -> bool:
        """Whether the tests may act on generators, or use the value that a generator returns."""
        acts = not self.attributes.isdisjoint(("send", "throw", "close", "value"))
        return acts or any(isinstance(node, ast.YieldFrom) for node in self.nodes)

    @cached_property
    def bounded(self) -> set[str]:
        """The attributes of which the tests ask more than equality, unless time goes on between."""
        asked = [n for n in self.nodes if isinstance(n, ast.Compare) and type(n.ops[0]) in _BOUNDS]
        used = {n.attr for each in asked for n in ast.walk(each) if isinstance(n, ast.Attribute)}
        return set() if self.bound & {"time", "sleep"} else used

    @cached_property
    def scaling(self) -> set[tuple[str, str]]:
        """(operator, way) by which the tests make objects of plain data and of objects that come in
        that way (`_ways`), as in `((a + b) * 2).x` and `(body.speed * 2).x`.
        """
        used = [
            each
            for n in self.nodes
            if isinstance(n, ast.Attribute) and n.attr in self.attributes - OF_VALUES
            for each in (n.value, *self.given(variable_of(n.value)))
        ]
        parts = [part for n in used if isinstance(n, ast.BinOp) for part in ast.walk(n)]
        made = [n for n in parts if isinstance(n, ast.BinOp)]
        mixed = [n for n in made if not all(map(self.loose_origin, (n.left, n.right)))]
        ways = ((n, way) for n in mixed for side in (n.left, n.right) for way in self._ways(side))
        return {(operator_name(n.op), way) for n, way in ways}

    def _ways(self, node: ast.expr, depth: int = 4) -> set[str]:
        """Return by which attribute, method, operator (`__add__`) or name (`f()`) a value comes."""
        match node:
            case ast.BinOp(op=op) | ast.UnaryOp(op=op):
                return {f"__{operator_name(op)}__"}
            case ast.Call(func=function) if name := self.free(function):
                return {f"{name}()"}
            case ast.Attribute(attr=name) | ast.Call(func=ast.Attribute(attr=name)):
                return {name}
            case ast.Call(func=ast.Name(id="sum")):
                return {"__add__", "__radd__"}
            case ast.Subscript(value=value):
                return {"__getitem__", *self._ways(value, depth)}
            case ast.Name(id=name) if depth:
                ways = {way for n in self.given(name) for way in self._ways(n, depth - 1)}
                changes = [n for n in self.nodes if isinstance(n, ast.AugAssign)]
                return ways.union(
                    f"__{form}{operator_name(n.op)}__"
                    for n in changes
                    if variable_of(n.target) == name
                    for form in ("", "i")
                )
        return set()

    @cached_property
    def acting(self) -> set[str]:
        """The functions that the tests call in statements of their own, for what they do; inside
        `with` or `try`, for what they raise.
        """
        guards, outer = (ast.With, ast.AsyncWith, ast.Try), self._parents
        calls = (n for n in self.nodes if isinstance(n, ast.Call) and type(outer[n]) is ast.Expr)
        return {self.free(n.func) for n in calls if not isinstance(outer[outer[n]], guards)}

    @cached_property
    def shows_objects(self) -> bool:
        """Whether the tests may see what stands at each place of sorted objects."""
        said = {last_name(node.func) for node in self.nodes if isinstance(node, ast.Call)}
        has_texts = any(isinstance(node, ast.JoinedStr) for node in self.nodes)
        return bool(self.attributes or has_texts or said & {"str", "repr", "format"})

    @cached_property
    def texts(self) -> set[str]:
        """The names of whose results the tests use nothing but the text."""
        uses = [(self.origin(node), node) for node in self.nodes if isinstance(node, ast.expr)]
        return {name for name, _ in uses} - {name for name, node in uses if not self._shows(node)}

    def _shows(self, node: ast.expr) -> bool:
        """Return whether an expression is put into a text, or kept in a variable."""
        parent = self._parents[node]
        if isinstance(parent, ast.Call) and node in parent.args[:1]:
            return last_name(parent.func) in ("str", "repr", "format", "print")
        return isinstance(parent, (ast.FormattedValue, ast.Assign))

    def decorates(self, mark: ast.expr) -> str:
        """Return the solution's name that decorates by itself or by what a call of it returns."""
        return self.free(mark.func if isinstance(mark, ast.Call) else mark)

    @cached_property
    def raised(self) -> list[type[BaseException]]:
        """The built-in exceptions that the tests themselves raise."""
        errors = [node.exc for node in self.nodes if isinstance(node, ast.Raise) and node.exc]
        names = {last_name(getattr(error, "func", error)) for error in errors}
        # Also those from which the tests derive the errors that they raise.
        own = [node for node in self.nodes if isinstance(node, ast.ClassDef)]
        names |= {last_name(base) for kind in own for base in kind.bases}
        kinds = [getattr(builtins, name, None) for name in {*names, "AssertionError"}]
        types = [kind for kind in kinds if isinstance(kind, type)]
        return [kind for kind in types if issubclass(kind, BaseException)]

    def makes(self, name: str) -> bool:
        """Return whether the tests call a name, other than to raise the result."""
        raised = {node.exc for node in self.nodes if isinstance(node, ast.Raise)}
        return any(
            isinstance(node, ast.Call) and node not in raised and self.free(node.func) == name
            for node in self.nodes
        )


interface_of = lru_cache(maxsize=64)(Interface)
"""Kept, since a test runner meets the tests of a task with many solutions; bounded, since it holds
the tests' syntax trees.
"""
