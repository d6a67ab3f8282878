"""Which modules tests need that are not here: then the tests cannot run, whatever the solution did.

Decided by the tests' own sources and what is installed. An exception is only the occasion to look:
the solution may raise one that says the same.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable


def missing_modules(sources: Iterable[str]) -> list[str]:
    """The top-level modules these sources import, and do not try to do without, that are not
    installed here.
    """
    import ast  # rarely needed, and large in every child

    named: set[str] = set()
    for source in sources:
        waiting: list[ast.AST] = [ast.parse(source)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                named.add(node.module or "")
            if not isinstance(node, ast.Try):
                waiting += ast.iter_child_nodes(node)
    return sorted({name.partition(".")[0] for name in named if not is_installed(name)})


def is_installed(name: str) -> bool:
    """Whether the top-level module of `name` can be imported here."""
    top = name.partition(".")[0]
    if sys.modules.get(top) is not None:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def not_installed(names: Iterable[str]) -> str:
    """What to tell whoever wrote the tests."""
    return f"the tests need {', '.join(names)}, which is not installed where they run"
