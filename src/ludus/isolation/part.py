"""What a worker process runs: the protocol of a part, and how one is sent to a fresh interpreter.

Classes and functions of modules that can be imported there travel by name. Those of a notebook, of
`__main__`, defined inside a function, or of a file that was imported under another name travel by
value.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Protocol

import cloudpickle

from ludus.errors import ConfigError

Answer = tuple[int, bytes]
"""A tag and a body; the caller and the part agree on the meaning."""


class WorkerPart(Protocol):
    """An environment or a verifier inside a worker process.

    A part is made once in the template, where it loads what workers share, or in each worker where
    the data cannot be shared. `start` follows in the worker.
    """

    is_async: bool
    """Whether calls run side by side on the event loop of the worker; otherwise each call runs on a
    worker thread, which the call names by its `thread_number`.
    """
    takes_turns: bool = False
    """Whether calls run one after another on the main thread of the worker, without an event loop:
    for owners without one, and for signals whose default action ends the process.
    """

    def about(self) -> bytes:
        """Return what the owner has to know before the first call."""
        ...

    def start(self, thread_of: Callable[[int], Executor]) -> None:
        """Get ready in a fresh worker; `thread_of` returns the thread with a number."""
        ...

    def handle(self, tag: int, thread_number: int, body: bytes) -> Answer | Awaitable[Answer]:
        """Carry out a call and return the answer."""
        ...


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
