"""Context managers by name: built-in, registered, or from installed packages.

@register_context("me/newest")
class Newest(ContextManager): ...

[project.entry-points."ludus.contexts"]
"me/newest" = "my_package.context:Newest"
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from ludus.errors import ConfigError, LudusError, UnknownName
from ludus.registry import Description, Registry, Shipped, check_plain, origin

from .protocol import ContextManager, TrimmingManager

ContextFactory = Callable[..., ContextManager]
Decorated = TypeVar("Decorated", bound=Callable[..., ContextManager])

BUILTIN: dict[str, Shipped] = {
    "none": Shipped(
        "ludus.agent.context.keep:KeepEverything", "An episode that outgrows the window ends"
    ),
    "keep_last_k": Shipped(
        "ludus.agent.context.keep:KeepLast",
        "A new window has the opening and the last `keep` exchanges, unchanged",
    ),
    "discard": Shipped(
        "ludus.agent.context.keep:Discard",
        "A new window has the opening alone, plus the newest exchange if `carry`",
    ),
    "summarize": Shipped(
        "ludus.agent.context.summarize:Summarize",
        "Summaries of the context that the policy writes and is trained on",
    ),
    "fold": Shipped("ludus.agent.context.fold:Fold", "Lets the policy open branches and return"),
    "clear": Shipped(
        "ludus.agent.context.keep:ClearToolResults", "Clears the results of old tool calls"
    ),
    "memory": Shipped(
        "ludus.agent.context.memory:MemoryTool", "Offers the tool `memory`, and clears full windows"
    ),
    "records": Shipped(
        "ludus.agent.context.keep:Records",
        "Replaces old exchanges by an index, from which the policy can fetch them",
    ),
    "mem1": Shipped(
        "ludus.agent.context.fold:InternalState",
        "Keeps the policy's own state between turns, and nothing else",
    ),
    "agent_fold": Shipped(
        "ludus.agent.context.fold:FoldSteps",
        "Keeps blocks that the policy writes, and the newest step",
    ),
    "memagent": Shipped(
        "ludus.agent.context.memagent:MemAgent",
        "Reads long documents chunk by chunk into an overwritten memory",
    ),
    "resum": Shipped(
        "ludus.agent.context.summarize:ReSum", "Continues from summaries that another model writes"
    ),
}
"""The managers of ludus."""
_NAME = re.compile(r"(?:[A-Za-z0-9_\-.]+/)?[A-Za-z0-9_\-.]+")


class UnknownContext(UnknownName):
    """No context manager has this name."""

    kind = "context manager"


_CONTEXTS: Registry[ContextFactory] = Registry(
    "context manager", BUILTIN, group="ludus.contexts", unknown=UnknownContext
)


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
        wrong_class = isinstance(target, type) and not issubclass(target, ContextManager)
        if wrong_class or not callable(target):
            raise ConfigError(
                f"cannot register {target!r:.80} as {name!r}: hand in a subclass of "
                "ContextManager, or a function that makes one"
            )
        _CONTEXTS.check_free(name, target)
        _CONTEXTS.registered[name] = target
        return target

    return decorate


def context_names() -> list[str]:
    """Return the names of all managers: built-in, registered, or offered by packages."""
    return _CONTEXTS.names()


def find_context(name: str) -> ContextFactory:
    """Return the class or function behind `name`.

    Raises:
        UnknownContext: nobody registered the name; the message has the nearest one.
        ConfigError: a package offers the name and cannot be imported, or two packages do.
    """
    factory = _CONTEXTS.find(name)
    _check_name(name)
    return factory


def describe_contexts() -> list[Description]:
    """Describe all managers by name; built-in managers are not imported."""
    return _CONTEXTS.descriptions()


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
            f"{name!r} is registered to {origin(factory)}, which made {type(manager).__name__}, "
            "not a ContextManager"
        )
    if isinstance(manager, TrimmingManager) and not 0 < manager.threshold <= 1:
        raise ConfigError(f"threshold of {name} must be in (0, 1], got {manager.threshold}")
    return manager


class UnknownArgument(UnknownName):
    """A context manager takes no argument of this name."""

    kind = "argument"


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"context manager name {name!r:.80} is not 'name' or 'owner/name', such as 'me/newest'"
        )
