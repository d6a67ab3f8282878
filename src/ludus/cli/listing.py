"""`ludus list`: every environment, verifier and context manager, with a summary and the extra that
is missing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.agent.context import context_names, find_context
from ludus.envs import env_ids
from ludus.envs.registry import find_env
from ludus.errors import LudusError
from ludus.rewards import verifier_names
from ludus.rewards.registry import find_verifier

from .arguments import Flag, VerbHelp, parse
from .listing_available import list_available


@dataclass(frozen=True)
class ListOptions:
    """The options of `ludus list`."""

    json: Flag = False
    """Print JSON: an object with `environments`, `verifiers` and `context_managers`; with
    `--available`, a list of families.
    """

    available: Flag = False
    """List the environments of other projects instead, whether installed or not."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the list: a name with a summary, or with the problem that prevents any use."""

    name: str
    summary: str
    problem: str = ""
    """Why the thing cannot be used here, with what to do about it; empty if it can."""


def main(arguments: Sequence[str]) -> int:
    """Print the names of everything that is registered, with summaries; returns 0."""
    options = parse(
        ListOptions,
        arguments,
        VerbHelp(
            verb="list",
            about="List environments, verifiers and context managers: shipped, registered, and of "
            "installed packages.",
            example="ludus list --json",
        ),
    )
    if options.available:
        return list_available(json_output=options.json)
    environments = [entry(name, find_env) for name in env_ids()]
    verifiers = [entry(name, find_verifier) for name in verifier_names()]
    managers = [entry(name, find_context) for name in context_names()]
    kinds = {"environments": environments, "verifiers": verifiers, "context_managers": managers}
    if options.json:
        print(json.dumps({kind: [asdict(e) for e in entries] for kind, entries in kinds.items()}))
        return 0
    console = Console()
    for kind, entries in kinds.items():
        title = kind.replace("_", " ")
        table = Table("name", "what it is", title=title, title_justify="left", box=None)
        for item in entries:
            style = "yellow" if item.problem else ""
            table.add_row(item.name, Text(item.problem or item.summary, style))
        console.print(table)
    return 0


def entry(name: str, find: Callable[[str], object]) -> Entry:
    """Look `name` up with `find` and summarize what was found.

    A thing that cannot be imported is listed with the reason: somebody else's broken package must
    not hide the others.
    """
    try:
        return Entry(name, summary(find(name)))
    except LudusError as error:
        return Entry(name, "", str(error))
    except Exception as error:
        return Entry(name, "", f"cannot be imported: {type(error).__name__}: {error}")


def summary(target: object) -> str:
    """Return the first sentence of the docstring of `target`, or the first paragraph if shorter."""
    text = inspect.getdoc(target) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".")
