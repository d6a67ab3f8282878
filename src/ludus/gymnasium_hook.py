"""Makes every ludus id known to `gymnasium.make` after `import ludus`.

gymnasium has no plugins, and importing gymnasium takes longer than `import ludus` may. Ids are
therefore registered at once if gymnasium has been imported, and otherwise as soon as that
happens.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


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
        """Return gymnasium's own spec, with a loader that registers the ids afterwards."""
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """A loader that loads a module as `inner` does, and then registers the ids."""

    def __init__(self, inner: importlib.abc.Loader) -> None:
        self.inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as `inner` does."""
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module as `inner` does, then register the ids."""
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        module.__loader__ = self.inner
        self.inner.exec_module(module)
        _register()
