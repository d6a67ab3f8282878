"""`ludus list`: every environment and verifier, what it is, and the extra it needs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.envs import env_ids
from ludus.envs.registry import find_env
from ludus.errors import LudusError
from ludus.rewards import verifier_names
from ludus.rewards.registry import find_verifier

from .arguments import Flag, parse


@dataclass(frozen=True)
class ListOptions:
    """What to list."""

    json: Flag = False
    """Print JSON, one object with `environments` and `verifiers`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list."""

    name: str
    summary: str
    problem: str = ""
    """Why it cannot be used here, with what to do about it."""


def main(arguments: Sequence[str]) -> int:
    """List what there is."""
    options = parse(
        ListOptions,
        arguments,
        verb="list",
        about="List environments and verifiers: shipped, registered, and of installed packages.",
        example="ludus list --json",
    )
    environments = [entry(name, find_env) for name in env_ids()]
    verifiers = [entry(name, find_verifier) for name in verifier_names()]
    if options.json:
        kinds = {"environments": environments, "verifiers": verifiers}
        print(json.dumps({kind: [asdict(e) for e in entries] for kind, entries in kinds.items()}))
        return 0
    console = Console()
    console.print(_table("environments", environments))
    console.print(_table("verifiers", verifiers))
    return 0


def entry(name: str, find: Callable[[str], object]) -> Entry:
    """Look `name` up. One that cannot be imported is listed with the reason: a broken package of
    somebody else's must not hide the others.
    """
    try:
        return Entry(name, summary(find(name)))
    except LudusError as error:
        return Entry(name, "", str(error))
    except Exception as error:
        return Entry(name, "", f"cannot be imported: {type(error).__name__}: {error}")


def summary(target: object) -> str:
    """The first sentence or line of its docstring."""
    text = inspect.getdoc(target) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".")


def _table(title: str, entries: Sequence[Entry]) -> Table:
    table = Table("name", "what it is", title=title, title_justify="left", box=None)
    for item in entries:
        table.add_row(
            item.name, Text(item.problem or item.summary, "yellow" if item.problem else "")
        )
    return table
