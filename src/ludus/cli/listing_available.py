"""`ludus list --available`: the environments of other projects, whether installed or not."""

from __future__ import annotations

import json

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.envs.outside.home import installed
from ludus.envs.outside.kinds import Family, catalogue, find_kind, kind_names
from ludus.envs.outside.sources import SERVERS, SHIPPED


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
        f"{len(families)} families, {count} variants, of {len(by_kind)} kinds",
        highlight=False,
    )
    return 0


def _id(kind: str, family: Family) -> str:
    return f"{kind}/{family.name}-v0"
