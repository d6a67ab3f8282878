"""The parsing of a verb's arguments into a dataclass, by tyro, with errors of a single line.

    @dataclass(frozen=True)
    class Options:
        env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
        '''The id of the environment.'''

        seed: int = 0
        '''The seed of the episode.'''

    help = VerbHelp(verb="play", about="Play.", example="ludus play me/echo-v0")
    options = parse(Options, arguments, help)

The text under each field is the help of that option.
"""

from __future__ import annotations

import dataclasses
import difflib
import io
import re
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import tyro

from ludus.errors import ConfigError
from ludus.secret import Secret

Options = TypeVar("Options")

_BOX = "╭╮╰╯│─┌┐└┘|"
_CHOICE = re.compile(
    r"invalid choice '(?P<given>.*)' for argument '(?P<option>[^']*)'.*\((?P<choices>.*)\)"
)
_SHORTER = {
    " Perhaps you meant:": "; did you mean",
    " Argument helptext:": ";",
    "Unrecognized": "unknown",
    "Missing from": "missing from",
    "Error parsing": "cannot read",
}


_SECRET = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="TOKEN",
    instance_from_str=lambda words: Secret(words[0]),
    is_instance=lambda value: isinstance(value, Secret),
    str_from_instance=lambda value: [str(value)],
)
Token = Annotated[Secret, _SECRET]
"""A token option, given as the token itself or as `env:NAME`."""
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""A switch such as `--json`, without the `--no-json` that tyro would add."""


_REGISTRY = tyro.constructors.ConstructorRegistry()
"""How options of types that tyro does not know are read."""


@_REGISTRY.primitive_rule
def _secret(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[Secret] | None:
    return _SECRET if info.type is Secret else None


@_REGISTRY.primitive_rule
def _rows(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Read a list of dataclasses from a list of inline tables of TOML."""
    rows = get_args(info.type) if get_origin(info.type) is list else ()
    if not rows or not dataclasses.is_dataclass(rows[0]):
        return None
    from .settings import read_rows, write_rows

    cls = cast(type[Any], rows[0])
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="[{NAME = VALUE, ...}, ...]",
        instance_from_str=lambda words: read_rows(cls, words[0]),
        is_instance=lambda value: isinstance(value, list),
        str_from_instance=lambda value: [write_rows(value)],
    )


@dataclasses.dataclass(frozen=True)
class VerbHelp:
    """The texts that the help and the errors of a verb show."""

    verb: str
    """The name of the verb, with that of its action if it has several."""
    about: str
    """What the verb does, in a sentence."""
    example: str
    """A command line that works."""


def parse(
    options: type[Options],
    arguments: Sequence[str],
    help: VerbHelp,
    *,
    default: Options | None = None,
) -> Options:
    """Read `arguments` as `options`; `--help` prints `help` around the fields, and exits.

    Args:
        options: the dataclass of the verb's options.
        arguments: the words after the verb.
        help: what the help and the errors say of the verb.
        default: the values of what the arguments do not name; by default those of the class.

    Raises:
        ConfigError: the arguments cannot be read; the message is a single line that says what to
            do.
        SystemExit: the help was printed.
    """
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint), _REGISTRY:
            parsed: Options = tyro.cli(
                options,
                prog=f"ludus {help.verb}",
                description=f"{help.about}\n\nexample:\n  {help.example}",
                args=_merged(options, arguments),
                default=tyro.MISSING_NONPROP if default is None else default,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ConfigError(one_line(complaint.getvalue(), help.verb)) from None
    return parsed


def _merged(options: type[object], arguments: Sequence[str]) -> list[str]:
    """Join the values of a repeated flag that takes several, and refuse other repetitions."""
    hints = get_type_hints(options)
    groups: list[list[str]] = [[]]
    for word in arguments:
        if word.startswith("--") and len(word) > 2:
            groups.append([])
        groups[-1].append(word)
    merged: dict[str, list[str]] = {}
    for group in groups[1:]:
        flag, equals, value = group[0].partition("=")
        values = [value, *group[1:]] if equals else group[1:]
        *sections, name = flag[2:].replace("_", "-").split(".")
        key = ".".join([*sections, name.removeprefix("no-")])
        if key not in merged:
            merged[key] = group
        elif get_origin(hints.get(key.replace("-", "_"))) is tuple:
            merged[key] = [*merged[key], *values]
        else:
            raise ConfigError(f"{flag} is given twice; give it once")
    return [*groups[0], *(word for group in merged.values() for word in group)]


def one_line(complaint: str, verb: str) -> str:
    """Reduce an error that tyro drew in a box to a single line, with the way to the verb's help."""
    kept_lines = [line.strip(_BOX + " ") for line in complaint.splitlines()[1:]]
    message = " ".join(line for line in kept_lines if line.strip("-+"))
    for words, shorter in _SHORTER.items():
        message = message.replace(words, shorter)
    message = message.partition(" For full helptext")[0]
    message = re.sub(r"^cannot read [A-Z]\w*: ", "", message)  # said by the dataclass itself
    if choice_match := _CHOICE.match(message):
        choices = re.findall(r"'([^']*)'", choice_match["choices"])
        close_names = difflib.get_close_matches(choice_match["given"], choices, n=1, cutoff=0.5)
        suggestion = f"did you mean {close_names[0]!r}? " if close_names else ""
        message = (
            f"{choice_match['option']} {choice_match['given']!r} is not a choice; {suggestion}"
        )
        message += f"choices: {', '.join(choices)}"
    return f"{message} (ludus {verb} --help)"
