"""Runs tests against the solution: fetches names, sets up the surroundings, runs each test."""

from __future__ import annotations

import builtins
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

from ..run import one_core
from . import peer, scopes, value_wire
from .grading_job import BrokenTests, GradingJob, deep_trees
from .proxies import Handle, state_of
from .scopes import ALIASES, BUILTINS
from .solution_line import TestsLine

PLAIN = "_ludus_plain"
"""The name under which generated tests find `plain`; no solution would use such a name."""

DETAIL_LETTERS = 300


class TestBuiltins(dict[str, object]):
    """What CPython asks for the names that the tests do not bind, in functions and in bodies of
    classes: the built-in names, and then the solution.

    Nothing of the solution is ever written here, so that it cannot replace what the tests bind.
    `__missing__` is asked for where the built-ins are a subclass of `dict`; `import` alone is not.
    """

    def __init__(self, look_up: Callable[[str], object]) -> None:
        super().__init__(__import__=builtins.__import__)
        self._look_up = look_up

    def __missing__(self, name: str) -> object:
        return self._look_up(name)


class TestHarness(TestsLine):
    """The names of the tests, and the line to the solution."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._builtins = TestBuiltins(self.look_up)
        self.names = {"__name__": "tests", PLAIN: plain, "__builtins__": self._builtins}
        self._bound: set[str] = set(BUILTINS)
        """Names that are never the solution's: what the tests bind at module level, and the
        built-in names but for the entry point.
        """
        self._of_solution: dict[str, object] = {}
        """Functions, classes and modules of the solution by name, taken once."""
        self._data: dict[str, tuple[int, object]] = {}
        """Globals of the solution that are data: (when it was taken, the value)."""
        self._failure = ""
        self._used = False
        """Whether the tests have looked up a name of the solution."""
        self._absent: dict[str, str] = {}
        """Trusted functions and modules that could not be imported -> the missing module."""
        self._cases: set[object] = set()
        self._shared: frozenset[tuple[str, str]] = frozenset()
        """What the tests need to be the same in both processes."""

    # --- preparing --------------------------------------------------------------

    def begin(self, job: GradingJob) -> None:
        """Take a job, and read the tests.

        Raises:
            BrokenTests: the tests cannot be judged here.
        """
        self._job = job
        self._bound.discard(job.entry_point)
        sys.modules[job.module] = SolutionModule(job.module, self)
        with deep_trees():
            from .idioms import examine
            from .interface import interface_of

            self.interface = interface_of(job)
            if lacking := self.interface.missing_modules():
                raise BrokenTests(scopes.not_installed(lacking))
            problem, self._shared = examine(self.interface)
        if problem:
            raise BrokenTests(f"the tests cannot be judged: they {problem}")

    def meet(self) -> None:
        """Prepare what the tests want to be the same on both sides. If the solution's process is
        gone, the next request reports it.
        """
        with suppress(peer.Gone):
            one_core.join(self.line.hear_core())  # The tests run on the core of that process.
            if self._shared:
                from .surroundings import Surroundings

                self._surroundings = Surroundings(self.ask, self._shared)

    def prepare(self, job: GradingJob) -> list[CodeType]:
        """Read the tests, and import what they take from libraries; return them, ready to run.

        Raises:
            BrokenTests: the prelude cannot be run, or the tests cannot be judged.
        """
        if job.prelude:
            names = self.names | {"__builtins__": builtins}
            try:
                exec(compile(job.prelude, "prelude", "exec", dont_inherit=True), names)
            except BaseException as error:
                raise BrokenTests(f"the prelude does not run: {describe(error)}") from error
            self.names = names | {"__builtins__": self._builtins}
        self.begin(job)
        from . import idioms, rewriting

        interface, entry_point = self.interface, job.entry_point
        if problem := idioms.uncalled(interface):
            raise BrokenTests(problem)
        self._bound |= interface.binds - interface.imported
        if entry_point in self._bound or entry_point in self.names:
            raise BrokenTests(f"the tests define {entry_point!r} themselves, the entry point")
        if interface.rebound:
            raise BrokenTests(f"the tests bind {interface.rebound!r} again, a name of the solution")
        wanted = self._wanted()
        if not wanted and not interface.imports_solution:
            raise BrokenTests(
                "the tests use no name of the solution; if it is called like a built-in function, "
                "name it as the entry_point"
            )
        modules = dict.fromkeys(wanted & interface.libraries, "")
        for name, module in (modules | interface.standard).items():
            self.import_name(name, module)
        if self._absent:
            raise BrokenTests(scopes.not_installed(sorted(set(self._absent.values()))))
        with deep_trees():
            self.names.update(rewriting.MARKS)
            return rewriting.compiled(job)

    def fetch(self) -> None:
        """Fetch the names that the tests use from the solution."""
        self.meet()
        entry_point = self._job.entry_point
        try:
            self.resolve(sorted((self._wanted() | {entry_point}) - self.names.keys() - {""}))
        except BaseException as error:
            self._failure = f"the solution does not load: {describe(error)}"
        else:
            if entry_point and entry_point not in self._of_solution:
                self._failure = f"the solution does not define {entry_point!r}, the entry point"

    def _wanted(self) -> set[str]:
        return self.interface.loaded - self._bound - self.names.keys()

    def import_name(self, name: str, module: str = "") -> None:
        """Bind a name to what `module` has under that name, or to the module of that name."""
        try:
            if module:
                self.names[name] = getattr(importlib.import_module(module), name)
            else:
                self.names[name] = importlib.import_module(ALIASES.get(name, name))
        except ImportError:
            self._absent[name] = module or ALIASES.get(name, name)
        except AttributeError:
            return

    # --- names ------------------------------------------------------------------

    def look_up(self, name: str) -> object:
        """Return what a name means that the tests do not bind.

        Raises:
            KeyError: the tests bind the name later, or the solution does not define it.
        """
        if name not in self._bound:
            return self.of_solution(name)
        return vars(builtins)[name]

    def of_solution(self, name: str) -> object:
        """Return what the solution defines under a name.

        A function or class is taken once. Data are asked for again after the solution has run.

        Raises:
            KeyError: the solution does not define the name.
        """
        self._used = True
        taken, _ = self._data.get(name, (-1, None))
        if name not in self._of_solution and taken != self.effects:
            self.resolve([name])
        return self._of_solution[name] if name in self._of_solution else self._data[name][1]

    def resolve(self, names: list[str]) -> None:
        """Ask the solution what the names are, and define the known names."""
        kinds = self.ask("resolve", tuple(names))
        if not isinstance(kinds, MappingProxyType):
            raise value_wire.Malformed("names")
        for name, kind in kinds.items():
            if name in names and type(kind) is tuple and len(kind) >= 2:
                self._define(name, kind)

    def _define(self, name: str, kind: tuple[object, ...]) -> None:
        category, *detail = kind
        if category == "module":
            if str(detail[0]).partition(".")[0] in sys.stdlib_module_names:
                self.import_name(name)
        elif category == "exception" and self.interface.makes(name):
            self._name_callable(name, str(detail[2]), "misplaced")
        elif category == "exception" and len(detail) == 3:
            self._of_solution[name] = self.error_class(name, detail)
        elif category in ("class", "function"):
            known = category == "class" and name in self.interface.classes
            if category == "class" and not (known or name[:1].isupper()):
                category = "misplaced"
            self._name_callable(name, str(detail[0]), category, known=known)
        else:
            self._data[name] = self.effects, detail[0]

    def _name_callable(self, name: str, token: str, kind: str, *, known: bool = False) -> None:
        """Define a function or class; its kind decides what a call may do."""
        handle_name = self._check(token)
        if token[0] == "t":
            self._of_solution[name] = self._find(token)
            return
        handle = Handle(self, token)
        state = state_of(handle)
        state.name, state.kind, state.known = name, kind, known
        self._of_solution[name] = self.handles.setdefault(handle_name, handle)

    def exported(self, names: set[str]) -> list[str]:
        """Return what `from solution import *` gives: the names that the tests use and the solution
        has, without those that are already the tests' own.
        """
        names -= self.names.keys()
        for name, module in self.interface.standard.items():
            self.import_name(name, module)
        self.resolve(sorted(names))
        own = self._of_solution.keys() | self._data.keys()
        return sorted((names & own) | (self.interface.standard.keys() & self.names.keys()))

    # --- running ----------------------------------------------------------------

    def results(self, tests: list[CodeType], *, stop_early: bool) -> Iterator[dict[str, object]]:
        """Run the tests in order and yield the result of each.

        Raises:
            BrokenTests: the tests have passed, and have asked for no name of the solution.
        """
        failed = False
        for number, test in enumerate(tests):
            started = time.perf_counter()
            problem = self._failure or self.run(test)
            yield {
                "test": number,
                "passed": not problem,
                "detail": problem[:DETAIL_LETTERS],
                "seconds": time.perf_counter() - started,
            }
            failed = failed or bool(problem)
            if problem and stop_early:
                return
        if not (failed or self._used):
            # No solution had a part in this, so every solution is told so.
            raise BrokenTests("the tests run nothing that uses the solution")

    def run(self, test: CodeType) -> str:
        """Run a test and return the reason for a failure; empty if the test passed."""
        problem = ""
        try:
            exec(test, self.names)
            if "unittest" in sys.modules:
                problem = self._run_cases()
        except BaseException as error:
            problem = describe(error)
        return self.problem() or problem

    def _run_cases(self) -> str:
        """Run the new `unittest` test cases, and return why a test failed, or "".

        Skipped tests do not count as passed unless others ran: a suite that runs nothing fails.
        """
        import unittest

        new = [
            kind
            for kind in self.names.values()
            if isinstance(kind, type)
            and issubclass(kind, unittest.TestCase)
            and kind.__module__ == self.names["__name__"]
            and kind not in self._cases
        ]
        if not new:
            return ""
        suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, new))
        self._cases.update(new)
        result = unittest.TestResult()
        suite.run(result)
        if problems := [*result.failures, *result.errors]:
            case, text = problems[0]
            return f"{case.id().rpartition('.')[2]}: {text.strip().rpartition(chr(10))[2]}"
        if result.unexpectedSuccesses:
            return "a test passed that was expected to fail"
        return "no test case ran" if result.testsRun <= len(result.skipped) else ""


class SolutionModule(ModuleType):
    """The module that the tests import; names are fetched from the solution when first used."""

    def __init__(self, name: str, harness: TestHarness) -> None:
        super().__init__(name)
        self.__dict__["ludus_harness_"] = harness

    def __getattr__(self, name: str) -> object:
        harness: TestHarness = self.__dict__["ludus_harness_"]
        if name == "__all__":
            return harness.exported({*harness.interface.names})
        if name.startswith("__"):
            raise AttributeError(name)
        interface = harness.interface
        if name in interface.libraries or name in interface.standard:
            harness.import_name(name, interface.standard.get(name, ""))
            return harness.names[name]
        try:
            # What else the tests import or read from the module is the solution's.
            return harness.of_solution(name)
        except KeyError:
            raise AttributeError(f"the solution has no {name!r}") from None


def describe(error: BaseException) -> str:
    """Describe an exception in a line."""
    if isinstance(error, AssertionError):
        return f"assertion failed {error}".strip()
    return f"{type(error).__name__}: {error}"


def plain(value: object) -> object:
    """Turn tuples into lists at every depth, since tests written in JSON know only lists.

    Copies are made empty and filled later, so that values may be deep, have many ways to a part,
    and contain themselves.
    """
    copies: dict[int, tuple[Any, Any]] = {}  # the item, which keeps its id, and its copy
    unfilled: list[int] = []

    def copy_of(item: object) -> object:
        if not isinstance(item, (list, tuple, dict)):
            return item
        if id(item) not in copies:
            copies[id(item)] = item, {} if isinstance(item, dict) else []
            unfilled.append(id(item))
        return copies[id(item)][1]

    top = copy_of(value)
    while unfilled:
        item, copy = copies[unfilled.pop()]
        if isinstance(item, dict):
            copy.update((key, copy_of(part)) for key, part in item.items())
        else:
            copy.extend(map(copy_of, item))
    return top
