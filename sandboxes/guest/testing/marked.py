"""The functions behind the marks in the tests (`rewriting`).

A mark is where the tests' syntax shows that an object under test is meant.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from .proxies import (
    OWN_EQUALITY,
    SIGNS,
    Handle,
    as_plain,
    forward,
    has_own,
    held,
    is_known,
    line_of,
    operate_on_plain,
    token_of,
)
from .values import OpaqueClass


def operate(name: str, left: object, right: object) -> object:
    """Apply an operator where the tests' syntax shows that an object under test is meant."""
    if isinstance(left, Handle) or isinstance(right, Handle):
        for side in (left, right):
            if isinstance(side, Handle) and not is_known(side):
                return operate_on_plain(name, side, (left, right))
        result = forward(name, left, right)
        if name == "contains" and isinstance(left, Handle) and type(result) is not bool:
            raise line_of(left).refuse(token_of(left), "in")
        return result
    function: Callable[[object, object], object] = getattr(operator, name)
    return function(left, right)


def compare(name: str, means_objects: bool, left: object, right: object) -> object:
    """Carry out a comparison that the tests themselves write down.

    `means_objects`: the tests' syntax shows that objects under test are compared.
    """
    left, right = _plain_side(left, name), _plain_side(right, name)
    for side, opposite in ((left, right), (right, left)):
        if not isinstance(side, Handle):
            continue
        if name not in ("eq", "ne"):
            both_known = is_known(side) and isinstance(opposite, Handle) and is_known(opposite)
            if means_objects and both_known:
                idiom = f"compare objects of the solution by {SIGNS[name]}"
                raise line_of(side).cannot_judge(idiom)
            raise line_of(side).refuse(token_of(side), SIGNS[name])
        if means_objects and is_known(side) and opposite is not None and has_own(side, "__eq__"):
            raise line_of(side).cannot_judge(OWN_EQUALITY)
    function: Callable[[object, object], object] = getattr(operator, name)
    return function(left, right)


def _plain_side(side: object, name: str) -> object:
    """Return the plain data of a side, where the solution's class leaves the comparison to plain
    data.
    """
    if not isinstance(side, Handle):
        return side
    if name in ("eq", "ne") and is_known(side) and not has_own(side, "__eq__"):
        return side
    plain = as_plain(side, f"__{name}__")
    return side if plain is None else plain


def type_of(item: object) -> object:
    """Return the class of an object; for an object under test, a proxy of the solution's class."""
    handle = held(item)
    if isinstance(handle, Handle) and (is_known(handle) or handle is not item):
        return line_of(handle).ask("class", token_of(handle))
    return type(item)


def is_instance(item: object, kinds: type | tuple[type, ...]) -> bool:
    """Do what `isinstance` does, but an object whose class derives from plain data is plain data
    too.
    """
    if isinstance(item, kinds):
        return True
    plain = as_plain(item, "") if isinstance(item, Handle) else None
    return isinstance(plain, kinds)


def is_same(left: object, right: object) -> bool:
    """Do what `is` does; a class that the solution sent is the class that it stands for."""
    if isinstance(left, OpaqueClass) or isinstance(right, OpaqueClass):
        return bool(left == right)
    return left is right
