"""Defers the import of modules that few children need and that load large modules.

Their code is kept when the slot starts, while the package can still be read, and is run where it is
first imported.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

_NAMES = (
    "interface", "origins", "syntax", "rewriting", "idioms", "idiom_words", "surroundings",
    "derived_values",
)  # fmt: skip
_PACKAGE = f"{__name__.rsplit('.', 2)[0]}.testing"
_CODE: dict[str, CodeType] = {}


class _Loader:
    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType | None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        exec(_CODE[module.__name__], module.__dict__)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in _CODE:
            return None
        return ModuleSpec(name, _Loader())  # type: ignore[arg-type] # pyright: ignore


def keep() -> None:
    """Keep the code of the deferred modules, and install a finder for such imports."""
    for name in _NAMES:
        full = f"{_PACKAGE}.{name}"
        spec = importlib.util.find_spec(full)
        code = spec.loader.get_code(full) if spec and spec.loader else None  # type: ignore[attr-defined] # pyright: ignore
        if code is None:
            raise ImportError(f"no module {full}")
        _CODE[full] = code
    sys.meta_path.insert(0, _Finder())  # pyright: ignore
