"""`ludus compare`: recipes compared over seeds by their held-out scores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from ludus.agent.viewer.compare import compare
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
    places = [run_place(place) for place in options.runs]
    for place in places:
        if place.is_dir() and not find_runs([place]):
            raise ConfigError(f"{str(place)!r} holds no run; name run folders, or folders of some")
    runs = open_runs(places)
    told = compare(list(runs.readers.values()), by=options.by, column=options.column)
    if options.json:
        print(msgspec.json.encode(told).decode())
    elif told["refused"]:
        for why in told["refused"]:
            print(f"not compared: {why}", file=sys.stderr)
    else:
        show_comparison(told)
    return 1 if told["refused"] else 0


def show_comparison(told: dict[str, Any]) -> None:
    """Print the recipes and their pairs."""
    console = Console()
    recipes = Table(
        "recipe", "seeds", "mean", "IQM", "95% interval of the IQM", "would reach", box=None
    )
    for one in told["recipes"]:
        numbers = (
            f"{one['mean']:.3f}",
            f"{one['iqm']:.3f}",
            _interval(one["interval"]),
            _top(one["curve"]),
        )
        recipes.add_row(one["recipe"], str(len(one["runs"])), *numbers)
    console.print(recipes)
    pairs = Table("", "beats", "probability", "95% interval", "seeds (AdaStop)", box=None)
    for pair in told["pairs"]:
        chance = f"{pair['probability']:.3f}"
        row = pair["first"], pair["second"], chance, _interval(pair["interval"]), _seeds(pair)
        pairs.add_row(*row)
    if told["pairs"]:
        console.print(pairs)
    console.print(f"{told['tasks']} held-out tasks; the picture: ludus watch RUN ..., page Compare")


def _interval(pair: tuple[float, float] | None) -> str:
    return "unknown: one seed" if pair is None else f"{pair[0]:.3f} to {pair[1]:.3f}"


def _top(curve: dict[str, Any] | None) -> str:
    """Return what a recipe would reach by its fitted sigmoid."""
    if curve is None:
        return "too few points"
    if not curve["bounded"]:
        return "the curve has not bent yet"
    low, high = curve["top"]
    return f"{curve['curve']['top']:.3f} ({low:.3f} to {high:.3f})"


def _seeds(pair: dict[str, Any]) -> str:
    if pair["decision"] == "larger":
        return "enough: the first is better"
    if pair["decision"] == "smaller":
        return "enough: the second is better"
    if pair["decision"] == "equal":
        return "enough: no difference"
    more = pair["more"]
    return "no number up to 25 would tell" if more is None else f"about {more} more each"
