"""`ludus completion`: a script that lets a shell complete verbs, names and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from .arguments import VerbHelp, parse

BASH = """\
_ludus() {
    local word="${COMP_WORDS[COMP_CWORD]}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "VERBS" -- "$word"))
    else
        COMPREPLY=($(compgen -W "NAMES" -- "$word"))
        local IFS=$'\n'  # names of files have spaces
        COMPREPLY+=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _ludus ludus
"""
ZSH = f"autoload -U bashcompinit && bashcompinit\n{BASH}"
FISH = """\
complete -c ludus -n __fish_use_subcommand -f -a "VERBS"
complete -c ludus -n "not __fish_use_subcommand" -a "NAMES"
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@dataclass(frozen=True)
class CompletionOptions:
    """The options of `ludus completion`."""

    shell: Annotated[
        Literal["bash", "zsh", "fish"], tyro.conf.Positional, tyro.conf.arg(metavar="SHELL")
    ]
    """bash, zsh or fish."""


def main(arguments: Sequence[str]) -> int:
    """Print the script of a shell; returns 0.

    The names are those that are registered now, so that a press of Tab starts no interpreter.
    """
    options = parse(
        CompletionOptions,
        arguments,
        VerbHelp(
            verb="completion",
            about="Print a script with which a shell completes verbs, names and files.",
            example='eval "$(ludus completion bash)"',
        ),
    )
    from ludus.cli.main import VERBS
    from ludus.envs.registry import env_ids
    from ludus.rewards import verifier_names

    names = " ".join(sorted([*env_ids(), *verifier_names()]))
    print(SCRIPTS[options.shell].replace("VERBS", " ".join(VERBS)).replace("NAMES", names), end="")
    return 0
