"""`ludus list`: every environment, verifier and context manager, with a summary and the extra that
is missing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.agent.context import describe_contexts
from ludus.envs.outside.home import installed
from ludus.envs.outside.kinds import Family, catalogue, find_kind, kind_names
from ludus.envs.outside.sources import SERVERS, SHIPPED
from ludus.envs.registry import describe_envs
from ludus.rewards.registry import describe_verifiers

from .arguments import Flag, VerbHelp, parse


@dataclass(frozen=True)
class ListOptions:
    """The options of `ludus list`."""

    json: Flag = False
    """Print JSON: an object with `environments`, `verifiers` and `context_managers`; with
    `--available`, a list of families.
    """

    available: Flag = False
    """List the environments of other projects instead, whether installed or not."""


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
    kinds = {
        "environments": describe_envs(),
        "verifiers": describe_verifiers(),
        "context_managers": describe_contexts(),
    }
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


def list_available(*, json_output: bool) -> int:
    """Print every family of every catalogue, with its variants and what it lacks; returns 0."""
    catalogues = {kind: catalogue(kind) for kind in kind_names()}
    by_kind = {kind: listed.families if listed else [] for kind, listed in catalogues.items()}
    families = [(kind, family) for kind in by_kind for family in by_kind[kind]]
    if json_output:
        rows = [
            {"id": _id(kind, family), "kind": kind, **msgspec.to_builtins(family)}
            for kind, family in families
        ]
        print(json.dumps(rows))
        return 0
    console = Console()
    for kind, of_kind in by_kind.items():
        state = "installed" if installed(kind) else f"ludus env install {kind}"
        console.print(Text(f"{kind}: {find_kind(kind).about} ({state})", "bold"))
        if hint := find_kind(kind).hint:
            console.print(Text(hint))
        table = Table("id", "variants", "topic", "needs", box=None)
        for family in of_kind:
            lacks = Text(family.problem or family.needs, "yellow" if family.problem else "")
            variants = " ".join(filter(None, family.variants))
            table.add_row(_id(kind, family), variants, family.topic, lacks)
        console.print(table)
    for name, server in SERVERS.items():
        console.print(Text(f"{name}/URL: {server.about}"))
    for name, env_id in SHIPPED.items():
        console.print(Text(f"{name}: {env_id}"))
    count = sum(max(1, len(family.variants)) for _, family in families)
    console.print(
        f"{len(families)} families, {count} variants, of {len(by_kind)} kinds", highlight=False
    )
    return 0


def _id(kind: str, family: Family) -> str:
    return f"{kind}/{family.name}-v0"
