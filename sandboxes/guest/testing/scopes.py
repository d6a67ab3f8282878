"""What the sources of tests show before they run: names, missing modules, and traces.

The decision comes from the tests' own sources and from what is installed, before anything of the
solution runs.

What leaves no trace is decided by syntax: assertions, plain statements and pure built-in functions.
Tests that import, touch a module's attributes, define a class or call a built-in that acts on
anything but its arguments get a fresh process.
"""

from __future__ import annotations

import builtins
import importlib.util
import re
import symtable
import sys
from collections.abc import Iterable, Iterator
from types import CodeType


def global_names(sources: Iterable[str], prelude: str = "") -> tuple[set[str], set[str], set[str]]:
    """Return the names that the sources load as globals, the names that they bind at module level,
    and all that they or the prelude bind anywhere.

    A parameter or local variable is neither of the first two: `def check(f)` does not bind the
    global `f`.

    >>> loaded, bound, named = global_names(("passed = f(3) == 4", "def check(f): g = 1"))
    >>> sorted(loaded), sorted(bound), sorted(named)
    (['f'], ['check', 'passed'], ['check', 'g', 'passed'])
    """
    loaded, bound, named = set[str](), set[str](), set[str]()
    waiting = [(symtable.symtable(source, "tests", "exec"), True) for source in sources]
    waiting.append((symtable.symtable(prelude, "prelude", "exec"), False))
    while waiting:
        table, is_test = waiting.pop()
        waiting += [(inner, is_test) for inner in table.get_children()]
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            name, is_bound = symbol.get_name(), symbol.is_assigned() or symbol.is_imported()
            if is_bound:
                named.add(name)
            if is_test and symbol.is_referenced() and (is_module or symbol.is_global()):
                loaded.add(name)
            if is_test and is_bound and (is_module or symbol.is_declared_global()):
                bound.add(name)
    return loaded, bound, named


def is_installed(name: str) -> bool:
    """Return whether the top-level module of `name` can be imported here."""
    top = name.partition(".")[0]
    if sys.modules.get(top) is not None:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def not_installed(names: Iterable[str]) -> str:
    """Return the message for the author of the tests."""
    return f"the tests need {', '.join(names)}, which is not installed where they run"


ALIASES = {"np": "numpy", "pd": "pandas", "numpy": "numpy", "pytest": "pytest"}
"""The modules outside the standard library that usual names stand for."""

MODULE_NAMES = frozenset({*sys.stdlib_module_names, *ALIASES})
"""Names that may stand for a module where tests use them."""

BUILTINS = frozenset(dir(builtins))

_STATEMENTS = re.compile(
    r"(?m)(?:^|[;:])\s*"
    r"(?:(?:class|with|import|from|async|global|nonlocal|del|match)\b|@|except\s*\*)"
)
"""Statements that may leave a trace; found in a text, they only cost a process of their own."""

_DRIVEN = 0x20 | 0x80 | 0x200
"""The flags of the code of generators, coroutines and asynchronous generators."""

_PURE = frozenset(
    """
    abs all any bin bool bytes callable chr complex dict divmod enumerate filter float format
    frozenset hasattr hash hex id int isinstance issubclass iter len list map max min next oct ord
    pow print range repr reversed round set slice sorted str sum tuple type zip
    Ellipsis NotImplemented __name__
    """.split()  # noqa: SIM905
)
_EXCEPTIONS = frozenset(
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
)
_IMPURE = (BUILTINS | MODULE_NAMES) - _PURE - _EXCEPTIONS - {"math"}


def leave_no_trace(sources: Iterable[str], tests: list[CodeType]) -> bool:
    """Return whether all tests are of the harmless kind.

    Args:
        sources: the tests.
        tests: the same, compiled.
    """
    if any(map(_STATEMENTS.search, sources)):
        return False
    for code in nested(tests):
        if code.co_flags & _DRIVEN and code.co_name != "<genexpr>":
            return False
        for name in code.co_names:
            if name in _IMPURE or (name[0] == "_" and name not in _OWN):
                return False
    return True


def nested(codes: Iterable[CodeType]) -> Iterator[CodeType]:
    """Yield code objects and all those inside them."""
    waiting = list(codes)
    while waiting:
        yield (code := waiting.pop())
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


_OWN = ("_", "__name__", "_ludus_plain")
"""Names with an underscore that the tests may use."""
