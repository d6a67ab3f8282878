"""Checks of arguments that arrive as text or JSON against the signature of a function."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from .errors import ConfigError

_PLAIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: _is(value, numbers.Integral)),
    float: ("a number", lambda value: _is(value, numbers.Real)),
    str: ("a text", lambda value: isinstance(value, str)),
}


def check_plain(name: str, target: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Refuse values that do not fit a plain annotation (bool, int, float, str).

    Other annotations, and arguments that `target` does not name, are left to `target`.

    >>> def factory(*, turns: int = 3): ...
    >>> check_plain("me/env-v0", factory, {"turns": 1.5})
    Traceback (most recent call last):
    ludus.errors.ConfigError: me/env-v0: turns must be a whole number, got 1.5

    Raises:
        ConfigError: names the argument, the type it takes and the value it got.
    """
    if not arguments:
        return
    hints = options_of(target)
    for argument, value in arguments.items():
        expected, fits = _PLAIN.get(hints.get(argument), ("", None))
        if fits and not fits(value):
            raise ConfigError(f"{name}: {argument} must be {expected}, got {value!r}")


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def options_of(target: Callable[..., Any]) -> dict[str, Any]:
    """The options that `target` names, with their annotations; those of a typed dictionary that it
    takes as `**options: Unpack[...]` are among them.

    >>> def factory(*, turns: int = 3): ...
    >>> options_of(factory)
    {'turns': <class 'int'>}
    """
    maker, options = inspect.unwrap(target), dict[str, Any]()
    try:
        hints = get_type_hints(maker.__init__ if inspect.isclass(maker) else maker)
    except (NameError, TypeError, AttributeError):  # names that only type checkers see
        return {}
    for name, hint in hints.items():
        rest = get_args(hint) if get_origin(hint) is Unpack else ()
        options |= get_type_hints(rest[0]) if rest else {name: hint}
    options.pop("return", None)
    return options
