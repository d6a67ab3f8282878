"""The tests' side of values whose classes derive from plain data (`derived`).

Each is genuinely the plain value that crossed: what the tests compare, calculate and look up is
decided here. The text and any further attributes are asked of the solution, as for any object; both
are data that the tests compare. An operator that the solution defines anew is asked only between
objects under test; elsewhere its answer could decide the test, and the plain value answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from numbers import Number
from typing import Any

from . import values
from .derived import MODULE, OF_FLAGS, TEXTS, Standing
from .operations import BINARY
from .plain_attributes import PLAIN_METHODS
from .proxies import Handle, ask, held, scales, state_of, still, text_of

_MUTABLE = (list, dict, set, deque)
_OPERATORS = {f"__{form}{name}__" for name in BINARY for form in ("", "r")} | {"__neg__"}

_KINDS: dict[tuple[type, frozenset[str]], Any] = {}
_MADE: dict[str, Derived] = {}
"""Handle -> the value that stands for the object: the same object is always the same value."""
values.REBUILT += [_KINDS, _MADE]


class Derived(Standing):
    """A plain value that came from an object of the solution, with the handle of that object."""

    ludus_handle_: Handle

    def __getattr__(self, name: str) -> object:
        if name.startswith(("__", "ludus_")) or hasattr(type(self), name):
            raise AttributeError(name)  # also for what a path has yet to calculate and keep
        value = getattr(self.ludus_handle_, name)
        changes = isinstance(self, _MUTABLE) and callable(value)
        return _refreshing(self, value) if changes else value

    def __setattr__(self, name: str, value: object) -> None:
        if "ludus_handle_" in vars(self) and not hasattr(type(self), name):
            setattr(self.ludus_handle_, name, value)
        else:  # The value is still being made, or keeps what it has calculated.
            object.__setattr__(self, name, value)

    def __copy__(self) -> object:
        return ask(self.ludus_handle_, "copy") if isinstance(self, _MUTABLE) else self

    def __deepcopy__(self, _: object) -> object:
        return ask(self.ludus_handle_, "deepcopy") if isinstance(self, _MUTABLE) else self


def build(parts: list[object]) -> object:
    """Rebuild a value from a handle, the names of methods defined anew, and the plain value."""
    handle, names, plain = parts
    if not isinstance(handle, Handle) or type(names) is not str or values.is_member(plain):
        return plain
    if (existing := _MADE.get(state_of(handle).token)) is not None:
        # A value that can change gets the present content. Any other is what it was: the first
        # answer counts.
        if isinstance(plain, _MUTABLE) and (content := values.parts_of(plain)):
            values.replace(existing, content[1])
        return existing
    base = type(plain)
    answered = {"__call__", "__missing__", *TEXTS, *_OPERATORS, *(OF_FLAGS if base is int else ())}
    answered |= {name for name in PLAIN_METHODS if hasattr(base, name)}
    defined = frozenset(answered.intersection(names.split(" ")))
    if (base, defined) not in _KINDS:
        methods = {name: _method(base, name) for name in defined}
        _KINDS[base, defined] = type(
            base.__name__, (Derived, base), {**methods, "__module__": MODULE}
        )
    kind = _KINDS[base, defined]
    derived: Derived = values.made_again(kind, plain)
    vars(derived)["ludus_handle_"] = handle
    return _MADE.setdefault(state_of(handle).token, derived)


def _method(base: type, name: str) -> Callable[..., object]:
    if name in TEXTS:
        return lambda self, *form: text_of(self.ludus_handle_, name.strip("_"), *form)
    if base is int and name in OF_FLAGS:
        return _FLAG_METHODS.get(name) or _combining(name)
    if name == "__call__":
        return _called
    if name == "__missing__":
        return _missing
    if name in _OPERATORS:
        return _calculating(base, name)
    # A method that plain data has too answers here, whatever the solution makes of it.
    own: Callable[..., object] = getattr(base, name)
    return own


def _missing(self: Derived, key: object) -> object:
    """Return what the object has for a key that the value lacks."""
    return still(self.ludus_handle_, ("item", repr(key)), ask(self.ludus_handle_, "getitem", key))


def _called(self: Derived, *arguments: object, **keywords: object) -> object:
    """Call a collection, if it is under test. Anything else is a value, and not called."""
    if not (state_of(self.ludus_handle_).known and isinstance(self, (*_MUTABLE, tuple))):
        raise TypeError("plain data cannot be called")
    method: Any = self.ludus_handle_
    return _refreshing(self, method)(*arguments, **keywords)


def _has_flag(flags: int, flag: object) -> bool:
    """Return whether the flags of a member are set, as in an `IntFlag`."""
    if not isinstance(flag, Derived):
        raise TypeError(f"{flag!r} is no flag")
    number: Any = flag
    return int.__eq__(int.__and__(flags, number), number)


def _flags_in(flags: Any) -> Iterator[object]:
    """Return the members that are set. Which they are is calculated here; only their order, which
    is that of the enumeration, is the solution's to say, once.
    """
    members = vars(flags).setdefault("ludus_flags_", list(ask(flags.ludus_handle_, "iter")))
    bits = [1 << place for place in range(int.bit_length(flags)) if flags >> place & 1]
    if sorted(map(int.__int__, members)) != bits:
        raise TypeError("an int is not iterable")
    return iter(members)


_FLAG_METHODS: dict[str, Callable[..., object]] = {
    "__contains__": _has_flag, "__iter__": _flags_in, "__len__": int.bit_count
}  # fmt: skip


def _combining(name: str) -> Callable[..., object]:
    """Return an operator of flags."""
    return lambda self, *operands: _member_of(self, getattr(int, name)(self, *operands))


def _calculating(base: type, name: str) -> Callable[..., object]:
    """Return an operator: the solution's between objects under test, and else that of `base`."""
    operator = name.strip("_")

    def calculate(self: Derived, *operands: object) -> object:
        state = state_of(self.ludus_handle_)
        given = list(map(held, operands))
        alike = all(isinstance(each, Handle) and state_of(each).known for each in given)
        # By its name, or by that of the operator that it reflects.
        makes = scales(state, operator) or scales(state, operator[1:])
        # A number that an attribute or method gave is that number.
        is_value = isinstance(self, Number) and any(map(str.isidentifier, state.ways - _OPERATORS))
        is_own = state.known and (makes or (alike and not is_value))
        answers: object = self.ludus_handle_ if is_own else super(type(self), self)
        result: object = getattr(answers, name, lambda *_: NotImplemented)(
            *(given if is_own else operands)
        )
        return result

    return calculate


def _member_of(flags: Derived, number: int) -> object:
    """Return the solution's member of a number calculated here; without one, the number."""
    with suppress(ValueError, TypeError):
        member = ask(flags.ludus_handle_, "member", number)
        if isinstance(member, Derived) and int.__eq__(number, member) is True:
            return member
    return number


def _refreshing(value: Derived, method: Any) -> Callable[..., object]:
    """Return a method of the solution that renews the value's content after each call."""

    def call(*arguments: object, **keywords: object) -> object:
        try:
            return method(*arguments, **keywords)
        finally:
            # The answer comes through `build`, which renews the content of the existing value.
            ask(value.ludus_handle_, "as_plain", "")

    return call
