"""Context managers by name: those of ludus, registered ones, and those of installed packages.

@register_context("me/newest")
class Newest(ContextManager): ...

[project.entry-points."ludus.contexts"]
"me/newest" = "my_package.context:Newest"
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from ludus.arguments import check_plain
from ludus.errors import ConfigError, LudusError, UnknownName
from ludus.offered import load_offered, offered_names

from .protocol import ContextManager

ENTRY_POINT_GROUP = "ludus.contexts"
ContextFactory = Callable[..., ContextManager]
Decorated = TypeVar("Decorated", bound=Callable[..., ContextManager])

BUILTIN = {
    "none": ".keep:KeepEverything",
    "keep_last_k": ".keep:KeepLast",
    "discard": ".keep:Discard",
    "summarize": ".summarize:Summarize",
    "fold": ".fold:Fold",
    "clear": ".clear:ClearToolResults",
    "memory": ".memory:MemoryTool",
    "records": ".records:Records",
    "mem1": ".state:InternalState",
    "agent_fold": ".agent_fold:FoldSteps",
    "memagent": ".memagent:MemAgent",
    "resum": ".resum:ReSum",
}
"""The managers of ludus."""
_NAME = re.compile(r"(?:[A-Za-z0-9_\-.]+/)?[A-Za-z0-9_\-.]+")
_registered: dict[str, ContextFactory] = {}


class UnknownContext(UnknownName):
    """No context manager has this name."""

    kind = "context manager"


def register_context(name: str) -> Callable[[Decorated], Decorated]:
    """Register a `ContextManager` class, or a function that returns a manager, as `name`.

    The constructor gets the fields of `[context]` that its parameters name, and the arguments after
    `?` in `context.manager`.

    Args:
        name: such as `me/newest`; `+`, `?` and `&` have a meaning in settings and cannot be part of
            a name.

    Raises:
        ConfigError: the name is malformed, or taken by another class.
    """

    def decorate(target: Decorated) -> Decorated:
        _check_name(name)
        _check_target(name, target)
        present = _registered.get(name)
        if name in BUILTIN or (present is not None and _origin(present) != _origin(target)):
            owner = "ludus" if present is None else _origin(present)
            raise ConfigError(
                f"context manager {name!r} is already registered by {owner}; register "
                f"{_origin(target)} under another name"
            )
        _registered[name] = target
        return target

    return decorate


def context_names() -> list[str]:
    """Return all names: those of ludus, registered ones, and those that packages offer."""
    return sorted({*BUILTIN, *_registered, *offered_names(ENTRY_POINT_GROUP)})


def find_context(name: str) -> ContextFactory:
    """Return the class or function behind `name`.

    Raises:
        UnknownContext: nobody registered the name; the message has the nearest one.
        ConfigError: a package offers the name and cannot be imported, or two packages do.
    """
    if name in _registered:
        return _registered[name]
    if name in BUILTIN:
        module, _, attribute = BUILTIN[name].partition(":")
        factory: ContextFactory = getattr(import_module(module, __package__), attribute)
        return factory
    offered_factory: ContextFactory | None = load_offered(ENTRY_POINT_GROUP, name)
    if offered_factory is None:
        raise UnknownContext.near(name, context_names())
    _check_name(name)
    return offered_factory


def build_context(name: str, options: dict[str, Any], shared: dict[str, Any]) -> ContextManager:
    """Construct the manager `name`.

    Args:
        name: the name of the manager.
        options: arguments that must fit the constructor.
        shared: settings of which the constructor gets those that it names.

    Raises:
        UnknownContext: nobody registered the name.
        ConfigError: an argument is unknown or unfit, or the factory makes something else.
    """
    factory = find_context(name)
    parameters = inspect.signature(factory).parameters
    unknown = sorted(set(options) - set(parameters))
    if unknown and not any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    ):
        raise UnknownArgument.near(unknown[0], parameters, hint=f"context manager {name!r}")
    check_plain(name, factory, options)
    arguments = {key: value for key, value in shared.items() if key in parameters} | options
    try:
        manager: object = factory(**arguments)
    except (TypeError, ValueError) as error:
        if isinstance(error, LudusError):
            raise
        raise ConfigError(f"context manager {name!r} cannot be made: {error}") from error
    if not isinstance(manager, ContextManager):
        raise ConfigError(
            f"{name!r} is registered to {_origin(factory)}, which made {type(manager).__name__}, "
            "not a ContextManager"
        )
    return manager


class UnknownArgument(UnknownName):
    """A context manager takes no argument of this name."""

    kind = "argument"


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"context manager name {name!r:.80} is not 'name' or 'owner/name', such as 'me/newest'"
        )


def _check_target(name: str, target: object) -> None:
    wrong_class = isinstance(target, type) and not issubclass(target, ContextManager)
    if wrong_class or not callable(target):
        raise ConfigError(
            f"cannot register {target!r:.80} as {name!r}: hand in a subclass of ContextManager, "
            "or a function that makes one"
        )


def _origin(target: Callable[..., object]) -> str:
    return f"{target.__module__}.{target.__qualname__}"
