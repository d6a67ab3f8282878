"""Finds out from the tests alone which names of the solution are used, and in which way.

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
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache

from .grading_job import GradingJob
from .idiom_words import HELPERS, JUDGES
from .origins import ACCESSORS, Origins, has_attribute
from .plain_attributes import (
    ARRAY_ATTRIBUTES,
    OF_VALUES,
    PLAIN_ATTRIBUTES,
    PLAIN_METHODS,
    PREDICATES,
)
from .scopes import IMPURE, global_names, is_installed
from .syntax import DECIDED, is_text, last_name, operator_name, parts_of, sides_of, variable_of

_BY_NAME = (*ACCESSORS, "attrgetter", "methodcaller")
_LOOKING = ("hash", "index", "count", "remove", "add")
_COLLECTING = ("set", "frozenset", "dict", "Counter")
"""Callables that look up the items of their argument, and not the argument itself."""
_TRACING = (
    ast.ClassDef, ast.With, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Delete,
    ast.Match, ast.AsyncFunctionDef, ast.Yield, ast.YieldFrom, ast.TryStar,
)  # fmt: skip
_OWN = frozenset(("_", "__name__", "_ludus_plain"))
"""Names with an underscore that tests may use without a trace."""
_BOUNDS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)


_MADE_OF = r"{0}\s*(?:=([^=].*\b{0}\b.*)|(?:[-+%@&|^]|//?|\*\*?|<<|>>)=)"
"""A statement that binds a name to a value made of itself."""


def _texts_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the texts that are written down among some nodes."""
    values = (node.value for node in nodes if isinstance(node, ast.Constant))
    return {value for value in values if isinstance(value, str)}


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


class Interface(Origins):
    """The tests' use of the solution's names.

    Args:
        job: the tests, and how they are run.
    """

    def __init__(self, job: GradingJob) -> None:
        super().__init__(job)
        self._text = "\n".join(job.tests)
        self.names = set(map(self.free, self.of(ast.Name, ast.Attribute))) - {""}
        """Every name of the solution that the tests use."""
        self.has_reference = bool(job.reference)
        defined, imported = _read_reference(job.reference)
        entry_point, declared = job.entry_point, dict(job.interface)
        own = {entry_point, *defined, *declared}
        self.standard, self.unsure = self._standard(own, imported, entry_point)
        if self.standard:
            self._follow()  # since other names are the solution's now
        self.names -= self.standard.keys()
        self.imports_solution = bool(self.modules or self._taken)
        self.classes = {*declared}
        self.declared = self.classes | {name for name, kind in defined.items() if kind == "class"}
        """The names that the option `interface` or the reference shows to make objects."""
        self.makers = set(self.classes)
        """Classes and makers whose results the tests use as objects, whatever the name's case; each
        is in `classes` too."""
        self.attributes = {name for names in declared.values() for name in names}
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
        if not helpers:
            return {}, set()
        for node in self.of(ast.Attribute):
            name = self.origin(node.value)
            is_class = name in helpers and name[0].isupper()
            if is_class and not has_attribute(helpers[name], name, node.attr):
                del helpers[name]  # a class of the solution of that name
        asked = set(map(self.free, self.of(ast.Attribute))) | self.imported
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
        called = {self.origin(node.func) for node in self.of(ast.Call)}
        self.compared = (called - objects) | {name for name in compared if name[:1].islower()}
        """Names whose results may be compared with each other, as functions and values are: they
        are called, and used in no other way that shows objects, or compared with values."""
        objects |= called
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
        of_makers = {attribute for name in self.makers for attribute in uses.get(name, ())}
        of_classes = {attribute for name in self.classes for attribute in uses.get(name, ())}
        self.attributes |= (self.said - plain) | (of_makers - PREDICATES)
        self.data_methods = (of_makers & PREDICATES) | (of_classes - PREDICATES)
        """Methods that plain values have too, and that objects under test answer with data; and
        the predicates that the tests ask of them. On any other object a predicate would be the
        outcome of a test, said by the solution."""

    def _seen_uses(self) -> tuple[dict[str, set[str]], set[str], set[str], set[str]]:
        """Note what the tests say, do and state; return the attributes that they use of each
        origin, the names that are used as classes or makers, those whose results are compared with
        each other, and those whose results are kept or made of nothing.
        """
        uses: dict[str, set[str]] = {}
        objects: set[str] = set()
        alike: set[str] = set()
        answered: set[str] = set()
        chained: set[tuple[str, str]] = set()
        """(method, attribute of what it gives)"""
        kept = {self.origin(value) for values in self._values.values() for value in values}
        for node in self.of(ast.Attribute, ast.Subscript, ast.Call, ast.keyword, ast.Compare):
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
                case ast.Call(func=function, args=given) if last_name(function) in _BY_NAME:
                    # A name that is no text here may be any text of the tests.
                    self.said |= _texts_in(given) or _texts_in(self._parents)
                case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                    objects |= set(map(self.free, getattr(kinds, "elts", [kinds])))
                case ast.Call(func=ast.Name(id="dict"), args=[_]) | ast.keyword(arg=None):
                    self.said.add("keys")
                case ast.Call(func=function, args=[_]) if last_name(function) == "closing":
                    self.said.add("close")
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
            for node in self.of(ast.Compare)
            if self._compares_its_like(node)
            for inner in self.within(node)
        }
        for node in self.of(ast.Assert, ast.Compare, ast.Call, ast.BinOp, ast.AugAssign):
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
                return self.origin(expression) in self.classes - self.compared
        return False

    def compares(self, node: ast.AST) -> bool:
        """Return whether a node is sure to compare or to look up objects under test, or compares
        a CapWords name's result with another name's, as in `f(1) == P(1)`.
        """
        sides = sides_of(node)
        origins = set(map(self.origin, sides)) - {""}
        if len(origins) > 1 and any(name[:1].isupper() for name in origins):
            return True
        match node:
            case ast.Dict(keys=parts) | ast.Set(elts=parts):
                return any(map(self._means_objects, parts))
            case ast.Subscript(value=value, slice=key) if not self.is_object(value):
                return self._means_objects(key) and not isinstance(value, (ast.List, ast.Tuple))
            case ast.Call(func=ast.Attribute(value=value)) if self.is_object(value):
                return False  # A method of the object's own.
            case ast.Call(func=function, args=given) if not (self.free(function) or sides):
                name = last_name(function)
                if name in _COLLECTING:
                    given = [part for part in given if not self.origin(part)]
                elif name in DECIDED:
                    given = given[:1] * name.endswith("In")
                return name in (*_COLLECTING, *DECIDED, *_LOOKING) and any(
                    map(self._means_objects, given)
                )
        return sum(map(self._means_objects, sides)) > 1

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
        names = self.classes.intersection(map(self.origin, self.reached(node)))
        return any(name[:1].isupper() or name in self.declared for name in names)

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

    def identifies(self) -> str:
        """Return a name, of no class or maker, of which the tests ask by `is` whether two results
        are the same; else "".
        """
        asked = [
            {self.origin(node.left), self.origin(node.comparators[0])}
            for node in self.of(ast.Compare)
            if isinstance(node.ops[0], (ast.Is, ast.IsNot))
        ]
        names = (origins.pop() for origins in asked if len(origins) == 1)
        return next((name for name in names if name and name not in self.classes), "")

    @cached_property
    def leaves_no_trace(self) -> bool:
        """Whether the tests may share their process with others: they are assertions, plain
        statements and pure functions, and touch no module's attributes.
        """
        names = self.loaded | self.binds | {node.attr for node in self.of(ast.Attribute)}
        impure = any(name in IMPURE or name[0] == "_" for name in names - _OWN)
        marks = any(node.decorator_list for node in self.of(ast.FunctionDef))
        return not (impure or marks or self.of(*_TRACING))

    @cached_property
    def rebound(self) -> str:
        """The first name that is bound to a value made of itself before any other use, as in
        `f = cached(f)` and `ITEMS += [1]`; "" if there is none.

        Such tests replace a name of the solution by their own, so that it would stand for both.
        """
        for name in sorted(self.binds - self.imported):
            line = re.search(rf"(?m)^.*?\b{name}\b.*$", self._text)
            match = re.match(_MADE_OF.format(name), line[0]) if line else None
            with suppress(SyntaxError):  # The statement goes on in the next line.
                if match and (not match[1] or name in global_names([f"({match[1].strip()})"])[0]):
                    return name
        return ""

    def missing_modules(self) -> list[str]:
        """Return the top-level modules that the tests import and that are not installed here, but
        for the solution's. An import inside a `try` does not count: those tests can do without.
        """
        guarded = {*self.within(*self.of(ast.Try))}
        names = {alias.name for n in self.of(ast.Import) if n not in guarded for alias in n.names}
        names |= {
            node.module or ""
            for node in self.of(ast.ImportFrom)
            if node not in guarded and not node.level
        }
        tops = {name.partition(".")[0] for name in names - {self.module}}
        return sorted(top for top in tops if not is_installed(top))

    @cached_property
    def drives_generators(self) -> bool:
        """Whether the tests may act on generators, or use the value that a generator returns."""
        acts = not self.attributes.isdisjoint(("send", "throw", "close", "value"))
        return acts or bool(self.of(ast.YieldFrom))

    @cached_property
    def bounded(self) -> set[str]:
        """The attributes of which the tests ask more than equality, unless time goes on between."""
        asked = [node for node in self.of(ast.Compare) if type(node.ops[0]) in _BOUNDS]
        used = {node.attr for node in self.within(*asked) if isinstance(node, ast.Attribute)}
        return set() if self.bound & {"time", "sleep"} else used

    @cached_property
    def scaling(self) -> set[tuple[str, str]]:
        """(operator, way) by which the tests make objects of plain data and of objects that come in
        that way (`_ways`), as in `((a + b) * 2).x` and `(body.speed * 2).x`.
        """
        used = [
            each
            for n in self.of(ast.Attribute)
            if n.attr in self.attributes - OF_VALUES
            for each in (n.value, *self.given(variable_of(n.value)))
        ]
        parts = self.within(*(n for n in used if isinstance(n, ast.BinOp)))
        sums = [n for n in parts if isinstance(n, ast.BinOp)]
        mixed = [n for n in sums if not all(map(self.loose_origin, (n.left, n.right)))]
        ways = ((n, way) for n in mixed for side in (n.left, n.right) for way in self._ways(side))
        return {(operator_name(n.op), way) for n, way in ways}

    def _ways(self, node: ast.expr) -> Iterable[str]:
        """Yield by which attribute, method, operator (`__add__`) or name (`f()`) a value comes."""
        for value in self.reached(
            node, parts=lambda n: [n.value] if isinstance(n, ast.Subscript) else ()
        ):
            match value:
                case ast.BinOp(op=op) | ast.UnaryOp(op=op):
                    yield f"__{operator_name(op)}__"
                case ast.Call(func=function) if name := self.free(function):
                    yield f"{name}()"
                case ast.Attribute(attr=name) | ast.Call(func=ast.Attribute(attr=name)):
                    yield name
                case ast.Call(func=ast.Name(id="sum")):
                    yield from ("__add__", "__radd__")
                case ast.Subscript():
                    yield "__getitem__"
                case ast.Name(id=name):
                    for n in self.of(ast.AugAssign):
                        if variable_of(n.target) == name:
                            operator = operator_name(n.op)
                            yield from (f"__{operator}__", f"__i{operator}__")

    @cached_property
    def shows_objects(self) -> bool:
        """Whether the tests may see what stands at each place of sorted objects."""
        said = {last_name(node.func) for node in self.of(ast.Call)}
        texts = self.of(ast.JoinedStr)
        return bool(self.attributes or texts or said & {"str", "repr", "format"})

    @cached_property
    def ranking(self) -> set[str]:
        """The names that the tests only hand over as a `key`, to put what they have in order."""
        keys = {self.free(node.value) for node in self.of(ast.keyword) if node.arg == "key"}
        return keys.difference(self.free(node.func) for node in self.of(ast.Call))

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
        errors = [node.exc for node in self.of(ast.Raise) if node.exc]
        names = {last_name(getattr(error, "func", error)) for error in errors}
        # Also those from which the tests derive the errors that they raise.
        names |= {last_name(base) for kind in self.of(ast.ClassDef) for base in kind.bases}
        kinds = [getattr(builtins, name, None) for name in {*names, "AssertionError"}]
        types = [kind for kind in kinds if isinstance(kind, type)]
        return [kind for kind in types if issubclass(kind, BaseException)]

    def makes(self, name: str) -> bool:
        """Return whether the tests call a name, other than to raise the result."""
        called = {*self.of(ast.Call)}.difference(node.exc for node in self.of(ast.Raise))
        return any(self.free(node.func) == name for node in called)


interface_of = lru_cache(maxsize=256)(Interface)
"""Kept, since a test runner meets the tests of a task with many solutions; bounded, since it holds
the tests' syntax trees.
"""
