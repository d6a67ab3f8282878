"""The parsing of verbs whose options are a config class, from a TOML file and the command line.

The command line is read by tyro, as that of all verbs, on top of what the file says. Options are
written like those of the other verbs, `--rollout.max-tokens 16`; the names that the TOML file has,
`--rollout.max_tokens=16`, are taken as well, and `--run.resume=true` for a switch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ludus.config import Table, as_table, build, draft, read_toml, to_toml, type_at
from ludus.errors import ConfigError
from ludus.secret import refuse_credentials_in

from .arguments import VerbHelp, parse

Config = TypeVar("Config")


def parse_settings(
    cls: type[Config],
    arguments: Sequence[str],
    help: VerbHelp,
    *,
    named: Callable[[str], Table] | None = read_toml,
) -> Config:
    """Read `arguments` as a config; `--help` prints `help` around the settings, and exits.

    Args:
        cls: the config class.
        arguments: the words after the verb.
        help: what the help and the errors say of the verb.
        named: reads the table that a first argument without dashes stands for, by default a TOML
            file; None where the verb takes no such argument.

    Raises:
        ConfigError: a setting does not exist, a value does not fit, or settings contradict each
            other.
        SystemExit: the help was printed.
    """
    rest, table = list(arguments), Table()
    if named is not None and rest and not rest[0].startswith("-"):
        table = named(rest.pop(0))
    stray = next((word for word in rest[:1] if not word.startswith("-")), None)
    if stray is not None:
        raise ConfigError(f"did not expect {stray!r}; settings look like --trainer.lr=1e-6")
    config = parse(
        cls,
        _with_switches(cls, rest),
        help,
        default=draft(cls, table),
    )
    refuse_credentials_in(as_table(config))
    return config


def _with_switches(cls: type[Any], words: Sequence[str]) -> list[str]:
    """Write `--a.b=true`, `--a.b false` and `--no-a.b` as the switches that tyro has: `--a.b` and
    `--a.no-b`.
    """
    spelled: list[str] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        negated = name.startswith("no-")
        path = (name[3:] if negated else name).replace("-", "_").split(".")
        if not word.startswith("--") or type_at(cls, path) is not bool:
            spelled.append(word)
            continue
        if not equals and remaining and not remaining[0].startswith("-"):
            value = remaining.pop(0)
        if value.lower() not in ("", "true", "false") or (negated and value):
            raise ConfigError(f"{word} is a switch, which takes no {value!r}")
        if negated or value.lower() == "false":
            path[-1] = f"no-{path[-1]}"
        spelled.append("--" + ".".join(path).replace("_", "-"))
    return spelled


def read_rows(cls: type[Config], text: str) -> list[Config]:
    """Read a list of tables as TOML writes it inline, `[{name = "maths"}]`.

    Raises:
        ConfigError: the text is not such a list, or a table has a setting that `cls` has not.
    """
    try:
        rows = tomllib.loads(f"rows = {text}")["rows"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"cannot read {text!r}, which is not TOML: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{text!r} is not a list of tables; write [{{name = 'maths'}}]")
    return [build(cls, row) for row in rows]


def write_rows(rows: Sequence[object]) -> str:
    """Write configs as `read_rows` reads them."""
    tables = (to_toml(as_table(row)).strip().replace("\n", ", ") for row in rows)
    return f"[{', '.join(f'{{{table}}}' for table in tables)}]"
