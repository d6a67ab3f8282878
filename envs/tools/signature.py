"""Turns the arguments of a function into a struct that validates calls and gives a JSON Schema."""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from ludus.errors import InvalidTool

_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Arguments = type[msgspec.Struct]
T = TypeVar("T")


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, a partial function, or a callable object."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return getattr(function, "__name__", type(function).__name__)


def arguments_of(function: Callable[..., Any], described: dict[str, str]) -> Arguments:
    """Return a struct with a field for each argument of `function`.

    Args:
        function: a function with annotations; an argument without annotation is text.
        described: what the docstring says about each argument.

    Raises:
        InvalidTool: the signature cannot be described to a policy; the message says why.
    """
    name = name_of(function)
    hints = _hints(function, name)
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:
        missing = "; a method takes self first" if inspect.ismethod(function) else ""
        raise InvalidTool(f"tool {name!r}: {error}{missing}") from error
    fields: list[Any] = []
    for key, parameter in parameters.items():
        if parameter.kind in _UNNAMED:
            raise InvalidTool(
                f"tool {name!r}: *{key} cannot be described to a policy; name each argument"
            )
        hint = hints.get(key, str)
        if key in described:
            hint = Annotated[hint, msgspec.Meta(description=described[key])]
        fields.append((key, hint, *_default(parameter.default)))
    try:
        return _struct(name, fields)
    except (TypeError, NameError) as error:
        raise InvalidTool(
            f"tool {name!r}: its arguments cannot be validated{_culprit(fields)}: {error}"
        ) from error


def _struct(name: str, fields: list[Any]) -> Arguments:
    struct = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    msgspec.json.schema(struct)
    msgspec.json.Decoder(struct)
    return struct


def _culprit(fields: list[Any]) -> str:
    """Name the argument at fault, if a single argument alone is."""
    for key, *rest in fields:
        try:
            _struct("Argument", [(key, *rest)])
        except (TypeError, NameError):
            return f", because of {key!r}"
    return ""


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and not isinstance(target, type):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise InvalidTool(
            f"tool {name!r}: an annotation cannot be resolved: {error}; define the type at the top "
            "of its module"
        ) from error


def _default(value: Any) -> tuple[Any, ...]:
    """Return a field's default, if any; each call gets a fresh copy of a mutable default."""
    if value is inspect.Parameter.empty:
        return ()
    if isinstance(value, (list, dict, set, bytearray)):
        return (msgspec.field(default_factory=functools.partial(copy.deepcopy, value)),)
    return (value,)


def schema_of(struct: Arguments, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments, an object with referenced types under `$defs`."""
    (reference,), components = msgspec.json.schema_components(
        [struct], ref_template="#/$defs/{name}"
    )
    name = reference["$ref"].rpartition("/")[2]
    schema = components.pop(name)
    schema.pop("title", None)
    for key, parameter in inspect.signature(function).parameters.items():
        if isinstance(parameter.default, (list, dict, set)):
            schema["properties"][key]["default"] = msgspec.to_builtins(parameter.default)
    return {**schema, "$defs": components} if components else schema


def call_with(function: Callable[..., T], arguments: dict[str, Any]) -> T:
    """Call `function` with named arguments, even if some parameters are positional-only."""
    parameters = inspect.signature(function).parameters.values()
    by_position = [
        parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY
    ]
    if not by_position:
        return function(**arguments)
    by_name = {key: value for key, value in arguments.items() if key not in by_position}
    return function(*[arguments[key] for key in by_position], **by_name)
