"""The notation of names on the command line: `-vN` ends an environment, `URL#NAME` is remote.

A flag that the verb does not have, and that a named verifier or environment takes as an option,
moves into the name: `judge?rubric=rubric.toml&model=my-judge`, which is how options are written
everywhere else. A table in a file of options moves into the name in the same way.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from ludus.envs.outside.sources import is_outside
from ludus.envs.registry import env_ids, find_env, is_env
from ludus.errors import ConfigError, UnknownName
from ludus.registry import HINT, options_of
from ludus.rewards import verifier_names
from ludus.rewards.registry import find_verifier
from ludus.wire.address import format_served, parse_served, read_value


class NameKind(StrEnum):
    """The kind of thing that a name stands for."""

    ENVIRONMENT = "environment"
    VERIFIER = "verifier"


class UnknownThing(UnknownName):
    """A name belongs neither to an environment nor to a verifier."""

    kind = "environment or verifier"


def kind_of(name: str) -> NameKind:
    """Tell the kind of `name`, with or without a server's URL in front and arguments behind."""
    is_environment = re.search(r"-v\d+(\?|$)", name) or is_outside(name.rpartition("#")[2])
    return NameKind.ENVIRONMENT if is_environment else NameKind.VERIFIER


def ensure_known(name: str) -> None:
    """Refuse a local name that nobody registered, with the closest names of both kinds.

    Names on a server are let pass, since only the server knows its names.

    Raises:
        UnknownThing: neither an environment nor a verifier has this name.
    """
    known_names = [*env_ids(), *verifier_names()]
    bare = name.partition("?")[0]
    if "://" in bare and "#" not in name:
        raise ConfigError(
            f"{name!r} is a server; name what it serves as {name.rstrip('/')}#NAME (its names: "
            f"{name.rstrip('/')}/v1/envs and /v1/verifiers)"
        )
    if "#" not in name and bare not in known_names and not is_outside(bare):
        raise UnknownThing.near(bare, known_names, hint=HINT)


def take_options(arguments: Sequence[str], verb: type[Any]) -> list[str]:
    """Move the flags that are options of named things into the names, and return the command line.

    A flag that several named things take is given to each of them.

    Args:
        arguments: the words after the verb.
        verb: the dataclass of the verb's own options, which take precedence.

    Raises:
        ConfigError: a value is missing, or an option is given twice.
    """
    own_options = {field.name for field in dataclasses.fields(verb)} | {"help"}
    known_names = {*env_ids(), *verifier_names()}
    bare_at = {n: word.partition("?")[0] for n, word in enumerate(arguments)}
    name_at = {n: b for n, b in bare_at.items() if b in known_names or is_outside(b)}
    options_at = {
        n: options_of(find_env(name) if is_env(name) else find_verifier(name))
        for n, name in name_at.items()
    }
    kept_words = list(arguments)
    values_at: dict[int, dict[str, Any]] = {n: {} for n in name_at}
    dropped: set[int] = set()
    for place, word in enumerate(arguments):
        flag, equals, value = word.partition("=")
        option = flag.removeprefix("--").replace("-", "_")
        owners = [n for n, options in options_at.items() if option in options]
        if not flag.startswith("--") or option in own_options or not owners:
            continue
        dropped.add(place)
        if not equals:
            if place + 1 >= len(arguments) or arguments[place + 1].startswith("--"):
                raise ConfigError(f"{flag} needs a value, such as {flag} VALUE")
            value = arguments[place + 1]
            dropped.add(place + 1)
        for owner in owners:
            if option in values_at[owner]:
                raise ConfigError(f"{flag} is given twice; give it once")
            values_at[owner][option] = (
                value if options_at[owner][option] is str else read_value(value)
            )
    for place, options in values_at.items():
        kept_words[place] = with_options(arguments[place], options)
    return [word for place, word in enumerate(kept_words) if place not in dropped]


def with_options(name: str, options: Mapping[str, Any]) -> str:
    """Add `options` to the arguments that `name` already has.

    >>> with_options("judge?model=m", {"rubric": "r.toml"})
    'judge?model=m&rubric=r.toml'

    Raises:
        ConfigError: the name has one of the options already.
    """
    bare, present = parse_served(name)
    twice = sorted(present.keys() & options.keys())
    if twice:
        raise ConfigError(f"{bare}: {twice[0]} is given twice; give it once")
    return format_served(bare, {**present, **options}) if options else name


def from_file(names: Sequence[str], path: Path | None) -> list[str]:
    """Add the options of a TOML file to `names`; without a file the names stay unchanged.

    The file has a table for each name; where a single thing is named, the options may also stand at
    the top.

    Raises:
        ConfigError: the file cannot be read, or has options of something that is not named.
    """
    if path is None:
        return list(names)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the options {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not TOML: {error}") from None
    bare = [name.partition("?")[0] for name in names]
    if len(bare) == 1 and bare[0] not in table:
        table = {bare[0]: table}
    unknown = next((name for name in table if name not in bare), None)
    if unknown is not None:
        raise ConfigError(f"{path}: {unknown!r} is not among the names {bare}")
    return [with_options(name, table.get(key, {})) for name, key in zip(names, bare, strict=True)]
