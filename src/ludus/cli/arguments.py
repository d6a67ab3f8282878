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

`parse_settings` reads the settings of a run: a TOML file, if the first argument names one, and then
options, which go before the file. Besides `--rollout.max-tokens 16` it takes the names of the TOML
file, `--rollout.max_tokens=16`, and `--run.resume=true` for a switch.
"""

from __future__ import annotations

import dataclasses
import difflib
import io
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import tyro

from ludus.config import Table, as_table, build, draft, read_toml, to_toml, type_at
from ludus.errors import ConfigError, UnknownName
from ludus.secret import Secret, refuse_credentials_in

Options = TypeVar("Options")

_BOX = "╭╮╰╯│─┌┐└┘|"
_CHOICE = re.compile(
    r"invalid choice '(?P<given>.*)' for argument '(?P<option>[^']*)'.*\((?P<choices>.*)\)"
)
_NUMBER = re.compile(
    r"cannot read (?P<option>--[\w.-]+): (?:invalid literal for (?P<kind>int)\(\) with base 10: "
    r"(?P<whole>'.*?')|could not convert string to float: (?P<real>'.*?'));"
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
        default: the values of options that the arguments leave out; by default those of the
            class.

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
        message = one_line(complaint.getvalue(), help.verb)
        raise ConfigError(_with_neighbour(message, options, arguments)) from None
    return parsed


def _with_neighbour(message: str, options: type[object], arguments: Sequence[str]) -> str:
    """Add to a message about an unknown option `--a.b` the option of another section that has the
    same name or a similar name: users of other trainers look for options in other sections.

    Two mistakes have a message of their own: `--import` behind the verb, and an option in place of
    a positional argument.
    """
    unknown = re.match(r"unknown options: --([\w.-]+)", message)
    beginnings = ("unknown options", "Missing value", "missing from")
    if message.startswith(beginnings) and any(word.startswith("--import") for word in arguments):
        verb = message.rpartition("(ludus ")[2].partition(" ")[0]
        return f"--import stands before the verb: ludus --import FILE.py {verb} ..."
    hints = get_type_hints(options, include_extras=True)
    positional = [
        name
        for name, hint in hints.items()
        if tyro.conf.Positional in getattr(hint, "__metadata__", ())
    ]
    for name in positional if message.startswith(beginnings) else ():
        if any(word.partition("=")[0] == f"--{name}" for word in arguments):
            end = message.rpartition(" (ludus")[2]
            return f"--{name} is no option here: give its value alone, behind the verb (ludus{end}"
    if unknown is None or "did you mean" in message:
        return message
    paths = {path.rpartition(".")[2]: path for path in reversed(_paths(options))}
    name = unknown[1].rpartition(".")[2].replace("_", "-")
    nearest = difflib.get_close_matches(name, paths, n=1, cutoff=0.75)
    if not nearest:
        return message
    return message.replace(" (ludus", f"; did you mean --{paths[nearest[0]]}? (ludus", 1)


def _paths(options: type[object], section: str = "") -> list[str]:
    """Return every option of a dataclass, such as `rollout.group-size`, in order."""
    paths: list[str] = []
    hints = get_type_hints(options)
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        name, kind = f"{section}{field.name.replace('_', '-')}", hints[field.name]
        nested = dataclasses.is_dataclass(kind) and isinstance(kind, type)
        paths += _paths(kind, f"{name}.") if nested else [name]
    return paths


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
        message += f"choices: {', '.join(filter(None, choices))}"
    if number_match := _NUMBER.match(message):
        kind = "a whole number" if number_match["kind"] else "a number"
        given = number_match["whole"] or number_match["real"]
        message = f"{number_match['option']} takes {kind}, got {given}"
    if message.startswith("unknown options"):
        unknown, *similar = _SIMILAR.split(message)
        names = list(dict.fromkeys(name for text in similar for name in _OPTION.findall(text)[:2]))
        message = f"{unknown}; did you mean {' or '.join(names)}?" if names else unknown
    return f"{message} (ludus {verb} --help)"


_SIMILAR = re.compile(r"; did you mean (?=--)| Arguments similar to --[\w.-]+:")
_OPTION = re.compile(r"(--[\w.-]+)(?= [A-Z{\[])")
"""An option before its placeholder or its text."""


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
        named: reads the table of settings that a first argument without dashes names, by default
            a TOML file; None where the verb takes no such argument.

    Raises:
        ConfigError: a setting does not exist, a value does not fit, or settings contradict each
            other.
        SystemExit: the help was printed.
    """
    words, table = list(arguments), Table()
    if named is not None and words and not words[0].startswith("-"):
        table = named(words.pop(0))
    stray = next((word for word in words[:1] if not word.startswith("-")), None)
    if stray is not None:
        raise ConfigError(f"did not expect {stray!r}; settings look like --trainer.lr=1e-6")
    config = parse(cls, _with_switches(cls, words), help, default=draft(cls, table))
    refuse_credentials_in(as_table(config))
    return config


def _with_switches(cls: type[Any], words: Sequence[str]) -> list[str]:
    """Rewrite `--a.b=true`, `--a.b false` and `--no-a.b` as tyro's own switches, `--a.b` and
    `--a.no-b`.
    """
    spelled: list[str] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        negated = name.startswith("no-")
        path = (name[3:] if negated else name).replace("-", "_").split(".")
        kind = type_at(cls, path)
        choices = get_args(kind) if bool in get_args(kind) else ()  # a switch or one of some words
        if not word.startswith("--") or not (kind is bool or choices):
            spelled.append(word)
            continue
        if not equals and remaining and not remaining[0].startswith("-"):
            value = remaining.pop(0)
        if choices:
            value = "false" if negated else value or "true"
            flag = "--" + ".".join(path).replace("_", "-")
            spelled += [flag, value.title() if value.lower() in ("true", "false") else value]
            continue
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
    """Write configs in the format of `read_rows`."""
    tables = (to_toml(as_table(row)).strip().replace("\n", ", ") for row in rows)
    return f"[{', '.join(f'{{{table}}}' for table in tables)}]"


Action = Callable[[Sequence[str]], int]
"""A function from the words after the action's name to the exit status."""


class UnknownAction(UnknownName):
    """The command line names an action that the verb does not have."""

    kind = "action"


def run_action(
    verb: str, actions: Mapping[str, Action], arguments: Sequence[str], *, usage: str
) -> int:
    """Run the action named by the first of `arguments`; without arguments, print `usage`, return 0.

    Raises:
        UnknownAction: the verb has no such action; the message suggests a near miss.
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage)
        return 0
    if arguments[0] not in actions:
        raise UnknownAction.near(arguments[0], actions, hint=f"ludus {verb} --help")
    return actions[arguments[0]](arguments[1:])
