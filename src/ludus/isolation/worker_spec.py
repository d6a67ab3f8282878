"""The code a worker process shall run, in a form that can be sent to a fresh interpreter.

Classes and functions of modules that can be imported there travel by name. Those of a notebook, of
`__main__`, defined inside a function, or of a file that was imported under another name travel by
value.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType

import cloudpickle

from ludus.errors import ConfigError

from .part import WorkerPart


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """How a template makes a `WorkerPart`."""

    label: str
    """The name in messages: an environment's id, a verifier's name."""
    make: bytes
    """The pickled function that makes the part."""

    @classmethod
    def of(cls, label: str, make: Callable[[], WorkerPart]) -> WorkerSpec:
        """Pickle `make`.

        Raises:
            ConfigError: `make` holds something that cannot be sent to another process.
        """
        buffer = io.BytesIO()
        pickler = _Pickler(buffer)
        try:
            pickler.dump(make)
        except Exception as error:
            raise ConfigError(
                f"{label} cannot run in a worker process, since it holds what cannot be sent to "
                f"one ({type(error).__name__}: {error}); let its constructor make that, or declare "
                "never_blocks = True if every call returns within about a millisecond"
            ) from error
        finally:
            pickler.forget()
        return cls(label, buffer.getvalue())


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Pickles by value what could not be imported by name in a fresh interpreter."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer)
        self._by_value: list[ModuleType] = []

    def reducer_override(self, obj: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride] (the base is untyped)
        if isinstance(obj, (type, FunctionType)):
            module = sys.modules.get(obj.__module__)
            if module is not None and module not in self._by_value and not _is_found(module):
                cloudpickle.register_pickle_by_value(module)
                self._by_value.append(module)
        return super().reducer_override(obj)

    def forget(self) -> None:
        """Undo the registrations in cloudpickle, whose list of modules is global."""
        for module in self._by_value:
            cloudpickle.unregister_pickle_by_value(module)


def _is_found(module: ModuleType) -> bool:
    """Return whether a fresh interpreter with our `sys.path` would import the same file by this
    name.
    """
    file = getattr(module, "__file__", None)
    top, _, _ = module.__name__.partition(".")
    if top == "__main__" or top in sys.stdlib_module_names:
        return True  # cloudpickle knows what to do
    parent, _, _ = module.__name__.rpartition(".")
    path = None
    if parent:
        package = sys.modules.get(parent)
        if package is None or not _is_found(package):
            return False
        path = list(getattr(package, "__path__", []))
    for finder in sys.meta_path:
        spec = finder.find_spec(module.__name__, path)
        if spec is not None:
            return file is None or spec.origin == file
    return False
