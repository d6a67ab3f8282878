"""Which global names a source loads and which it binds, as Python's own compiler sees it."""

from __future__ import annotations

import re
import symtable
from collections.abc import Iterable


def global_names(sources: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the names that the sources load and the names that they bind at module level.

    A parameter or local variable is neither: `def check(f)` does not bind the global `f`.

    >>> global_names(["passed = f(3) == 4", "def check(f): return f(1)"])
    ({'f'}, {'passed', 'check'})
    """
    loaded: set[str] = set()
    bound: set[str] = set()
    waiting = [symtable.symtable(source, "tests", "exec") for source in sources]
    while waiting:
        table = waiting.pop()
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (is_module or symbol.is_global()):
                loaded.add(symbol.get_name())
            is_bound = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            if is_bound and (is_module or symbol.is_declared_global()):
                bound.add(symbol.get_name())
        waiting += table.get_children()
    return loaded, bound


def loaded_before_bound(sources: list[str], names: set[str]) -> str:
    """Return one of the names whose first use binds it to a value made of itself, as in
    `f = cached(f)`; else "".

    Such tests replace a name of the solution by their own, so that it would stand for both.
    """
    text = "\n".join(sources)
    for name in sorted(names):
        line = re.search(rf"(?m)^.*?\b{name}\b.*$", text)
        match = re.match(rf"{name}\s*=([^=].*\b{name}\b.*)", line[0]) if line else None
        try:
            if match and name in global_names([f"({match[1].strip()})"])[0]:
                return name
        except SyntaxError:
            continue  # the statement goes on in the next line
    return ""
