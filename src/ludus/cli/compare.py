"""`ludus compare`: recipes compared over seeds by held-out scores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from ludus.agent.viewer.compare import compare, interval_text
from ludus.agent.viewer.run import find_runs
from ludus.agent.viewer.server import open_runs
from ludus.errors import ConfigError

from .arguments import Flag, VerbHelp, parse
from .runs import run_place


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of `ludus compare`."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """Run folders, or folders that hold some."""
    by: Annotated[str, tyro.conf.arg(metavar="SETTING")] = ""
    """The setting whose values are compared, such as recipe or trainer.lr; by default every setting
    that differs, but for seed and places.
    """
    column: str = ""
    """A metric whose last value is a run's score, instead of its held-out tasks."""
    json: Flag = False
    """Print the comparison as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; returns 0, or 1 where the runs cannot be compared."""
    options = parse(
        CompareOptions,
        arguments,
        VerbHelp(
            verb="compare",
            about="Compare recipes over seeds: interquartile mean with a stratified bootstrap, and "
            "the probability that one beats another. Runs whose budgets or tasks differ are "
            "refused.",
            example="ludus compare runs/grpo-1 runs/grpo-2 runs/rloo-1 runs/rloo-2",
        ),
    )
    if not options.runs:
        raise ConfigError("name the runs to compare, such as runs/grpo-1 runs/rloo-1")
    places = [run_place(place) for place in options.runs]
    for place in places:
        if place.is_dir() and not find_runs([place]):
            raise ConfigError(f"{str(place)!r} holds no run; name run folders, or folders of some")
    runs = open_runs(places)
    comparison = compare(list(runs.readers.values()), by=options.by, column=options.column)
    if options.json:
        print(msgspec.json.encode(comparison).decode())
    elif comparison["refused"]:
        for why in comparison["refused"]:
            print(f"not compared: {why}", file=sys.stderr)
    else:
        show_comparison(comparison)
    return 1 if comparison["refused"] else 0


def show_comparison(comparison: dict[str, Any]) -> None:
    """Print the recipes and the comparison of each pair."""
    console = Console()
    recipes = Table(
        "recipe", "seeds", "mean", "IQM", "95% interval of the IQM", "would reach", box=None
    )
    for recipe in comparison["recipes"]:
        numbers = (
            f"{recipe['mean']:.3f}",
            f"{recipe['iqm']:.3f}",
            interval_text(recipe["interval"]),
            recipe["reach"],
        )
        recipes.add_row(recipe["recipe"], str(len(recipe["runs"])), *numbers)
    console.print(recipes)
    pairs = Table("", "beats", "probability", "95% interval", "seeds (AdaStop)", box=None)
    for pair in comparison["pairs"]:
        chance = f"{pair['probability']:.3f}"
        row = pair["first"], pair["second"], chance, interval_text(pair["interval"]), pair["enough"]
        pairs.add_row(*row)
    if comparison["pairs"]:
        console.print(pairs)
    console.print(
        f"{comparison['tasks']} held-out tasks; the picture: ludus watch RUN ..., page Compare"
    )
