"""Makes every ludus id known to `gymnasium.make` after `import ludus`.

gymnasium has no plugins, and importing it takes longer than `import ludus` may. So ids are
registered when gymnasium is there: at once if it has been imported, else as soon as it is.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def install() -> None:
    """Register now, or when gymnasium is imported."""
    if "gymnasium" in sys.modules:
        _register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register() -> None:
    from ludus.envs.gymnasium_ids import register_in_gymnasium

    register_in_gymnasium()


class _Finder(importlib.abc.MetaPathFinder):
    """Stands before the other finders until gymnasium is looked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """gymnasium's own spec, with a loader that registers afterwards."""
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads a module as `inner` does, then registers."""

    def __init__(self, inner: importlib.abc.Loader) -> None:
        self.inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As `inner` does."""
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As `inner` does, then register."""
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        module.__loader__ = self.inner
        self.inner.exec_module(module)
        _register()
