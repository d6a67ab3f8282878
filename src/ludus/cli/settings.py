"""The parsing of verbs whose options are a config class, from a TOML file and the command line.

Options are written like those of the other verbs, `--rollout.max-tokens 16`; the names that the
TOML file has, `--rollout.max_tokens=16`, are taken as well.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ludus.config import Table, build, merge, read_overrides, read_toml

Config = TypeVar("Config")


def parse_settings(
    cls: type[Config],
    arguments: Sequence[str],
    *,
    usage: str,
    named: Callable[[str], Table] | None = read_toml,
) -> Config:
    """Read `arguments` as a config; `--help` prints `usage` and all settings, and exits.

    Args:
        cls: the config class.
        arguments: the words after the verb.
        usage: the head of the help text.
        named: reads the table that a first argument without dashes stands for, by default a TOML
            file; None where the verb takes no such argument.

    Raises:
        ConfigError: a setting does not exist, or a value does not fit.
    """
    rest, table = list(arguments), Table()
    if "-h" in rest or "--help" in rest:
        print(f"{usage}\nsettings (with their defaults):\n{describe(cls)}")
        raise SystemExit(0)
    if named is not None and rest and not rest[0].startswith("-"):
        table = named(rest.pop(0))
    return build(cls, merge(table, read_overrides(rest, cls)))


def describe(cls: Any, prefix: str = "") -> str:
    """List every setting on a line with default and documentation, sections after plain
    settings.
    """
    return "\n".join(_lines(cls, prefix, {}))


def _lines(cls: Any, prefix: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a section.

    Args:
        cls: the section's config class.
        prefix: the names of the sections around it.
        given: the values that the section has by default where it differs from its class: the
            trainer section of two verbs may have two learning rates.
    """
    documented = field_docs(cls)
    sections: list[tuple[str, Any, dict[str, Any]]] = []
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        default = given.get(field.name, _default(field))
        if dataclasses.is_dataclass(hints[field.name]):
            made = {part.name: getattr(default, part.name) for part in _parts(default)}
            sections.append((field.name, hints[field.name], made))
            continue
        shown = f"--{prefix}{field.name}".replace("_", "-") + f"={default}"
        yield f"  {shown:<36} {documented.get(field.name, '')}".rstrip()
    for name, inner, made in sections:
        first_line = (inspect.getdoc(inner) or "").splitlines()[0]
        yield f"\n  {prefix}{name}: {first_line}"
        yield from _lines(inner, f"{prefix}{name}.", made)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else ""


def _parts(default: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(default) if dataclasses.is_dataclass(default) else ()


def field_docs(cls: type) -> dict[str, str]:
    """Return the text under each field of a dataclass, on a single line, by the field's name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found: dict[str, str] = {}
    for node, after in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                value = after.value.value
                text = " ".join(value.split()) if isinstance(value, str) else ""
            else:
                text = ""
            if text:
                found[node.target.id] = text
    return found
