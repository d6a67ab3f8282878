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
import builtins
from collections.abc import Iterable, Mapping

from .plain_attributes import ARRAY_ATTRIBUTES, PLAIN_ATTRIBUTES, PLAIN_METHODS, PREDICATES
from .syntax import last_name, mentions, variable_of
from .traceless import ALIASES, MODULE_NAMES

_BUILTINS = frozenset(dir(builtins))
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CATCHING = (
    "raises", "assertRaises", "assertRaisesRegex", "isinstance", "issubclass", "assertIsInstance",
    "suppress",
)  # fmt: skip
_LOOKING = ("hash", "set", "frozenset", "dict", "Counter", "index", "count", "remove", "add")
_DECIDING = (ast.Assert, ast.BoolOp, ast.UnaryOp, ast.If, ast.IfExp, ast.While, ast.comprehension)
"""Syntax that takes a value as a truth value."""
_ACCESSORS = ("getattr", "hasattr", "setattr", "delattr")


class Interface:
    """The tests' use of the solution's names.

    Args:
        trees: the syntax trees of the tests.
        declared: name of the solution -> attributes, from the option `interface`.
        module: the name under which the tests import the solution.
        entry_point: the function under test, if the task names one.
    """

    def __init__(
        self,
        trees: list[ast.Module],
        declared: Mapping[str, Iterable[str]],
        module: str,
        entry_point: str = "",
    ) -> None:
        self.module = module
        self.modules: set[str] = set()
        """The names under which the tests import the module of the solution."""
        self.bound: set[str] = set()
        """Names to which the tests themselves assign a value."""
        self.classes: set[str] = set(declared)
        self.makers: set[str] = set(declared)
        self.attributes: set[str] = {name for names in declared.values() for name in names}
        """Attributes of the solution's objects that the tests may use."""
        self.data_methods: set[str] = set()
        """Methods that plain values have too, and that objects under test answer with data."""
        self._shown: set[str] = set()
        """Classes and makers whose results the tests use as objects, whatever the name's case."""
        self.said: set[str] = set()
        """Every attribute that the tests name, of any value."""
        self._function = entry_point if entry_point not in declared else ""
        self._renamed: dict[str, str] = {}
        self._values: dict[str, list[ast.expr | None]] = {}
        self._helpers: dict[str, list[ast.expr | None]] = {}
        self._nodes = [node for tree in trees for node in ast.walk(tree)]
        self._parents = {
            child: node for node in self._nodes for child in ast.iter_child_nodes(node)
        }
        self._read_names()
        self.names = {self.free(n) for n in self._nodes if isinstance(n, (ast.Name, ast.Attribute))}
        """Every name of the solution that the tests use."""
        self.names.discard("")
        self._read_uses()

    # --- names ----------------------------------------------------------------

    def _read_names(self) -> None:
        for node in self._nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    (self.modules if alias.name == self.module else self.bound).add(name)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
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

    def _import_from(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if node.module != self.module:
                self.bound.add(alias.asname or alias.name)
            elif alias.asname:
                self._renamed[alias.asname] = alias.name

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
            self._bind_arguments(node)

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            elements = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            same = len(elements) == len(target.elts)
            for number, part in enumerate(target.elts):
                self._bind(part, elements[number] if same else None)
        elif key := variable_of(target):
            self._values.setdefault(key, []).append(value)

    def _bind_arguments(self, call: ast.Call) -> None:
        """Record that `check(f)` passes the solution's `f` as the parameter `candidate`."""
        for node in self._nodes:
            if isinstance(node, ast.FunctionDef) and node.name == call.func.id:  # type: ignore[attr-defined]
                for parameter, argument in zip(node.args.args, call.args, strict=False):
                    if isinstance(argument, ast.Name) and argument.id != parameter.arg:
                        self._renamed[parameter.arg] = argument.id

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
            name = self.free(node.func)
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

    def is_object(self, node: ast.expr) -> bool:
        """Return whether an expression is sure to be an object of a class or maker under test."""
        return self.origin(node) in self._shown

    def _loose_origin(self, node: ast.expr) -> str:
        """Return the origin of an expression, also if the value is calculated from an object."""
        if isinstance(node, ast.Name):
            values = [
                value for value in self._values_given(node.id) if not mentions(value, node.id)
            ]
            origins = {self._loose_origin(value) if value else "" for value in values}
            return origins.pop() if len(origins) == 1 else ""
        if isinstance(node, ast.BinOp):
            return self._loose_origin(node.left) or self._loose_origin(node.right)
        if isinstance(node, ast.UnaryOp):
            return self._loose_origin(node.operand)
        return self.origin(node)

    # --- what it is used for --------------------------------------------------

    def _read_uses(self) -> None:
        uses: dict[str, set[str]] = {}
        objects: set[str] = set()
        everywhere = self.said
        for node in self._nodes:
            if isinstance(node, ast.Attribute):
                everywhere.add(node.attr)
                origin = self._loose_origin(node.value)
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
            self._compares_its_like(node) for node in self._nodes if isinstance(node, ast.Compare)
        }
        objects |= same_kind - self._compared()
        self._decide(objects - {"", self._function} | (objects & {self._function} & set(uses)))
        self.attributes |= everywhere - plain
        for name in self._shown:
            self.attributes |= uses.get(name, set())
        for node in self._nodes:
            if isinstance(node, ast.Attribute) and self._gives_data(node):
                self.data_methods.add(node.attr)
        for node in self._nodes:
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

    def _decide(self, objects: set[str]) -> None:
        names = self.names
        shown_objects = names & objects
        self.makers |= shown_objects
        self.classes |= shown_objects
        self._shown = shown_objects | self.makers
        compared = self._compared()
        for name in names - objects - compared - {self._function}:
            if name[:1].isupper():
                self.classes.add(name)

    def _compared(self) -> set[str]:
        """Return the names whose results are compared with values, calculated with or asserted.

        These names make plain values.
        """
        compared: set[str] = set()
        same_kind = {
            inner
            for node in self._nodes
            if isinstance(node, ast.Compare) and self._compares_its_like(node)
            for inner in ast.walk(node)
        }
        for node in self._nodes:
            if isinstance(node, ast.Assert):
                compared.add(self.origin(node.test))
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                compared.add(self.origin(node.left))
            elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
                origins = {self._loose_origin(side) for side in (node.left, *node.comparators)}
                compared |= origins if len(origins) > 1 else set()
            elif isinstance(node, ast.BinOp) and node not in same_kind:
                origins = {self.origin(node.left), self.origin(node.right)}
                compared |= origins if len(origins) > 1 else set()
        return compared

    def _compares_its_like(self, node: ast.Compare) -> str:
        """Return the CapWords name whose results (or values calculated from results) are on all
        sides.
        """
        origins = {self._loose_origin(side) for side in (node.left, *node.comparators)}
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
        return any(map(self._compares, self._nodes))

    def _compares(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Compare):
            return any(map(self.means_objects, [node.left, *node.comparators]))
        if isinstance(node, (ast.Set, ast.Dict)):
            return self.means_objects(node)
        if isinstance(node, ast.Subscript):
            return self.is_object(node.slice)
        if not isinstance(node, ast.Call):
            return False
        name = last_name(node.func)
        looks = name in _LOOKING or name.startswith("assert")
        return looks and any(map(self.means_objects, node.args))

    # --- exceptions -----------------------------------------------------------

    def is_exception(self, name: str) -> bool:
        """Return whether the tests use a name as an exception, or the name ends like that of an
        exception.
        """
        return name.endswith(("Error", "Exception", "Warning")) or any(
            self._catches(node, name) for node in self._nodes
        )

    def _catches(self, node: ast.AST, name: str) -> bool:
        kinds: list[ast.expr | None] = []
        if isinstance(node, ast.ExceptHandler):
            kinds = [node.type]
        elif isinstance(node, ast.Raise):
            kinds = [node.exc.func if isinstance(node.exc, ast.Call) else node.exc]
        elif isinstance(node, ast.Call) and last_name(node.func) in _CATCHING:
            kinds = [*node.args]
        flat = [part for kind in kinds if kind for part in ast.walk(kind)]
        return any(isinstance(part, ast.expr) and self.free(part) == name for part in flat)

    def makes(self, name: str) -> bool:
        """Return whether the tests call a name, other than to raise the result."""
        raised = {node.exc for node in self._nodes if isinstance(node, ast.Raise)}
        return any(
            isinstance(node, ast.Call) and node not in raised and self.free(node.func) == name
            for node in self._nodes
        )
