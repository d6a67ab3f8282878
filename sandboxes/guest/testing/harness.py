"""Runs tests against the solution: fetches names, sets up the surroundings, runs each test."""

from __future__ import annotations

import builtins
import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, ModuleType

from ..run import one_core
from . import failures, needs, peer, proxies, rare_values, value_wire
from .idiom_words import WORDS
from .proxies import ClassHandle, FunctionHandle, Handle, MisplacedClass, NamedClass
from .solution_line import BrokenTests, Job, TestsLine, without_solution
from .traceless import ALIASES, MODULE_NAMES

__all__ = ["PLAIN", "BrokenTests", "Job", "TestHarness", "all_names", "describe", "plain"]

PLAIN = "_ludus_plain"
"""The name under which generated tests find `plain`; no solution would use such a name."""

_DETAIL_LETTERS = 300

_STATEMENTS = ("class ", "with ", "match ", "except ")
"""Statements in which tests may use the solution in ways that cannot be judged."""

_TRUSTED_FUNCTIONS = {
    "isclose": "math",
    "deepcopy": "copy",
    "approx": "pytest",
    "allclose": "numpy",
}
"""Functions by which tests judge -> the module to import from, whatever the solution offers."""


class TestHarness(TestsLine):
    """The names of the tests, and the line to the solution."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._failure = ""
        self._absent: dict[str, str] = {}
        """Trusted functions and modules that could not be imported -> the missing module."""
        self._cases: set[object] = set()
        self.names[PLAIN] = plain

    # --- preparing --------------------------------------------------------------

    def begin(self, job: Job, words: set[str]) -> None:
        """Take a job, and prepare what the tests want to be the same on both sides.

        Args:
            job: the tests and how to run them.
            words: the names and attributes that the tests use.

        Raises:
            BrokenTests: the tests cannot be judged here.
        """
        self._job = job
        from_module = str(job.get("module", "solution"))
        sys.modules.pop(from_module, None)
        if from_module in words:
            sys.modules[from_module] = SolutionModule(from_module, self)
        # The tests run on the core of the solution's process. If that process is gone, the first
        # request reports it.
        with suppress(peer.Gone):
            one_core.join(self.line.hear_core())
        sources: list[str] = job["tests"]  # type: ignore[assignment]
        if words.isdisjoint(WORDS) and not any(
            word in source for source in sources for word in _STATEMENTS
        ):
            return
        with without_solution():
            from .idioms import examine

            imports = examine(self.trees(), self.interface)
        if imports.problem:
            raise BrokenTests(f"the tests cannot be judged: they {imports.problem}")
        if imports.output or imports.chance or imports.stdin or imports.lent:
            from .surroundings import Surroundings

            self._surroundings = Surroundings(self._ask_safely, imports)

    def _ask_safely(self, verb: str, *arguments: object) -> object:
        try:
            return self.ask(verb, *arguments)
        except peer.Gone:
            return None  # the next request of the tests reports this

    def prepare(self, tests: list[CodeType], job: Job) -> list[CodeType]:
        """Fetch the names that the tests use from the solution; return the tests, ready to run.

        Raises:
            BrokenTests: the prelude cannot be run, or the tests cannot be judged.
        """
        words = all_names(tests)
        if prelude := str(job["prelude"]):
            try:
                exec(compile(prelude, "prelude", "exec", dont_inherit=True), self.names)
            except BaseException as error:
                raise BrokenTests(f"the prelude does not run: {describe(error)}") from error
        self.begin(job, words)
        missing = words - _BUILTIN_NAMES - set(self.names)
        for name in missing & _TRUSTED_FUNCTIONS.keys():
            self._import(name)
        if suspects := missing & MODULE_NAMES:
            for name in suspects & self._modules_used():
                self._import(name)
        try:
            known_names = set(self.names)
            self.resolve(sorted(missing - known_names))
            if known_names.issuperset(self.names):
                self._resolve_builtin(words)
        except BrokenTests:
            raise
        except BaseException as error:
            self._failure = f"the solution does not load: {describe(error)}"
            self._check_solution(error)
        if not any(isinstance(handle, ClassHandle) for handle in self._handles.values()):
            return tests
        # Where objects under test are meant, the tests are compiled again with marks.
        from . import rewriting
        from .idioms import examine

        if problem := examine(self.trees(), self.interface).problem:
            raise BrokenTests(f"the tests cannot be judged: they {problem}")
        self.mark(self.names)
        trees = [rewriting.rewritten(tree, self.interface) for tree in self.trees()]
        return [compile(tree, "tests", "exec", dont_inherit=True) for tree in trees]

    @staticmethod
    def mark(names: dict[str, object]) -> None:
        """Add the functions behind the marks to `names`."""
        from . import marked, rewriting

        names[rewriting.OPERATE] = marked.operate
        names[rewriting.COMPARE] = marked.compare
        names[rewriting.TYPE] = marked.type_of
        names[rewriting.INSTANCE] = marked.is_instance

    def _check_solution(self, error: BaseException) -> None:
        """Check whether the solution lacks a well-known module that is not installed here.

        Such a solution has done nothing wrong, so its tests must not give a zero.

        Raises:
            BrokenTests: the solution lacks such a module.
        """
        if not isinstance(error, ImportError):
            return
        if lacking := needs.lacking(str(error)):
            raise BrokenTests(needs.not_installed_for_solution(lacking))

    def _resolve_builtin(self, words: set[str]) -> None:
        """Fetch a name of the solution that is also a built-in, if the tests use no other name.

        MBPP asks for a function called `sum`. If the tests use two such names, it stays unclear
        which is under test and by which the tests judge, and the built-ins win.
        """
        names = sorted(words & _BUILTIN_NAMES)
        kinds = self.ask("resolve", names)
        builtin_names = [name for name in kinds if name in names] if isinstance(kinds, dict) else []
        if len(builtin_names) == 1:
            self.resolve(builtin_names)

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

    @without_solution()
    def _modules_used(self) -> set[str]:
        """Return the names that are used only as `name.attribute`.

        Where such a name is that of a standard module, the module is meant.
        """
        import ast

        bases: set[str] = set()
        module_names: set[str] = set()
        for tree in self.trees():
            nodes = list(ast.walk(tree))
            attributes = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
            for node in nodes:
                if isinstance(node, ast.Name):
                    (bases if id(node) in attributes else module_names).add(node.id)
        return bases - module_names

    # --- names ------------------------------------------------------------------

    def resolve(self, names: list[str]) -> None:
        """Ask the solution what the names are, and define the known names."""
        kinds = self.ask("resolve", names)
        if not isinstance(kinds, dict):
            raise value_wire.Malformed("names")
        for name, kind in kinds.items():
            if name in names and type(kind) is tuple and len(kind) >= 2:
                self._define(name, kind)

    def _define(self, name: str, kind: tuple[object, ...]) -> None:
        category, *detail = kind
        if category == "module":
            root = detail[0].partition(".")[0] if isinstance(detail[0], str) else ""
            if root in sys.stdlib_module_names:
                self._import(name)
        elif category == "exception" and self.interface.makes(name):
            if self.interface.is_exception(name):
                self._failure = ""
                raise BrokenTests(
                    f"the tests cannot be judged: they make exceptions of the solution's {name}"
                )
            self.names[name] = MisplacedClass(self, str(detail[2]), name)
        elif category == "exception" and len(detail) == 3:
            stand_in = failures.class_of(*detail[:2])
            self._exceptions[stand_in] = value_wire.Ready("h" + str(detail[2])[1:])
            self.names[name] = stand_in
        elif category in ("class", "function"):
            # The kind of proxy decides what a call may do.
            token = str(detail[0])
            self._check(token)
            in_capitals = name[:1].isupper() and name != self._job.get("entry_point")
            if category == "function":
                handle: Handle = FunctionHandle(self, token, name)
            elif in_capitals or name in self.interface.classes:
                handle = NamedClass(self, token)
                if name in self.interface.classes:
                    proxies.adopt(handle)
            else:
                handle = MisplacedClass(self, token, name)
            self.names[name] = self._handles.setdefault(token, handle)
        else:
            self.names[name] = self._values[name] = detail[0]

    def exported(self, names: set[str]) -> list[str]:
        """Return what `from solution import *` gives: the names that the tests use and the solution
        has.
        """
        self.resolve(sorted(names))
        return sorted(names & set(self.names))

    # --- running ----------------------------------------------------------------

    def results(self, tests: list[CodeType], *, stop_early: bool) -> Iterator[dict[str, object]]:
        """Run the tests in order and yield the result of each."""
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
        """Run a test and return the reason for a failure; empty if the test passed."""
        problem = ""
        try:
            exec(test, self.names)
            if "unittest" in sys.modules and "TestCase" in all_names([test]):
                from .cases import run_cases

                problem = run_cases(self.names, self._cases)
        except BaseException as error:
            self.check_error(error)
            self._check_modules(error)
            problem = describe(error)
        return self.explained(self.problem() or problem)

    def explained(self, problem: str) -> str:
        """Return why a test failed, or an empty text; raise an error if the failure may be ours.

        Raises:
            BrokenTests: the test failed after it used what a class that derives from plain data
                defines anew, where the plain value answered instead.
        """
        own_use, self._own_use = self._own_use, ""
        if own_use and problem:
            raise BrokenTests(own_use)
        return problem

    def check_error(self, error: BaseException) -> None:
        """Check whether a test used a method of a named tuple, which stayed with the solution.

        Raises:
            BrokenTests: the test did.
        """
        if isinstance(error, AttributeError) and error.name in rare_values.left_behind(error.obj):
            raise BrokenTests(
                f"the tests cannot be judged: they call {error.name} of a named tuple of the "
                "solution, whose methods do not cross"
            )

    def _check_modules(self, error: BaseException) -> None:
        """Check whether a test failed because a module is missing here, by the test's own fault.

        Raises:
            BrokenTests: a module is missing.
        """
        lacking: list[str] = []
        if isinstance(error, ImportError):
            sources: list[str] = self._job["tests"]  # type: ignore[assignment]
            lacking = needs.missing_modules(sources)
            if not lacking:
                self._check_solution(error)
        elif isinstance(error, NameError) and str(error.name) in self._absent:
            lacking = [self._absent[str(error.name)]]
        if lacking:
            raise BrokenTests(needs.not_installed(lacking))


class SolutionModule(ModuleType):
    """The module that the tests import; names are fetched from the solution when first used."""

    def __init__(self, name: str, harness: TestHarness) -> None:
        super().__init__(name)
        self.__dict__["_harness"] = harness

    def __getattr__(self, name: str) -> object:
        harness: TestHarness = self.__dict__["_harness"]
        if name == "__all__":
            return harness.exported(harness.interface.names)
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in harness.names or name in harness.own_values():
            harness.resolve([name])
        if name not in harness.names:
            raise AttributeError(f"the solution has no {name!r}")
        return harness.names[name]


def all_names(codes: list[CodeType]) -> set[str]:
    """Return every name, attribute and argument that the tests may look up."""
    names: set[str] = set()
    waiting = list(codes)
    while waiting:
        code = waiting.pop()
        names.update(code.co_names)
        if code.co_argcount:
            names.update(code.co_varnames[: code.co_argcount])
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return names


_BUILTIN_NAMES = frozenset(dir(builtins))


def describe(error: BaseException) -> str:
    """Describe an exception in a line."""
    if isinstance(error, AssertionError):
        return f"assertion failed {error}".strip()
    return f"{type(error).__name__}: {error}"


def plain(value: object) -> object:
    """Turn tuples into lists at every depth, since tests written in JSON know only lists.

    The work is done on a stack, so that deep nesting cannot exhaust the recursion limit.
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
