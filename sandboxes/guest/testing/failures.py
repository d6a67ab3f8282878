"""Carries exceptions between the tests and the solution: as plain parts, rebuilt with local
classes.

A built-in exception arrives as itself, and so does an exception of the standard library whose
module this side has loaded. A class of the other side arrives as a stand-in of the same name and
bases, with the same arguments, attributes and text.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from types import FunctionType
from typing import Any

own_module = "tests"
"""The module name of this side's own exception classes."""

_LONGEST_CHAIN = 16
_OUTCOMES = frozenset(("unittest", "bdb", "doctest"))
"""Modules whose exceptions tell a test runner something; these are never rebuilt as genuine."""

STAND_INS: dict[tuple[str, str], type[BaseException]] = {}
"""(module, name) -> the class that stands for one of the other side."""
SENT: dict[tuple[str, str], type[BaseException]] = {}
"""(module, name) -> the class of this side that the other side was told of. No other is found by
its name: a solution could raise what the tests wait for.
"""
_TEXT = "_ludus_text"
_NEVER_SENT = (_TEXT, "obj")
"""Attributes that stay: `obj` may be anything of the solution."""


def bases_of(kind: type[BaseException]) -> tuple[str, list[tuple[str, str]]]:
    """Return the nearest built-in bases, and (module, name) of each derived class, last derived
    first.
    """
    derived = takewhile(_is_written, kind.__mro__)
    errors = (base for base in derived if issubclass(base, BaseException))
    chain: list[tuple[str, str]] = []
    for base in errors:
        chain.append((_module_of(base), str(base.__name__)))
        if chain[-1][0] == own_module:
            SENT[chain[-1]] = base
    built_in = [base for base in kind.__mro__ if not _is_written(base)]
    nearest = [base for base in built_in if sum(issubclass(b, base) for b in built_in) == 1]
    return " ".join(base.__name__ for base in nearest), chain[:_LONGEST_CHAIN]


def parts_of(error: BaseException, plain: Callable[[list[object]], bool]) -> list[object]:
    """Return the parts from which `error` can be rebuilt on the other side.

    They are: the built-in base, the chain of classes, the arguments, the text (None where the text
    follows from the rest), and name and value of each attribute that is plain data (of the
    exception, its class and its properties).
    """
    base, chain = bases_of(type(error))
    attributes: dict[str, object] = {}
    for name in {*dir(type(error)), *vars(error)}.difference(dir(BaseException), _NEVER_SENT):
        if not name.startswith("__"):
            with suppress(Exception):  # A property that raises counts as absent.
                if plain([value := getattr(error, name)]):
                    attributes[name] = value
    if own_module == "solution":  # What the tests' exceptions were raised from is theirs.
        attributes |= {name: getattr(error, name) for name in _CHAIN if getattr(error, name)}
    # A text has to cross only if a class defines `__str__` in Python.
    text = str(error) if isinstance(type(error).__str__, FunctionType) else None
    flat = [part for pair in attributes.items() for part in pair]
    return [base, tuple(chain), arguments_of(error), text, *flat]


def arguments_of(error: BaseException) -> tuple[object, ...]:
    """Return the arguments; the class may have an attribute `args` itself."""
    arguments: tuple[object, ...] = BaseException.__dict__["args"].__get__(error)
    return arguments


_CHAIN = ("__cause__", "__context__", "__suppress_context__")


def _builtin(kind: type[BaseException]) -> Any:
    return next(base for base in kind.__mro__ if not _is_written(base))


def _is_written(kind: type) -> bool:
    """Return whether a class is no built-in one, whatever module it says that it is of."""
    return bool(kind.__flags__ & _HEAP)


_HEAP = 1 << 9


def _module_of(kind: type) -> str:
    """Return the module in which a class is found by its name, or which is that of the other side;
    else the module of this side.
    """
    module, name = str(kind.__module__), kind.__name__
    is_told = STAND_INS.get((module, name)) is kind
    return module if is_told or getattr(sys.modules.get(module), name, None) is kind else own_module


def build(parts: list[object]) -> BaseException:
    """Rebuild an exception from parts, with the classes of this side."""
    base, chain, arguments, text, *flat = parts
    if type(arguments) is not tuple or type(chain) is not tuple:
        raise TypeError("an exception is names, arguments and attributes")
    attributes: dict[Any, object] = dict(zip(flat[::2], flat[1::2], strict=True))
    kind = class_of(base, chain)
    positional: Any = arguments
    try:
        # The `__init__` of the built-in class: one of the solution's may want other arguments.
        error: BaseException = kind.__new__(kind, *positional)
        _builtin(kind).__init__(error, *positional)
        error.args = positional
    except TypeError:
        error = RuntimeError(kind.__name__, *positional)
    for name, value in attributes.items():
        with suppress(Exception):  # What contains itself comes as the name of its type.
            if value is not None or not hasattr(error, name):  # An `errno` of None gives no text.
                setattr(error, name, value)
    if type(text) is str:
        vars(error)[_TEXT] = text
    return error


def class_of(base: object, chain: object) -> type[BaseException]:
    """Return the class on this side for a built-in class and the classes derived from that."""
    values = [getattr(builtins, name, None) for name in str(base).split()]
    kinds = [kind for kind in values if isinstance(kind, type) and issubclass(kind, BaseException)]
    kind: Any = RuntimeError
    with suppress(TypeError):  # These have no common layout.
        kind = kinds[0] if len(kinds) == 1 else type(str(base), tuple(kinds), {})
    builtin = kind
    links: Any = chain
    for module, name in reversed(links):
        if type(module) is not str or type(name) is not str or not name.isidentifier():
            raise TypeError("an exception class without a name")
        candidate: Any = SENT.get((module, name))
        if module.partition(".")[0] in sys.stdlib_module_names:
            candidate = getattr(sys.modules.get(module), name, None)
        is_error = isinstance(candidate, type) and issubclass(candidate, Exception)
        if is_error and not _tells_a_runner(candidate):
            kind = candidate
            continue
        # Each name has one stand-in, so that `except` and `raises` find it again.
        stand_in: Any = STAND_INS.get((module, name))
        if stand_in is None:
            stand_in = type(name, (kind,), {"__str__": _text, "__module__": module})
            STAND_INS[module, name] = stand_in
        kind = stand_in if issubclass(stand_in, builtin) else type(name, (stand_in, builtin), {})
    return kind  # type: ignore[no-any-return]


def _tells_a_runner(kind: type) -> bool:
    """Return whether exceptions of a class tell a test runner something, as `SkipTest` does."""
    return any(base.__module__.partition(".")[0] in _OUTCOMES for base in kind.__mro__)


def _text(error: BaseException) -> str:
    """Return the text that came along, or the text of the built-in class."""
    message = vars(error).get(_TEXT)
    if type(message) is str:
        return message
    return str(_builtin(type(error)).__str__(error))
