"""The parsing of a verb's arguments into a dataclass, by tyro, with errors of a single line.

    @dataclass(frozen=True)
    class Options:
        env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
        '''The id of the environment.'''

        seed: int = 0
        '''The seed of the episode.'''

    options = parse(Options, arguments, verb="play", about="Play.", example="ludus play me/echo-v0")

The text under each field is the help of that option.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Annotated, TypeVar, get_origin, get_type_hints

import tyro

from ludus.errors import ConfigError
from ludus.secret import Secret

Options = TypeVar("Options")

_BOX = "╭╮╰╯│─┌┐└┘|"
_SHORTER = {
    " Perhaps you meant:": "; did you mean",
    " Argument helptext:": ";",
    "Unrecognized": "unknown",
    "Missing from": "missing from",
    "Error parsing": "cannot read",
}


Token = Annotated[
    Secret,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="TOKEN",
        instance_from_str=lambda given: Secret(given[0]),
        is_instance=lambda value: isinstance(value, Secret),
        str_from_instance=lambda value: [str(value)],
    ),
]
"""A token option, given as the token itself or as `env:NAME`."""
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""A switch such as `--json`, without the `--no-json` that tyro would add."""


def parse(
    options: type[Options], arguments: Sequence[str], *, verb: str, about: str, example: str
) -> Options:
    """Read `arguments` as `options`; `--help` prints `about`, the fields and `example`, and exits.

    Args:
        options: the dataclass of the verb's options.
        arguments: the words after the verb.
        verb: the name of the verb, for the usage line and errors.
        about: what the verb does, in a sentence.
        example: a command line that works.

    Raises:
        ConfigError: the arguments cannot be read; the message is a single line that says what to
            do.
        SystemExit: the help was printed.
    """
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            # Join the values of a repeated flag that takes several, and refuse other repetitions.
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
                if flag not in merged:
                    merged[flag] = group
                elif get_origin(hints.get(flag[2:].replace("-", "_"))) is tuple:
                    merged[flag] = [*merged[flag], *values]
                else:
                    raise ConfigError(f"{flag} is given twice; give it once")
            parsed: Options = tyro.cli(
                options,
                prog=f"ludus {verb}",
                description=f"{about}\n\nexample:\n  {example}",
                args=[*groups[0], *(word for group in merged.values() for word in group)],
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ConfigError(one_line(complaint.getvalue(), verb)) from None
    return parsed


def one_line(complaint: str, verb: str) -> str:
    """Reduce an error that tyro drew in a box to a single line, with the way to the verb's help."""
    kept = [line.strip(_BOX + " ") for line in complaint.splitlines()[1:]]
    said = " ".join(line for line in kept if line)
    for words, shorter in _SHORTER.items():
        said = said.replace(words, shorter)
    said = said.partition(" For full helptext")[0]
    return f"{said} (ludus {verb} --help)"
