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
from functools import lru_cache
from types import CodeType


@lru_cache(maxsize=256)
def global_names(sources: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that the sources load and the names that they bind at module level.

    A parameter or local variable is neither: `def check(f)` does not bind the global `f`. The
    answer is kept, since a test runner meets the tests of a task with many solutions.

    >>> loaded, bound = global_names(("passed = f(3) == 4", "def check(f): return f(1)"))
    >>> sorted(loaded), sorted(bound)
    (['f'], ['check', 'passed'])
    """
    loaded: set[str] = set()
    bound: set[str] = set()
    for table in tables(sources):
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (is_module or symbol.is_global()):
                loaded.add(symbol.get_name())
            is_bound = symbol.is_assigned() or symbol.is_imported()
            if is_bound and (is_module or symbol.is_declared_global()):
                bound.add(symbol.get_name())
    return frozenset(loaded), frozenset(bound)


def tables(sources: Iterable[str]) -> Iterator[symtable.SymbolTable]:
    """Yield the symbol table of each source and of everything inside."""
    waiting = [symtable.symtable(source, "tests", "exec") for source in sources]
    while waiting:
        yield (table := waiting.pop())
        waiting += table.get_children()


_MADE_OF = r"{0}\s*(?:=([^=].*\b{0}\b.*)|(?:[-+%@&|^]|//?|\*\*?|<<|>>)=)"
"""A statement that binds a name to a value made of itself."""


def loaded_before_bound(sources: list[str], names: Iterable[str]) -> str:
    """Return one of the names whose first use binds it to a value made of itself, as in
    `f = cached(f)` and `ITEMS += [1]`; else "".

    Such tests replace a name of the solution by their own, so that it would stand for both.
    """
    text = "\n".join(sources)
    for name in sorted(names):
        line = re.search(rf"(?m)^.*?\b{name}\b.*$", text)
        match = re.match(_MADE_OF.format(name), line[0]) if line else None
        try:
            if match and (not match[1] or name in global_names((f"({match[1].strip()})",))[0]):
                return name
        except SyntaxError:
            continue  # the statement goes on in the next line
    return ""


def missing_modules(sources: Iterable[str], own: set[str]) -> list[str]:
    """Return the top-level modules that the sources import and that are not installed here, but for
    `own`, the modules of the solution.

    An import inside a `try` does not count, since those tests can do without the module.
    """
    module_names: set[str] = set()
    for source in sources:
        import ast  # a large module that is rarely needed

        waiting: list[ast.AST] = [ast.parse(source)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import):
                module_names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                module_names.add(node.module or "")
            if not isinstance(node, ast.Try):
                waiting += ast.iter_child_nodes(node)
    return sorted({name.partition(".")[0] for name in module_names - own if not is_installed(name)})


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


def leave_no_trace(sources: list[str], tests: list[CodeType]) -> bool:
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
