"""The tests' side of a grading: run each test against proxies of the solution, and report on a
descriptor of its own.

The solution is another process in another slot. What it can send is data; what passes is decided
here.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import TextIO

from . import needs, one_core, peer, wire
from .proxies import ClassHandle, Handle, RemoteIterator, here, token_of
from .request import Request
from .traceless import ALIASES, MODULE_NAMES

PEER, REPORT = 3, 4
"""Descriptors: the line to the solution, and the file for results."""

PLAIN = "_ludus_plain"
"""The name under which generated tests find `plain`; no solution has a use for it."""

_DETAIL_LETTERS = 300

Job = Mapping[str, object]
"""What is to be proved: `tests` (sources), `prelude` (source), `module`, `stop_early`."""

_TRUSTED_FUNCTIONS = {
    "isclose": "math",
    "deepcopy": "copy",
    "approx": "pytest",
    "allclose": "numpy",
}
"""Names tests judge by: taken from here even if the solution offers its own."""


def run(request: Request) -> int:
    """Run the tests in `request.options`: tests, prelude, stop_early."""
    with os.fdopen(REPORT, "w") as report:
        write_rows(report, _rows(request.options))
    return 0


def write_rows(report: TextIO, rows: Iterator[dict[str, object]]) -> None:
    """Write a line for each row at once, and one that says how it ended.

    `{"done": true}`: all rows are there. `{"unusable": reason}`: the tests cannot be used.
    `{"fault": reason}`: this side broke, which is ours or the tests' doing.
    """
    try:
        for row in rows:
            report.write(json.dumps(row) + "\n")
            report.flush()
    except UnusableTests as error:
        report.write(json.dumps({"unusable": str(error)}) + "\n")
    except BaseException as error:
        report.write(json.dumps({"fault": f"{type(error).__name__}: {error}"}) + "\n")
    else:
        report.write('{"done": true}\n')


class UnusableTests(Exception):
    """The tests cannot be used; found out before the solution was asked anything."""


def _rows(job: Job) -> Iterator[dict[str, object]]:
    tests = compile_tests(job)
    bench = Bench(PEER)
    bench.prepare(tests, job)
    yield from bench.results(tests, stop_early=bool(job["stop_early"]))


def compile_tests(job: Job) -> list[CodeType]:
    """The tests as code.

    Raises:
        UnusableTests: one does not compile.
    """
    sources: list[str] = job["tests"]  # type: ignore[assignment]
    tests: list[CodeType] = []
    for number, source in enumerate(sources):
        try:
            tests.append(compile(source, "tests", "exec", dont_inherit=True))
        except (SyntaxError, ValueError) as error:
            raise UnusableTests(f"test {number} does not compile: {error}") from error
    return tests


class Bench:
    """The tests' names, and their line to the solution."""

    def __init__(self, descriptor: int) -> None:
        self._callbacks: list[object] = []
        self._handles: dict[str, object] = {}
        self._exceptions: dict[str, type[BaseException]] = {}
        self.line = peer.Peer(
            descriptor, self._serve, self._name, self._find, returns_changes=False
        )
        self._broken = ""
        self._failure = ""
        self._sources: list[str] = []
        self._absent: dict[str, str] = {}
        """Names the tests judge by whose module is not installed here, and that module."""
        self.names: dict[str, object] = {"__name__": "tests", PLAIN: plain}

    def close(self) -> None:
        """Let go of the solution's objects and of the line to it."""
        self.line.close()
        for held in (self.names, self._handles, self._exceptions):
            held.clear()

    def ask(self, verb: str, *arguments: object) -> object:
        """Ask the solution. Once it has broken the line, every later test fails too, whatever the
        tests catch.
        """
        if self._broken:
            raise peer.Gone(self._broken)
        try:
            return self.line.request(verb, *arguments)
        except peer.Answer as answer:
            raise here(answer, self._exceptions) from None
        except peer.Gone as error:
            self._broken = "the solution ended its process"
            raise peer.Gone(self._broken) from error
        except wire.Malformed as error:
            self._broken = f"the solution's answer cannot be read: {error}"
            raise peer.Gone(self._broken) from error

    def prepare(self, tests: list[CodeType], job: Job) -> None:
        """Fetch the names the tests use from the solution.

        Raises:
            UnusableTests: the prelude cannot be run.
        """
        self._sources = job["tests"]  # type: ignore[assignment]
        self._run_prelude(str(job["prelude"]))
        self.meet()
        wanted = needed_names(tests) - set(self.names)
        for name in wanted & _TRUSTED_FUNCTIONS.keys():
            self._import(name)
        if suspects := wanted & MODULE_NAMES:
            for name in suspects & _modules_used(self._sources):
                self._import(name)
        try:
            known = set(self.names)
            self.resolve(sorted(wanted - known))
            if known.issuperset(self.names):
                self._resolve_builtin(tests)
        except BaseException as error:
            self._failure = f"the solution does not load: {_describe(error)}"

    def meet(self) -> None:
        """Join the solution on its core."""
        try:
            one_core.join(self.line.hear_core())
        except peer.Gone:
            return  # the first request will say so

    def _run_prelude(self, source: str) -> None:
        if not source:
            return
        try:
            exec(compile(source, "prelude", "exec", dont_inherit=True), self.names)
        except BaseException as error:
            raise UnusableTests(f"the prelude does not run: {_describe(error)}") from error

    def _resolve_builtin(self, tests: list[CodeType]) -> None:
        """The tests use no other name of the solution: then one shared with a built-in is meant.

        MBPP asks for a function called `sum`. With two such names it stays unclear which one is
        under test and which one the tests judge by, and the built-ins win.
        """
        names = sorted(_all_names(tests) & _BUILTIN_NAMES)
        kinds = self.ask("resolve", names)
        found = [name for name in kinds if name in names] if isinstance(kinds, dict) else []
        if len(found) == 1:
            self.resolve(found)

    def _import(self, name: str) -> None:
        try:
            if name in _TRUSTED_FUNCTIONS:
                self.names[name] = getattr(importlib.import_module(_TRUSTED_FUNCTIONS[name]), name)
            else:
                self.names[name] = importlib.import_module(ALIASES.get(name, name))
        except ImportError:
            self._absent[name] = _TRUSTED_FUNCTIONS.get(name) or ALIASES.get(name, name)
        except AttributeError:
            return

    def resolve(self, names: list[str]) -> None:
        """Ask the solution what these names are, and define what it has."""
        kinds = self.ask("resolve", names)
        if not isinstance(kinds, dict):
            raise wire.Malformed("names")
        for name, kind in kinds.items():
            if name in names and type(kind) is tuple and len(kind) >= 2:
                self._define(name, kind)

    def _define(self, name: str, kind: tuple[object, ...]) -> None:
        what, *detail = kind
        if what == "module":
            if (
                isinstance(detail[0], str)
                and detail[0].partition(".")[0] in sys.stdlib_module_names
            ):
                self._import(name)
        elif what == "exception":
            base = getattr(builtins, str(detail[1]), Exception)
            stand_in = (
                type(name, (base,), {})
                if isinstance(base, type) and issubclass(base, Exception)
                else Exception
            )
            self._exceptions[str(detail[0])] = self.names[name] = stand_in
        elif what == "class":
            token = str(detail[0])
            self.names[name] = self._handles[token] = ClassHandle(self, token)
        elif what == "function":
            self.names[name] = self._find(str(detail[0]))
        else:
            self.names[name] = detail[0]

    def results(self, tests: list[CodeType], *, stop_early: bool) -> Iterator[dict[str, object]]:
        """Run the tests in order."""
        for number, test in enumerate(tests):
            started = time.perf_counter()
            problem = self._failure or self.run(test)
            yield {
                "test": number,
                "passed": not problem,
                "detail": problem[:_DETAIL_LETTERS],
                "seconds": time.perf_counter() - started,
            }
            if problem and stop_early:
                return

    def run(self, test: CodeType) -> str:
        """Why the test failed; empty if it passed."""
        try:
            exec(test, self.names)
        except BaseException as error:
            self._check_modules(error)
            return self._broken or _describe(error)
        return self._broken

    def _check_modules(self, error: BaseException) -> None:
        """A test that lacks a module failed by itself.

        Raises:
            UnusableTests: it does.
        """
        lacking: list[str] = []
        if isinstance(error, ImportError):
            lacking = needs.missing_modules(self._sources)
        elif isinstance(error, NameError) and str(error.name) in self._absent:
            lacking = [self._absent[str(error.name)]]
        if lacking:
            raise UnusableTests(needs.not_installed(lacking))

    def _serve(self, verb: str, arguments: list[object]) -> object:
        """The solution may call what the tests gave it to call, and draw from iterators they
        passed.
        """
        number = arguments[0]
        if type(number) is not int or not 0 <= number < len(self._callbacks):
            raise wire.Malformed("no such callback")
        target = self._callbacks[number]
        if verb == "next" and isinstance(target, Iterator):
            return (next(target),)
        if verb == "callback" and callable(target) and not isinstance(target, Iterator):
            positional, named = arguments[1:]
            return target(*positional, **named)  # type: ignore[misc,arg-type]
        raise wire.Malformed(f"no such request: {verb[:20]!r}")

    def _name(self, item: object) -> str:
        """The token of an argument that is not plain."""
        if isinstance(item, Handle):
            return token_of(item)
        if isinstance(item, RemoteIterator):
            return f"h{item.number}"
        if not callable(item) and not isinstance(item, Iterator):
            raise TypeError(
                f"a {type(item).__name__} of the tests cannot be passed to the solution"
            )
        if item not in self._callbacks:
            self._callbacks.append(item)
        kind = "j" if isinstance(item, Iterator) else "f"
        return f"{kind}{self._callbacks.index(item)}"

    def _find(self, token: str) -> object:
        if not token[1:].isdecimal() or len(token) > 9:
            raise wire.Malformed("a handle without a number")
        if token not in self._handles:
            kinds = {"h": Handle, "f": ClassHandle, "j": RemoteIterator}
            self._handles[token] = kinds[token[0]](self, token)
        return self._handles[token]


def needed_names(codes: list[CodeType]) -> set[str]:
    """Every name the tests may look up outside themselves."""
    return _all_names(codes) - _BUILTIN_NAMES


def _all_names(codes: list[CodeType]) -> set[str]:
    found: set[str] = set()
    waiting = list(codes)
    while waiting:
        code = waiting.pop()
        found.update(code.co_names)
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


_BUILTIN_NAMES = frozenset(dir(builtins))


def _modules_used(sources: list[str]) -> set[str]:
    """Names used only as `name.attribute`: a standard module, where they are called like one."""
    import ast  # rarely needed, and large in every child

    bases: set[str] = set()
    others: set[str] = set()
    for tree in map(ast.parse, sources):
        attributes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                (bases if id(node) in attributes else others).add(node.id)
    return bases - others


def _describe(error: BaseException) -> str:
    """One line about an exception."""
    if isinstance(error, AssertionError):
        return f"assertion failed {error}".strip()
    return f"{type(error).__name__}: {error}"


def plain(value: object) -> object:
    """Tuples as lists, at every depth, as tests written in JSON mean them; works through nesting
    without recursion.
    """
    if not isinstance(value, (list, tuple, dict)):
        return value
    root: list[object] = [value]
    work: list[tuple[list[object] | dict[object, object], object]] = [(root, 0)]
    while work:
        place, key = work.pop()
        item = place[key]  # type: ignore[call-overload]
        if isinstance(item, (list, tuple)):
            fresh: list[object] = list(item)
            place[key] = fresh  # type: ignore[call-overload]
            work += [(fresh, position) for position in range(len(fresh))]
        elif isinstance(item, dict):
            copied: dict[object, object] = dict(item)
            place[key] = copied  # type: ignore[call-overload]
            work += [(copied, name) for name in copied]
    return root[0]
