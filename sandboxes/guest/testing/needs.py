"""Finds modules that tests need and that are not installed: then no solution could pass.

The decision comes from the tests' own sources and from what is installed, before anything of the
solution runs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable


def missing_modules(sources: Iterable[str], own: set[str]) -> list[str]:
    """Return the top-level modules that the sources import and that are not installed here, but for
    `own`, the modules of the solution.

    An import inside a `try` does not count, since those tests can do without the module.
    """
    import ast  # a large module that is rarely needed

    module_names: set[str] = set()
    for source in sources:
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
