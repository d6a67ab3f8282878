"""The names of tests: how they are bound, which modules they stand for, and which leave a trace."""

from __future__ import annotations

import builtins
import importlib.util
import symtable
import sys
from collections.abc import Iterable


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
IMPURE = (BUILTINS | MODULE_NAMES) - _PURE - _EXCEPTIONS - {"math"}
"""Names of what acts on anything but its arguments."""
