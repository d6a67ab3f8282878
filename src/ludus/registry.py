"""Checks of arguments that arrive as text or JSON against the signature of a function.

What ludus ships is described in a table, so that a list of names with summaries imports nothing.
"""

from __future__ import annotations

import difflib
import inspect
import numbers
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Generic, TypeVar, Unpack, get_args, get_origin, get_type_hints

from .contract import where
from .errors import ConfigError, ConstructionFailed, LudusError, MissingExtra, UnknownName
from .secret import shown

_PLAIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: _is(value, numbers.Integral)),
    float: ("a number", lambda value: _is(value, numbers.Real)),
    str: ("a text", lambda value: isinstance(value, str)),
}

HINT = "ludus list; one of yours: ludus --import FILE.py VERB ..."
"""Where a name that nobody registered may be found."""

imported: list[str] = []
"""The user's files and modules that `ludus --import` has named, for whatever must import the same:
worker processes, and commands to type.
"""


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


def make(
    name: str, target: Callable[..., Any], options: Mapping[str, Any], *, kind: str = ""
) -> Any:
    """Return what `target`, which is called `name`, makes of `options`.

    Args:
        name: the name of what is made.
        target: a class or function.
        options: its keyword arguments, of which `check_plain` has looked at the types.
        kind: what messages call a thing of this kind, where the name does not say it.

    Raises:
        ConfigError: an option is unknown or missing, or its value cannot work.
        ConstructionFailed: the constructor failed, and not for the value of an option.
        LudusError: what the constructor raised, where that is an error of ludus.
    """
    label = f"{kind} {name!r}" if kind else name
    try:
        return target(**options)
    except LudusError:
        raise
    except Exception as error:
        called = error.__traceback__ is not None and error.__traceback__.tb_next is not None
        if isinstance(error, TypeError) and not called:
            raise ConfigError(f"{label} {_misfit(name, target, options, error)}") from error
        given = f" with {shown(options)!r}" if options else ""
        # A constructor raises ValueError about the value of an option, or OSError about a file that
        # it names; the type and the place of such an error say nothing more.
        if options and isinstance(error, (ValueError, OSError)):
            raise ConfigError(f"{label} cannot be made{given}: {error}") from error
        message = f"{label} cannot be made{given}: {_typed(error)} ({where(error)})"
        if options and isinstance(error, TypeError):
            raise ConfigError(message) from error
        raise ConstructionFailed(f"{message}; LUDUS_DEBUG=1 shows the traceback") from error


def _typed(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):  # the first is the cause of the others
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _misfit(
    name: str, target: Callable[..., Any], options: Mapping[str, Any], error: TypeError
) -> str:
    """Return why the call itself failed, before anything in the constructor was run."""
    if inspect.isabstract(target):
        names: frozenset[str] = getattr(target, "__abstractmethods__", frozenset())
        missing = ", ".join(f"{name}()" for name in sorted(names))
        return f"is registered to {origin(target)}, which does not define {missing}"
    if not options:
        return f"needs arguments, '{name}?name=value', or defaults for them: {error}"
    known = sorted(options_of(target))
    wrong = next((name for name in options if name not in known), "")
    near = difflib.get_close_matches(wrong, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    fault = f"there is no {wrong!r}" if wrong else str(error)
    return (
        f"does not take these arguments {shown(options)!r}: {fault}; {hint}it takes: "
        f"{', '.join(known) or 'none'}"
    )


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def options_of(target: Callable[..., Any]) -> dict[str, Any]:
    """The options that `target` names, with annotations, including the keys of a typed dictionary
    that is taken as `**options: Unpack[...]`.

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
        unpacked = get_args(hint) if get_origin(hint) is Unpack else ()
        options |= get_type_hints(unpacked[0]) if unpacked else {name: hint}
    options.pop("return", None)
    given = len(target.args) if isinstance(target, partial) else 0
    for name in [*inspect.signature(maker).parameters][:given]:  # given by place: no options
        options.pop(name, None)
    return options


Target = TypeVar("Target", bound=Callable[..., Any])

MODULES_OF_EXTRA = {
    "train": ("torch", "transformers"),
    "image": ("torch", "transformers", "PIL"),
    "textworld": ("textworld",),
}
"""What must be importable for a thing that needs an extra."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """A built-in thing, with a description for lists."""

    target: str
    """`module:attribute`; the module is imported when the thing is first asked for."""
    summary: str
    """A sentence without a full stop."""
    extra: str = ""
    """The extra without which the thing cannot be used; empty if the base install is enough."""


@dataclass(frozen=True, slots=True)
class Description:
    """A name with a summary, or with the problem that prevents any use."""

    name: str
    summary: str
    problem: str = ""
    """Why the thing cannot be used here, with what to do about it; empty if it can."""


class Registry(Generic[Target]):
    """The classes and functions of a kind, by name.

    Args:
        kind: what messages call a thing of this kind.
        shipped: what ludus ships.
        group: the entry points by which packages offer more.
        unknown: the error for a name that nobody has; its message ends with `hint`.
        word: what messages call a name.
    """

    def __init__(
        self,
        kind: str,
        shipped: Mapping[str, Shipped],
        *,
        group: str,
        unknown: type[UnknownName],
        hint: str = "",
        word: str = "name",
    ) -> None:
        self.kind = kind
        self.shipped = shipped
        self.group = group
        self.unknown = unknown
        self.hint = hint
        self.word = word
        self.registered: dict[str, Target] = {}

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted({*self.shipped, *self.registered, *offered_names(self.group)})

    def check_free(self, name: str, target: Callable[..., Any], *, same: bool = True) -> None:
        """Refuse a name that something else than `target` has.

        A module that is run again registers the same things again, which is let pass.

        Args:
            name: the name to take.
            target: what is to be registered.
            same: whether `target`, registered as it is, could be what ludus ships; not so where
                arguments are fixed.

        Raises:
            ConfigError: the name is taken; the message says by what.
        """
        advice = f"register {origin(target)} under another {self.word}"
        if name in self.shipped:
            # Nothing is imported for the comparison: if `target` is what ludus ships under this
            # name, its module has been imported.
            module, _, attribute = self.shipped[name].target.partition(":")
            if not same or getattr(sys.modules.get(module), attribute, None) is not target:
                raise ConfigError(
                    f"{self.kind} {name!r} is one ludus ships ({self.shipped[name].target}); "
                    f"{advice}"
                )
        present = self.registered.get(name)
        if present is not None and origin(present) != origin(target):
            raise ConfigError(
                f"{self.kind} {name!r} is already registered by {origin(present)}; {advice}"
            )

    def find(self, name: str) -> Target:
        """Return the class or function behind `name`.

        Raises:
            UnknownName: nobody has the name; the message has the nearest one.
            ConfigError: a package offers the name and cannot be imported, or two packages do.
        """
        if name in self.registered:
            return self.registered[name]
        if name in self.shipped:
            module, _, attribute = self.shipped[name].target.partition(":")
            target: Target = getattr(import_module(module), attribute)
            return target
        offered: Target | None = load_offered(self.group, name)
        if offered is None:
            hint = "in Python options are keyword arguments" if "?" in name else self.hint
            raise self.unknown.near(name, self.names(), hint=hint)
        return offered

    def descriptions(self) -> list[Description]:
        """Describe everything, sorted by name; what ludus ships is not imported."""
        return [self.describe(name) for name in self.names()]

    def describe(self, name: str) -> Description:
        """Describe a thing by the table, or by the first sentence of the docstring.

        A thing that cannot be imported is described by the reason: somebody else's broken package
        must not hide the others.
        """
        if name in self.shipped and name not in self.registered:
            shipped = self.shipped[name]
            modules = MODULES_OF_EXTRA.get(shipped.extra, ())
            if all(map(find_spec, modules)):
                return Description(name, shipped.summary)
            return Description(name, "", str(MissingExtra.of(shipped.extra, needed_for=name)))
        try:
            return Description(name, summary(self.find(name)))
        except LudusError as error:
            return Description(name, "", str(error))
        except Exception as error:
            return Description(name, "", f"cannot be imported: {type(error).__name__}: {error}")


def summary(target: object) -> str:
    """Return the first sentence of the docstring of `target`, or the first paragraph if shorter."""
    text = inspect.getdoc(target) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".")


def origin(target: object) -> str:
    """Return where `target` is defined, as `module.name`."""
    return f"{getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', '?')}"


def offered_names(group: str) -> set[str]:
    """Return the names that installed packages offer in an entry-point group."""
    return {point.name for point in entry_points(group=group)}


def load_offered(group: str, name: str) -> Any | None:
    """Return the object that a package offers as `name` in `group`, or None if no package does.

    Raises:
        ConfigError: the object cannot be imported, or two packages offer different objects.
    """
    points = sorted(entry_points(group=group, name=name), key=_package)
    if not points:
        return None
    if len({point.value for point in points}) > 1:
        raise ConfigError(
            f"{name!r} is offered by {' and by '.join(map(_source, points))}; uninstall one, or "
            "rename it in its pyproject.toml"
        )
    try:
        return points[0].load()
    except LudusError:
        raise
    except Exception as error:  # a package may raise anything as it is imported
        raise ConfigError(
            f"{name!r}, offered by {_source(points[0])}, cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error


def _source(point: EntryPoint) -> str:
    return f"the package {_package(point)} ({point.value})"


def _package(point: EntryPoint) -> str:
    return "" if point.dist is None else point.dist.name
