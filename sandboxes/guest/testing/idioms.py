"""Finds idioms of tests that look at the solution's process, which is a separate process here.

Some idioms are carried over (`surroundings`): captured output, standard input, randomness, a few
patched functions. The others cannot be judged, and the grading says so before the solution is asked
for anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from itertools import product

from .idiom_words import FILES, OF_THE_TESTS, REFUSED
from .interface import Interface
from .plain_attributes import PLAIN_ATTRIBUTES
from .syntax import last_name, parts_of

_OF_PATHS = frozenset(
    """
    write_text write_bytes read_text read_bytes open exists unlink touch mkdir rmdir iterdir glob
    is_file is_dir stat rename
    """.split()  # noqa: SIM905
)
_OF_MOCKS = ("called", "call_count", "call_args", "return_value", "side_effect", "mock_calls")
_CAPTURING = frozenset(
    ("redirect_stdout", "redirect_stderr", "capsys", "capfd", "capsysbinary", "stdout", "stderr")
)
_LENDABLE = {
    "builtins": ["input", "print"],
    "random": """random randint randrange choice choices sample uniform gauss getrandbits
        normalvariate betavariate expovariate triangular""".split(),  # noqa: SIM905
    "time": ["time", "sleep", "perf_counter", "monotonic", "time_ns", "ctime", "strftime"],
}
"""Module -> functions that tests may patch: the solution's process then calls the tests'
function.
"""


SHARED = frozenset(
    (*product(["sys"], ["stdout", "stderr", "stdin"]), *product(["random"], ["seed", "setstate"]))
)
"""What else of a module may be the same in both processes, where the tests set or capture it."""


@lru_cache(maxsize=256)
def examine(interface: Interface) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return the first idiom that cannot be judged, or "", and what the tests need to be the same
    in the solution's process: (module, name) of each.

    Args:
        interface: how the tests use the names of the solution, with their syntax trees. A reference
            solution decides what only some solutions can be judged by; without one, such tests are
            refused whatever the solution is.
    """
    reader = _Reader(interface)
    problem = next(filter(None, _problems(interface, reader)), "")
    return problem, frozenset(reader.shared)


def _problems(interface: Interface, reader: _Reader) -> Iterator[str]:
    """Yield why tests cannot be judged, and empty texts."""
    yield from map(reader.problem, interface.nodes)
    for word in filter(None, map(partial(_evades, interface), interface.of(ast.Call, ast.If))):
        yield f"pass without an assertion by what the solution gives ({word}): assert it instead"
    if interface.has_reference:
        return
    # Only some right solutions could be judged by these.
    if names := ", ".join(sorted(interface.unsure)):
        yield (
            f"use {names}, which may be a library's or the solution's: import it from there, or "
            "name the entry_point or a reference"
        )
    looked_up = interface.of(ast.Compare, ast.Call, ast.Dict, ast.Set, ast.Subscript)
    if any(map(interface.compares, looked_up)):
        yield "compare objects by the solution's own __eq__ or `<`"
    if name := interface.identifies():
        yield f"ask whether two results of {name} are the same, which may be data"
    if name := ", ".join(sorted(interface.unclear)):
        yield f"calculate with results of {name}, which may be values or objects"
    if kind := _own_argument(interface):
        yield f"pass a {kind} of their own to the solution"
    for name in sorted(interface.names):
        if name.endswith(("Error", "Exception", "Warning")) and interface.makes(name):
            yield f"make exceptions of the solution's {name}"


_SKIPS = ("skip", "skipTest", "SkipTest", "xfail", "skipif", "skipIf", "skipUnless")
_ASKS_PRESENCE = frozenset(("hasattr", "callable"))


def _evades(interface: Interface, node: ast.AST) -> str:
    """Return the word by which a node leaves a test, or passes over assertions, depending on what
    the solution gives; else "".
    """
    match node:
        case ast.Call(func=function, args=given) if (word := last_name(function)) in _SKIPS:
            return word if any(map(interface.flows, (*given, *interface.deciders(node)))) else ""
        case ast.If(test=test, body=body, orelse=[]) if interface.flows(test):
            asserts = _asserts(interface.within(*body))
            if interface.in_helper(node):
                return ""
            if isinstance(body[-1], ast.Return) and not body[-1].value and not asserts:
                return "return"
            parts = interface.within(test)
            asked = {last_name(n.func) for n in parts if isinstance(n, ast.Call)}
            is_none = any(isinstance(n, ast.Constant) and n.value is None for n in parts)
            return "if" if (is_none or asked & _ASKS_PRESENCE) and asserts else ""
    return ""


def _asserts(body: Iterable[ast.AST]) -> bool:
    """Return whether there is an assertion among some nodes."""
    called = [last_name(node.func) for node in body if isinstance(node, ast.Call)]
    stated = any(isinstance(node, ast.Assert) for node in body)
    return stated or any(name.startswith("assert") for name in called)


def _crosses(kind: ast.ClassDef) -> bool:
    """Return whether objects of a class of the tests cross: functions, iterators and plain data."""
    defined = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
    return bool(kind.bases or defined & {"__call__", "__next__"})


def _own_argument(interface: Interface) -> str:
    """Return a class or coroutine function of the tests of which they pass an object to the
    solution, or "".
    """
    coroutines = {node.name for node in interface.of(ast.AsyncFunctionDef)}
    classes = interface.of(ast.ClassDef)
    own = coroutines | {node.name for node in classes if not _crosses(node)}
    itself = coroutines | {node.name for node in classes}
    arguments: list[ast.expr] = []
    for kind in classes:
        if any(map(interface.decorates, kind.decorator_list)):
            return kind.name
    for node in interface.of(ast.Call):
        if interface.free(node.func) or (
            isinstance(node.func, ast.Attribute) and interface.is_object(node.func.value)
        ):
            arguments += [*node.args, *(keyword.value for keyword in node.keywords)]
    if passed := itself.intersection(n.id for n in arguments if isinstance(n, ast.Name)):
        return min(passed)
    for part in interface.reached(*arguments, parts=parts_of):
        called = last_name(part.func) if isinstance(part, ast.Call) else last_name(part)
        if isinstance(part, ast.Call) and (called in own or called in OF_THE_TESTS):
            return called
        if called == "ANY" and "ANY" not in interface.names:
            return called
    return ""


class _Reader:
    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self._errors: set[str] = set()
        self.shared: set[tuple[str, str]] = set()

    def problem(self, node: ast.AST) -> str:
        """Return the idiom at this node that cannot be judged, or ""; record what the node
        needs.
        """
        match node:
            case ast.Import(names=names):
                return self._refused(*(f"{alias.name.partition('.')[0]}." for alias in names))
            case ast.ImportFrom(module=str(module), names=names):
                last = module.rpartition(".")[2]
                named = (f"{last}.{alias.name}" for alias in names)
                return self._refused(f"{module.partition('.')[0]}.", *named)
            case ast.Compare() if self._interface.is_close(node):
                return "ask how close objects are by the solution's own `-`"
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Load()):
                return self._of_name(name)
            case ast.Attribute():
                return self._of_attribute(node) or self._of_mock(node)
            case ast.Call(func=ast.Name(id="issubclass"), args=[ast.Call(), *_]):
                return "look into the bases of a class that the solution returns"
            case ast.Call(func=function):
                return self._of_patch(function, node.args) or self._of_method(function)
            case ast.ExceptHandler(name=str(name)):
                self._errors.add(name)
            case ast.ClassDef():
                return self._of_class(node)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                if any(self._interface.origin(item.context_expr) for item in items):
                    return self._of_body(body)
            case ast.MatchClass(cls=kind) if self._interface.free(kind):
                return "match patterns of the solution's classes"
        return ""

    def _of_class(self, kind: ast.ClassDef) -> str:
        """Find a class of the tests whose objects the solution would have to reach."""
        interface = self._interface
        bases = [*kind.bases, *(keyword.value for keyword in kind.keywords)]
        if names := sorted(set(map(interface.free, bases)) - {""}):
            return f"derive a class from the solution's {', '.join(names)}"
        for part in kind.body:
            match part:
                case ast.Assign(value=value) if interface.origin(value) in interface.classes:
                    # An object of a suite of tests is no descriptor.
                    if not (kind.bases or kind.name.startswith("Test")):
                        return (
                            f"keep an object of {interface.origin(value)} in a class of their own"
                        )
                case ast.FunctionDef(decorator_list=marks) if any(map(interface.decorates, marks)):
                    if "staticmethod" not in map(last_name, marks):
                        return f"decorate the method {part.name} of their own class"
        return ""

    def _of_method(self, method: ast.expr) -> str:
        """Find calls of the methods of the solution's exceptions, which do not cross."""
        if not isinstance(method, ast.Attribute):
            return ""
        value, name = method.value, method.attr
        caught = isinstance(value, ast.Name) and value.id in self._errors
        reads_error = isinstance(value, ast.Attribute) and value.attr in ("value", "exception")
        if caught or (reads_error and name not in PLAIN_ATTRIBUTES):
            return "" if name in dir(BaseException) else "call methods of the solution's exceptions"
        return ""

    def _of_mock(self, node: ast.Attribute) -> str:
        """Find mocks that are passed to the solution, which gets only a function without
        attributes.
        """
        if {"Mock", "MagicMock", "AsyncMock"}.isdisjoint(self._interface.bound):
            return ""
        asserts = node.attr.startswith("assert_") or node.attr in _OF_MOCKS
        path = _path(node.value)
        if asserts and len(path) == 2 and path[0] not in ("self", "mock"):
            return "pass a mock whose attributes the solution uses"
        return ""

    def _refused(self, *words: str) -> str:
        """Return why tests with one of these words cannot be judged, or ""; record what the words
        need.
        """
        for word in words:
            base, _, name = word.rpartition(".")
            self.shared |= {("sys", "stdout") if name in _CAPTURING else (base, name)} & SHARED
        return next((REFUSED[word] for word in words if word in REFUSED), "")

    def _of_name(self, name: str) -> str:
        own = name in self._interface.bound and name in ("open", "warns")
        problem = self._refused(name)
        return "" if own or name in self._interface.names else problem

    def _of_attribute(self, node: ast.Attribute) -> str:
        base, name = last_name(node.value), node.attr
        problem = self._refused(f"{base}.{name}", *([name] if name != "open" else []))
        if name in ("seed", "setstate") and isinstance(node.value, ast.Attribute):
            return "seed numpy's generator"
        if not isinstance(node.ctx, ast.Load) and base in _LENDABLE:
            return self._lend(f"{base}.{name}")
        if not isinstance(node.ctx, ast.Load) and base in self._interface.modules:
            return "set names of the solution's module"
        if name in _OF_PATHS and not {"Path", "pathlib"}.isdisjoint(self._interface.bound):
            return FILES
        return problem

    def _of_patch(self, function: ast.expr, arguments: list[ast.expr]) -> str:
        """Find `patch("a.b")`, `patch.object(a, "b")`, `monkeypatch.setattr(...)` and similar
        calls.
        """
        path = _path(function)
        if "patch" not in path[-2:] and path[:1] != ["monkeypatch"]:
            return ""
        names = [_constant(each) or ".".join(_path(each)) for each in arguments]
        sets = path == ["monkeypatch", "setattr"]
        if path[-1] == "patch" or (sets and len(names) == 2):
            return self._lend("".join(names[:1]))
        if path[-2:] == ["patch", "object"] or sets:
            return self._lend(".".join(names[:2]))
        return f"patch the solution's process ({'.'.join(path)})"

    def _lend(self, target: str) -> str:
        module, _, name = target.rpartition(".")
        if name in _LENDABLE.get(module, ()) or (module == "sys" and (module, name) in SHARED):
            self.shared.add((module, name))
            return ""
        return f"patch what the solution may use (patch or monkeypatch of {target or 'a name'})"

    def _of_body(self, body: list[ast.stmt]) -> str:
        """Find a body that raises what a context manager of the solution is to swallow."""
        for node in self._interface.within(*body):
            match node:
                case ast.Raise() | ast.BinOp(right=ast.Constant(value=0)):
                    return "raise in a `with` of the solution's context manager"
        return ""


def _path(node: ast.expr) -> list[str]:
    """Return the names in `a.b.c`, in order."""
    if isinstance(node, ast.Attribute):
        return [*_path(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else []


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@lru_cache(maxsize=256)
def uncalled(interface: Interface) -> str:
    """Find functions of the tests with assertions that are never called: nothing would be
    tested.
    """
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    used = {node.id for node in interface.of(ast.Name) if isinstance(node.ctx, ast.Load)}
    idle = [
        node.name
        for node in interface.nodes
        if isinstance(node, kinds)
        and not node.col_offset  # neither a method nor inside another function
        and node.name not in used
        and (node.name == "check" or node.name.lower().startswith("test"))
        and not getattr(node, "bases", ())
        and any(isinstance(n, (ast.Assert, ast.Raise)) for n in interface.within(node))
    ]
    named = (
        f"the tests define {', '.join(idle[:3])} and never call it; "
        "use kind 'pytest', or name the entry_point that `check` is called with"
    )
    return named if idle else ""
