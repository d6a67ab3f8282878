"""Makes every ludus id known to `gymnasium.make` after `import ludus`.

gymnasium has no plugins, and importing gymnasium takes longer than `import ludus` may. Ids are
therefore registered at once if gymnasium has been imported, and otherwise as soon as that
happens.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def install() -> None:
    """Register the ids now, or when gymnasium is imported."""
    if "gymnasium" in sys.modules:
        _register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register() -> None:
    import gymnasium

    from ludus.envs.registry import on_register

    def register(env_id: str) -> None:
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point="ludus.envs.gym:make",
                kwargs={"env": env_id},
                disable_env_checker=True,
                order_enforce=False,
            )

    on_register(register)


class _Finder(importlib.abc.MetaPathFinder):
    """A module finder that waits, before the other finders, for the import of gymnasium."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return gymnasium's own spec, with a loader that registers the ids afterwards.

        The finder stays until the module is loaded: a spec may be asked for without an import, as
        `importlib.util.find_spec` does to see whether a package is installed.
        """
        if fullname != "gymnasium":
            return None
        for finder in sys.meta_path:
            # An old finder has no such method, and Python's own search bears that too.
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """A loader that loads a module as `inner` does, and then registers the ids.

    Args:
        inner: gymnasium's own loader.
        finder: the finder that waited for the import; it is removed after the import.
    """

    def __init__(self, inner: importlib.abc.Loader, finder: _Finder) -> None:
        self.inner = inner
        self.finder = finder

    def __getattr__(self, name: str) -> Any:
        """Return what else `inner` has: whoever finds the spec may ask it for files or source, as
        `pkgutil.get_data` does, without an import.
        """
        return getattr(self.inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as `inner` does."""
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module as `inner` does, then register the ids."""
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        module.__loader__ = self.inner
        self.inner.exec_module(module)
        with suppress(ValueError):  # ended by another import
            sys.meta_path.remove(self.finder)
        _register()
