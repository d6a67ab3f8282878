"""Finds the interface of the solution's objects from the way in which the tests use objects.

A name of the solution is *a class* where the tests use it so: its objects have attributes that no
plain value has, or attributes are set on them, or `isinstance` names it, or a name in CapWords is
called and the result is never compared with a value, calculated with or asserted. A function is *a
maker* where its result is used in that way. The option `interface` declares the rest.

Of objects, the tests may use the attributes that occur in the tests and that no plain value has,
and other attributes where they are used on what a class or a maker made. A name like `startswith`
or `pop` on anything else means a text or a list.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Mapping
from functools import cached_property, lru_cache

from .names import NamesOfTests, last_name
from .plain_attributes import ARRAY_ATTRIBUTES, PLAIN_ATTRIBUTES, PLAIN_METHODS, PREDICATES

_LOOKING = ("hash", "set", "frozenset", "dict", "Counter", "index", "count", "remove", "add")
_DECIDING = (ast.Assert, ast.BoolOp, ast.UnaryOp, ast.If, ast.IfExp, ast.While, ast.comprehension)
"""Syntax that takes a value as a truth value."""
_ACCESSORS = ("getattr", "hasattr", "setattr", "delattr")


def _crosses(kind: ast.ClassDef) -> bool:
    """Return whether objects of a class of the tests cross: functions, iterators and plain data."""
    defined = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
    return bool(kind.bases or defined & {"__call__", "__next__"})


class Interface(NamesOfTests):
    """The tests' use of the solution's names.

    Args:
        trees: the syntax trees of the tests.
        declared: name of the solution -> attributes, from the option `interface`.
        module: the name under which the tests import the solution.
        entry_point: the function or class under test, if the task names one.
    """

    def __init__(
        self,
        trees: list[ast.Module],
        declared: Mapping[str, Iterable[str]],
        module: str,
        entry_point: str = "",
    ) -> None:
        super().__init__(trees, module)
        self.classes: set[str] = set(declared)
        self.makers: set[str] = set(declared)
        self.attributes: set[str] = {name for names in declared.values() for name in names}
        """Attributes of the solution's objects that the tests may use."""
        self.data_methods: set[str] = set()
        """Methods that plain values have too, and that objects under test answer with data."""
        self.shown: set[str] = set()
        """Classes and makers whose results the tests use as objects, whatever the name's case."""
        self.said: set[str] = set()
        """Every attribute that the tests name, of any value."""
        # An entry point in CapWords is read like any other name, as a class where it is used so.
        declared_class = entry_point in declared or entry_point[:1].isupper()
        self._function = "" if declared_class else entry_point
        self._parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self._read_uses()

    def is_object(self, node: ast.expr) -> bool:
        """Return whether an expression is sure to be an object of a class or maker under test."""
        return self.origin(node) in self.shown

    # --- what it is used for --------------------------------------------------

    def _read_uses(self) -> None:
        uses: dict[str, set[str]] = {}
        objects: set[str] = set()
        everywhere = self.said
        for node in self.nodes:
            if isinstance(node, ast.Attribute):
                everywhere.add(node.attr)
                origin = self.loose_origin(node.value)
                uses.setdefault(origin, set()).add(node.attr)
                if self._of_an_object(node):
                    objects.add(origin)
                objects.add(self.free(node.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                objects |= self._asked_for(node, everywhere)
        plain = PLAIN_ATTRIBUTES | (
            ARRAY_ATTRIBUTES if not self.bound.isdisjoint(("np", "numpy")) else frozenset()
        )
        objects |= {name for name, places in uses.items() if places - plain}
        same_kind = {
            self._compares_its_like(node) for node in self.nodes if isinstance(node, ast.Compare)
        }
        objects |= same_kind - self._compared()
        objects = objects - {"", self._function} | (objects & {self._function} & set(uses))
        shown_objects = self.names & objects
        self.makers |= shown_objects
        self.classes |= shown_objects
        self.shown = shown_objects | self.makers
        undecided = self.names - objects - self._compared() - {self._function}
        self.classes |= {name for name in undecided if name[:1].isupper()}
        self.attributes |= everywhere - plain
        for name in self.shown:
            self.attributes |= uses.get(name, set())
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and self._gives_data(node):
                self.data_methods.add(node.attr)
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and self.free(node.value):
                self.attributes.add(node.attr)

    def _of_an_object(self, node: ast.Attribute) -> bool:
        """Return whether the use of an attribute shows that only an object can have the
        attribute.
        """
        parent = self._parents.get(node)
        if not isinstance(node.ctx, ast.Load):
            return True
        is_called = isinstance(parent, ast.Call) and parent.func is node
        if node.attr in PLAIN_METHODS and not is_called and not node.attr.startswith("_"):
            return True
        origin = self.origin(node.value)
        capital = origin[:1].isupper()
        statement = is_called and isinstance(self._parents.get(parent), ast.Expr)  # type: ignore[arg-type]
        bare = isinstance(node.value, ast.Call) and not (node.value.args or node.value.keywords)
        return capital and (statement or bare)

    def _gives_data(self, node: ast.Attribute) -> bool:
        """Return whether a method of a class under test returns data that the tests examine.

        That is so in `evens.index(4) == 2`, but not in `name.startswith("a")`, where the result
        itself is the outcome of the test.
        """
        call = self._parents.get(node)
        if not isinstance(call, ast.Call) or call.func is not node:
            return False
        if node.attr in PREDICATES or self.origin(node.value) not in self.classes:
            return False
        return not isinstance(self._parents.get(call), _DECIDING)

    def _asked_for(self, call: ast.Call, everywhere: set[str]) -> set[str]:
        """Return the classes that `isinstance` or `issubclass` names; record attributes named by
        constants.
        """
        name: str = call.func.id  # type: ignore[attr-defined]
        if name in _ACCESSORS and len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
            everywhere.add(str(call.args[1].value))
        if name not in ("isinstance", "issubclass") or len(call.args) != 2:
            return set()
        kinds = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]
        return {self.free(kind) for kind in kinds} - {""}

    def _compared(self) -> set[str]:
        """Return the names whose results are compared with values, calculated with or asserted.

        These names make plain values.
        """
        compared: set[str] = set()
        same_kind = {
            inner
            for node in self.nodes
            if isinstance(node, ast.Compare) and self._compares_its_like(node)
            for inner in ast.walk(node)
        }
        for node in self.nodes:
            if isinstance(node, ast.Assert):
                compared.add(self.origin(node.test))
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                compared.add(self.origin(node.left))
            elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
                origins = {self.loose_origin(side) for side in (node.left, *node.comparators)}
                compared |= origins if len(origins) > 1 else set()
            elif isinstance(node, ast.BinOp) and node not in same_kind:
                origins = {self.origin(node.left), self.origin(node.right)}
                compared |= origins if len(origins) > 1 else set()
        return compared

    def _compares_its_like(self, node: ast.Compare) -> str:
        """Return the CapWords name whose results (or values calculated from results) are on all
        sides.
        """
        origins = {self.loose_origin(side) for side in (node.left, *node.comparators)}
        name = origins.pop() if len(origins) == 1 else ""
        return name if name[:1].isupper() else ""

    def means_objects(self, node: ast.expr) -> bool:
        """Return whether an expression is sure to be, or to hold, objects under test."""
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return any(map(self.means_objects, node.elts))
        if isinstance(node, ast.Dict):
            keys = [key for key in node.keys if key]
            return any(map(self.means_objects, [*keys, *node.values]))
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return self.means_objects(node.elt)
        if isinstance(node, ast.BinOp):
            return self.means_objects(node.left) or self.means_objects(node.right)
        return self.is_object(node)

    @property
    def compares_objects(self) -> bool:
        """Whether the tests are sure to compare or to look up objects under test."""
        return any(map(self._compares, self.nodes))

    def judges_by_equality(self) -> str:
        """Return a CapWords name whose result the tests compare with the result of another name of
        the solution, as in `f(1) == P(1)`; else "".
        """
        for node in self.nodes:
            if isinstance(node, ast.Compare) and not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
                origins = {self.origin(side) for side in (node.left, *node.comparators)} - {""}
                capitals = sorted(name for name in origins if name[:1].isupper())
                if len(origins) > 1 and capitals:
                    return capitals[0]
        return ""

    @cached_property
    def drives_generators(self) -> bool:
        """Whether the tests may act on generators, or use the value that a generator returns."""
        acts = not self.attributes.isdisjoint(("send", "throw", "close", "value"))
        return acts or any(isinstance(node, ast.YieldFrom) for node in self.nodes)

    def _compares(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            looks = any(not isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
            return looks and sum(map(self.means_objects, sides)) > 1
        if isinstance(node, (ast.Set, ast.Dict)):
            return self.means_objects(node)
        if isinstance(node, ast.Subscript):
            return self.is_object(node.slice)
        if not isinstance(node, ast.Call) or self.free(node.func):
            return False
        name = last_name(node.func)
        looks = name in _LOOKING or name.startswith("assert")
        return looks and any(map(self.means_objects, node.args))

    def own_argument(self) -> str:
        """Return a class or coroutine function of the tests of which they pass an object to the
        solution, or "".
        """
        own = {
            node.name: node
            for node in self.nodes
            if isinstance(node, ast.AsyncFunctionDef)
            or (isinstance(node, ast.ClassDef) and not _crosses(node))
        }
        coroutines = {name for name, node in own.items() if isinstance(node, ast.AsyncFunctionDef)}
        for node in self.nodes:
            if isinstance(node, ast.Call) and (
                self.free(node.func)
                or (isinstance(node.func, ast.Attribute) and self.is_object(node.func.value))
            ):
                for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                    if isinstance(argument, ast.Name) and argument.id in coroutines:
                        return argument.id
                    if kind := self._own_kind(argument, own.keys()):
                        return kind
        return ""

    def _own_kind(self, node: ast.expr, own: Container[str], depth: int = 4) -> str:
        """Return the class of the tests or file in memory that an expression makes, or ""."""
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            return name if name in own or name in ("StringIO", "BytesIO") else ""
        nodes: list[ast.expr] = []
        if isinstance(node, (ast.List, ast.Tuple)):
            nodes = node.elts
        elif isinstance(node, ast.Name) and depth:
            nodes = self.given(node.id)
        return next(filter(None, (self._own_kind(part, own, depth - 1) for part in nodes)), "")

    def makes(self, name: str) -> bool:
        """Return whether the tests call a name, other than to raise the result."""
        raised = {node.exc for node in self.nodes if isinstance(node, ast.Raise)}
        return any(
            isinstance(node, ast.Call) and node not in raised and self.free(node.func) == name
            for node in self.nodes
        )


@lru_cache(maxsize=64)
def interface_of(
    sources: tuple[str, ...],
    declared: tuple[tuple[str, tuple[str, ...]], ...],
    module: str,
    entry_point: str,
) -> Interface:
    """Return the interface that tests show; kept, since a test runner meets the tests of a task
    with many solutions. Bounded, since it holds the tests' syntax trees.
    """
    return Interface(list(map(ast.parse, sources)), dict(declared), module, entry_point)
