"""Environments by id, `[owner/]name-vN`.

An id comes from the decorator, from the table of those ludus ships, or from another package's entry
point:

    [project.entry-points."ludus.envs"]
    "me/echo-v0" = "my_package.echo:Echo"
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import partial, update_wrapper
from importlib import import_module
from typing import Any, TypeVar

from ludus.arguments import check_plain
from ludus.errors import ConfigError, LudusError, UnknownEnv
from ludus.offered import load_offered, offered_names

from .builtin import BUILTIN
from .outside.sources import is_bare_kind, is_outside, outside_factory
from .protocol import TextEnv

ENTRY_POINT_GROUP = "ludus.envs"
Factory = Callable[..., TextEnv]
Decorated = TypeVar("Decorated", bound=Callable[..., TextEnv])

_ID = re.compile(r"(?:[A-Za-z0-9_\-.]+/)?[A-Za-z0-9_\-.]*[A-Za-z0-9_.]-v\d+")
_registered: dict[str, Factory] = {}
_listeners: list[Callable[[str], None]] = []


def register(env_id: str, **arguments: Any) -> Callable[[Decorated], Decorated]:
    """Register a `TextEnv` class, or a function that returns a `TextEnv`, as `env_id`.

    Args:
        env_id: `name-vN` or `owner/name-vN`.
        arguments: constructor arguments that are fixed for this id.

    Raises:
        ConfigError: the id is malformed, or taken by another class.
    """
    _check_id(env_id)  # `@register` without an id hands in the class

    def decorate(target: Decorated) -> Decorated:
        register_env(env_id, target, **arguments)
        return target

    return decorate


def register_env(env_id: str, target: Factory, **arguments: Any) -> None:
    """Register `target` under `env_id`.

    Raises:
        ConfigError: the id is malformed, or taken by something else.
    """
    _check_id(env_id)
    is_other_class = isinstance(target, type) and not issubclass(target, TextEnv)
    if is_other_class or not callable(target):
        raise ConfigError(
            f"cannot register {target!r:.80} as {env_id!r}: hand in a subclass of ludus.TextEnv, "
            "or a function that makes one"
        )
    if env_id in BUILTIN:
        # Nothing is imported for the comparison: if `target` is the class that ludus ships under
        # this id, its module has been imported.
        module, _, attribute = BUILTIN[env_id].partition(":")
        is_shipped = getattr(sys.modules.get(module), attribute, None) is target
        if arguments or not is_shipped:
            raise ConfigError(
                f"environment {env_id!r} is one ludus ships ({BUILTIN[env_id]}); register "
                f"{_origin(target)} under another id"
            )
    present = _registered.get(env_id)
    if present is not None and _origin(present) != _origin(target):
        raise ConfigError(
            f"environment {env_id!r} is already registered by {_origin(present)}; register "
            f"{_origin(target)} under another id"
        )
    # Fix some arguments of `target`, and keep its name and docstring.
    _registered[env_id] = (
        update_wrapper(partial(target, **arguments), target, updated=()) if arguments else target
    )
    for listener in _listeners:
        listener(env_id)


def on_register(listener: Callable[[str], None]) -> None:
    """Call `listener` with every id known now and registered later."""
    for env_id in env_ids():
        listener(env_id)
    _listeners.append(listener)


def env_ids() -> list[str]:
    """Return all ids: shipped, registered, and offered by installed packages."""
    return sorted({*BUILTIN, *_registered, *offered_names(ENTRY_POINT_GROUP)})


def is_env(env_id: str) -> bool:
    """Whether an id is that of an environment: listed, or of another project's kind."""
    return env_id in env_ids() or is_outside(env_id)


def find_env(env_id: str) -> Factory:
    """The class or function behind `env_id`.

    Raises:
        UnknownEnv: nobody registered it; the message names the near miss.
        MissingExtra: it needs an optional dependency.
        ConfigError: a package offers it that cannot be imported, or two packages do.
    """
    if env_id in _registered:
        return _registered[env_id]
    if env_id in BUILTIN:
        module, _, attribute = BUILTIN[env_id].partition(":")
        factory: Factory = getattr(import_module(module), attribute)
        return factory
    offered_factory: Factory | None = load_offered(ENTRY_POINT_GROUP, env_id)
    if offered_factory is not None:
        _check_id(env_id)
        return offered_factory
    if is_outside(env_id) or is_bare_kind(env_id):
        return outside_factory(env_id)
    raise UnknownEnv.near(
        env_id, env_ids(), hint="ludus list; a file of yours is named by --import"
    )


def build_env(env_id: str, **arguments: Any) -> TextEnv:
    """Construct the environment `env_id`.

    Raises:
        ConfigError: it does not take these arguments, or one is of a wrong type.
    """
    return construct(env_id, find_env(env_id), **arguments)


def construct(env_id: str, factory: Factory, /, **arguments: Any) -> TextEnv:
    """Construct the environment `env_id` from its class or function.

    Raises:
        ConfigError: an argument is unknown or of a wrong type.
    """
    check_plain(env_id, factory, arguments)
    try:
        env = factory(**arguments)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise ConfigError(_misfit(env_id, factory, arguments, error)) from error
        if arguments:
            raise ConfigError(f"{env_id} cannot be made with {arguments!r}: {error}") from error
        raise
    except ValueError as error:  # what a constructor raises about its arguments
        if isinstance(error, LudusError) or not arguments:
            raise
        raise ConfigError(f"{env_id} cannot be made with {arguments!r}: {error}") from error
    if not isinstance(env, TextEnv):
        raise ConfigError(
            f"{env_id} is registered to {_origin(factory)}, which made {type(env).__name__}, not "
            "a TextEnv"
        )
    return env


def _misfit(env_id: str, factory: Factory, arguments: dict[str, Any], error: TypeError) -> str:
    """Return why the call itself failed, before anything in the constructor was run."""
    if inspect.isabstract(factory):
        names: frozenset[str] = getattr(factory, "__abstractmethods__", frozenset())
        missing = ", ".join(f"{name}()" for name in sorted(names))
        return f"{env_id} is registered to {_origin(factory)}, which does not define {missing}"
    if arguments:
        return f"{env_id} does not take these arguments {arguments!r}: {error}"
    return f"{env_id} needs arguments, '{env_id}?name=value', or defaults for them: {error}"


def _check_id(env_id: object) -> None:
    if not isinstance(env_id, str):
        raise ConfigError(
            f"register takes an id, @ludus.register('me/echo-v0'), got {env_id!r:.80}"
        )
    if not _ID.fullmatch(env_id):
        raise ConfigError(
            f"environment id {env_id!r} is not 'name-vN' or 'owner/name-vN', such as 'me/echo-v0'"
        )


def _origin(target: Factory) -> str:
    return f"{target.__module__}.{target.__qualname__}"
