"""`ludus env`: interpreters of other projects' environments, and packages of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from ludus.envs.outside.home import (
    INSTALL_TIMEOUT_S,
    environments_folder,
    install,
    installed,
    installed_kinds,
    python_of,
    remove,
)
from ludus.envs.outside.kinds import find_kind, kind_names
from ludus.envs.outside.process import START_TIMEOUT_S, interpreter
from ludus.errors import UnknownName

from .arguments import Flag, VerbHelp, parse
from .publish import main as publish

USAGE = """\
usage: ludus env install ID [--python PYTHON] [--package SPEC ...]   install an environment
       ludus env list [--json]                                       what is installed
       ludus env remove KIND                                         remove it
       ludus env publish FOLDER --to DESTINATION                     give yours to others

ID is a kind of environments, or an environment of it: reasoning-gym, reasoning-gym/countdown-v0.
ludus list --available shows all of them; ludus env ACTION --help says more about an action.

examples:
  ludus env install reasoning-gym
  ludus env install textarena --python 3.12
  ludus env remove gem"""


class UnknownEnvAction(UnknownName):
    """The command line names something that `ludus env` does not do."""

    kind = "action of ludus env"


@dataclass(frozen=True, kw_only=True)
class InstallOptions:
    """The options of `ludus env install`."""

    id: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")]
    """A kind of environments, or an environment of the kind."""
    python: str = ""
    """The interpreter that the virtual environment is made with: a program, or a version such as
    3.12, which is looked for on PATH, among pyenv's and uv's; by default the one that suits the
    kind."""
    package: tuple[str, ...] = ()
    """What pip installs besides, such as a package with environments, or another version."""
    timeout_s: float = INSTALL_TIMEOUT_S
    """Seconds that each command of pip may take."""


@dataclass(frozen=True)
class EnvListOptions:
    """The options of `ludus env list`."""

    json: Flag = False
    """Print JSON: an object of kinds with what is installed, or null where it is unfinished."""


@dataclass(frozen=True, kw_only=True)
class RemoveOptions:
    """The options of `ludus env remove`."""

    kind: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="KIND")]
    """The kind whose virtual environment is removed."""


def main(arguments: list[str]) -> int:
    """Run the action that `arguments` name, and return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    if arguments[0] not in ACTIONS:
        raise UnknownEnvAction.near(arguments[0], ACTIONS, hint="ludus env --help")
    return ACTIONS[arguments[0]](arguments[1:])


def _install(arguments: list[str]) -> int:
    options = parse(
        InstallOptions,
        arguments,
        VerbHelp(
            verb="env install",
            about="Make the virtual environment of a kind, install its packages by pip, and import "
            "them once.",
            example="ludus env install reasoning-gym",
        ),
    )
    kind = find_kind(options.id.partition("/")[0])
    record = install(
        kind, python=options.python, packages=options.package, timeout_s=options.timeout_s
    )
    for clash in record.clashes:
        print(f"pip check: {clash}")
    process = interpreter(
        python_of(kind), kind.adapter, memory_bytes=0, timeout_s=START_TIMEOUT_S, label=kind.name
    )
    process.close()
    folder = environments_folder() / kind.name
    print(f"{kind.name}: {len(record.packages)} packages, Python {record.python}, in {folder}")
    if kind.hint:
        print(kind.hint)
    return 0


def _list(arguments: list[str]) -> int:
    options = parse(
        EnvListOptions,
        arguments,
        VerbHelp(
            verb="env list",
            about="Show the virtual environments of other projects' environments.",
            example="ludus env list",
        ),
    )
    environments = {name: installed(name) for name in installed_kinds()}
    if options.json:
        print(
            json.dumps(
                {
                    name: msgspec.to_builtins(environment)
                    for name, environment in environments.items()
                }
            )
        )
        return 0
    table = Table("kind", "Python", "packages", "what was asked for", box=None)
    for name, environment in environments.items():
        if environment is None:
            table.add_row(name, "", "", f"unfinished: run 'ludus env install {name}'")
        else:
            requirements = ", ".join(environment.requirements)
            table.add_row(name, environment.python, str(len(environment.packages)), requirements)
    console = Console()
    console.print(table)
    left = ", ".join(name for name in kind_names() if name not in environments)
    console.print(f"in {environments_folder()}; not installed: {left or 'none'}", highlight=False)
    return 0


def _remove(arguments: list[str]) -> int:
    options = parse(
        RemoveOptions,
        arguments,
        VerbHelp(
            verb="env remove",
            about="Remove the virtual environment of a kind.",
            example="ludus env remove gem",
        ),
    )
    remove(options.kind)
    print(f"removed {environments_folder() / options.kind}")
    return 0


ACTIONS: dict[str, Callable[[list[str]], int]] = {
    "install": _install,
    "list": _list,
    "remove": _remove,
    "publish": publish,
}
