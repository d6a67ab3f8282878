"""Typed settings: frozen dataclasses filled from TOML, and from the command line by `cli.settings`.

A field that does not exist, or a value that does not fit, is refused by name before anything
starts:

    no setting named 'trainer.lrr'; did you mean 'trainer.lr'?
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec

from ludus.errors import ConfigError
from ludus.secret import Secret, refuse_credentials_in

Config = TypeVar("Config")
Table = dict[str, Any]


def read_toml(path: str | Path) -> Table:
    """Read a TOML file.

    Raises:
        ConfigError: the file is missing, cannot be read, or is not TOML; the message names the
            line.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no such file: {str(path)!r}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or nested too deeply
        raise ConfigError(f"{path}: {error}") from None


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """Return `base` with the values of `over` put in, table by table.

    >>> merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    merged = dict(base)
    for name, value in over.items():
        present = merged.get(name)
        both_tables = isinstance(present, Mapping) and isinstance(value, Mapping)
        merged[name] = merge(present, value) if both_tables else value  # type: ignore[arg-type]
    return merged


def draft(cls: type[Config], table: Mapping[str, Any]) -> Config:
    """Return a config with the values of `table`, and the class's own elsewhere, whose checks have
    not run: the command line may still change what they compare.

    Raises:
        ConfigError: an unknown field (the message names the nearest), or a value of a wrong type.
    """
    _refuse_unknown(cls, table, [])

    def fill(part: type[object], values: Mapping[str, Any], path: list[str]) -> object:
        """Return an instance of `part`, the config at `path`, made without the checks of `part`."""
        instance, hints = object.__new__(part), typing.get_type_hints(part)
        for field in dataclasses.fields(part):  # type: ignore[arg-type]
            name, kind = field.name, hints[field.name]
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            value = values.get(name, default)
            if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
                value = fill(cast(type[Any], kind), value, [*path, name])
            elif name in values:
                try:
                    value = msgspec.convert(value, kind, strict=False, dec_hook=_as_own)
                except msgspec.ValidationError as error:
                    raise _misfit(cls, table, error, [*path, name]) from None
            object.__setattr__(instance, name, value)
        return instance

    return cast(Config, fill(cls, _with_defaults(cls, table), []))


def build(cls: type[Config], table: Mapping[str, Any]) -> Config:
    """Make a config of `table`.

    Raises:
        ConfigError: an unknown field (the message names the nearest), or a value of a wrong type.
    """
    _refuse_unknown(cls, table, [])
    try:
        filled = _with_defaults(cls, table)
        settings = msgspec.convert(filled, cls, strict=False, dec_hook=_as_own)
    except msgspec.ValidationError as error:
        raise _misfit(cls, table, error, []) from None
    except ValueError as error:
        raise ConfigError(str(error)) from None
    refuse_credentials_in(as_table(settings))
    return settings


def _with_defaults(cls: type[Any], table: Mapping[str, Any]) -> Table:
    """Fill sections that are given in part with the defaults that `cls` has for them, where these
    are not the section's own: the learning rate of a warm start is not that of training.
    """
    filled, hints = dict(table), typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        value, kind = table.get(field.name), hints[field.name]
        factory = field.default_factory
        if isinstance(value, Mapping) and dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            default = kind() if factory is dataclasses.MISSING else factory()
            special = {
                part.name: getattr(default, part.name)
                for part in dataclasses.fields(kind)
                if part.default not in (dataclasses.MISSING, getattr(default, part.name))
            }
            filled[field.name] = _with_defaults(kind, {**special, **value})
    return filled


def as_table(config: object) -> Table:
    """Return a config as plain values, defaults included. A secret becomes `env:NAME` if given that
    way, and is hidden otherwise.
    """
    table: Table = msgspec.to_builtins(_as_mapping(config), enc_hook=_hidden)
    return table


def _as_mapping(value: object) -> object:
    """Return a dataclass as a mapping: msgspec leaves out fields that a config was built without,
    since those are attributes of the class.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _as_mapping(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    return [_as_mapping(item) for item in value] if isinstance(value, list) else value


def _as_own(kind: type[Any], value: Any) -> Any:
    if kind is Secret and isinstance(value, (str, Secret)):
        return Secret.of(value)
    if kind is Path and isinstance(value, (str, Path)):
        return Path(value)
    raise TypeError(f"expected {'a text' if kind in (Secret, Path) else kind.__name__}")


def _hidden(value: object) -> object:
    if isinstance(value, Secret):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be a setting")


def to_toml(table: Mapping[str, Any]) -> str:
    """Return TOML text that `read_toml` reads back; values that are None are left out."""
    return "\n".join(_toml_lines(table, [])).strip() + "\n"


def _toml_lines(table: Mapping[str, Any], path: list[str]) -> Iterable[str]:
    plain = {k: v for k, v in table.items() if v is not None and not _is_table(v)}
    for name, value in plain.items():
        # TOML's scalars and arrays are JSON's
        yield f"{name} = {msgspec.json.encode(value).decode()}"
    for name, value in table.items():
        rows: Sequence[Any] = value if isinstance(value, list) else [value]
        for row in rows if _is_table(value) else []:
            head = ".".join([*path, name])
            yield f"\n[[{head}]]" if isinstance(value, list) else f"\n[{head}]"
            yield from _toml_lines(row, [*path, name])


def _is_table(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(row, Mapping) for row in value)
    return isinstance(value, Mapping)


def _misfit(
    cls: object, table: Mapping[str, Any], error: msgspec.ValidationError, path: list[str]
) -> ConfigError:
    """Return the error to raise where a value at or below `path` of `table` does not fit `cls`."""
    if isinstance(error.__cause__, ConfigError):  # said by the class itself
        return ConfigError(str(error.__cause__))
    message, _, place = str(error).partition(" - at `$")
    name = ".".join(path) + place.rstrip("`") if path else place.rstrip("`").lstrip(".")
    names = name.split(".")
    value: object = table
    for part in names:  # None if there is no such path
        value = value.get(part) if isinstance(value, Mapping) else None
    if any(word in names[-1].lower() for word in ("token", "key", "secret")):
        value = None  # not shown
    kind, choices = type_at(cls, names), list[str]()
    if isinstance(kind, type) and issubclass(kind, Enum):
        choices = [str(member.value) for member in kind]
    elif typing.get_origin(kind) is Literal:
        choices = [str(choice) for choice in typing.get_args(kind)]
    if choices and isinstance(value, str):
        close_names = difflib.get_close_matches(value, choices, n=1, cutoff=0.5)
        suggestion = f"did you mean {close_names[0]!r}? " if close_names else ""
        message = f"{value!r} is not a choice; {suggestion}choices: {', '.join(choices)}"
    elif value is not None and not isinstance(value, Mapping):
        message = f"{message} {value!r}"
    return ConfigError(f"setting {name or '?'!r}: {message}")


def type_at(cls: object, path: Sequence[str]) -> object:
    """Return the type of the field at `path` of a config class; None for an unknown field."""
    for name in path:
        cls = typing.get_type_hints(cls).get(name) if dataclasses.is_dataclass(cls) else None
    return cls


def _refuse_unknown(cls: Any, table: Mapping[str, Any], path: list[str]) -> None:
    hints = typing.get_type_hints(cls)
    for name, value in table.items():
        if name not in hints:
            close_names = difflib.get_close_matches(name, [*hints], n=1, cutoff=0.5)
            hint = f"known here: {', '.join(hints)}"
            if close_names:
                hint = f"did you mean {'.'.join([*path, close_names[0]])!r}?"
            raise ConfigError(f"no setting named {'.'.join([*path, name])!r}; {hint}")
        inner = hints[name]
        if typing.get_origin(inner) is list and isinstance(value, list):
            (inner,) = typing.get_args(inner)
            for row in value if dataclasses.is_dataclass(inner) else []:
                if isinstance(row, Mapping):
                    _refuse_unknown(inner, row, [*path, name])
        elif dataclasses.is_dataclass(inner) and isinstance(value, Mapping):
            _refuse_unknown(inner, value, [*path, name])
