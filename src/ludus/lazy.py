"""Public names of a package that are imported at first use.

A package whose parts are heavy (torch, an HTTP client) names in its `__init__` what may be used,
three times: for type checkers, for readers and `import *`, and for this module. A contract test
holds the three together.

    if TYPE_CHECKING:
        from .config import TrainConfig

    __all__ = ["TrainConfig"]

    __getattr__, __dir__ = lazy_exports(__name__, {".config": "TrainConfig"})
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package that imports `names` on first use.

    Args:
        package: the package's `__name__`.
        names: for each module the public names it defines, separated by spaces; a module with a
            leading dot is relative to `package`.

    >>> getattr_, dir_ = lazy_exports("ludus", {"ludus.verdict": "Status Verdict"})
    >>> getattr_("Verdict")
    <class 'ludus.verdict.Verdict'>
    >>> getattr_("Verdikt")
    Traceback (most recent call last):
    AttributeError: module 'ludus' has no attribute 'Verdikt'
    """
    modules = {
        name: module for module, module_names in names.items() for name in module_names.split()
    }

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(modules[name], package), name)
        setattr(sys.modules[package], name, value)  # the next look-up finds it without this call
        return value

    def names_of_package() -> list[str]:
        # What the package imported for itself is no name of its own.
        own = {name for name in vars(sys.modules[package]) if name.startswith("__")}
        return sorted(own | modules.keys())

    return get, names_of_package
