"""`ludus recipes`: list the training recipes, show a recipe, or compare two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated

import tyro

from ludus.errors import MissingExtra
from ludus.trainer.recipes.recipe import (
    Recipe as Checked,
    load_recipe,
    policy_names,
    read_policy,
    recipe_names,
)
from ludus.trainer.settings.data import STRENGTHS

from .arguments import Action, VerbHelp, parse, run_action

USAGE = """\
usage: ludus recipes [list]           one line each, with the updates of a step and the source
       ludus recipes policies         sampling policies, which stand beside any recipe
       ludus recipes show NAME        every setting, defaults included
       ludus recipes diff A B         where two recipes differ

NAME, A and B are recipes or TOML files of your own. The updates of a step are mini-batches x
epochs, of no more mini-batches than rollout.tasks_per_step; trainer.updates_per_step overrides
them. "never clips": with one update every ratio is 1, and the clip of the loss cannot act.

example:
  ludus recipes diff grpo dapo"""
Recipe = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE")]


def main(arguments: list[str]) -> int:
    """List, show or compare recipes as `arguments` say; returns 0.

    Raises:
        UnknownRecipe: no recipe has that name.
        ConfigError: the arguments cannot be read.
    """
    return run_action("recipes", ACTIONS, arguments or ["list"], usage=USAGE)


@dataclass(frozen=True)
class ListRecipesOptions:
    """The options of `ludus recipes list`: there are none."""


def list_recipes(arguments: Sequence[str]) -> int:
    """Print a line for each recipe; returns 0."""
    parse(
        ListRecipesOptions,
        arguments,
        VerbHelp(
            verb="recipes list",
            about="List the recipes, with the updates of a step and the source.",
            example="ludus recipes list",
        ),
    )
    recipes = [load_recipe(name) for name in recipe_names()]
    width = max(len(recipe.name) for recipe in recipes)
    for recipe in recipes:
        updates = f"{recipe.updates.splits:>2} x {recipe.updates.epochs}"
        updates += ", never clips" if recipe.clip_rests else ""
        print(f"{recipe.name:<{width}}  {updates:<19}  {recipe.summary}  [{recipe.source}]")
    print(
        f"\nfrom preferences in files or runs, by ludus train METHOD --data: {', '.join(STRENGTHS)}"
    )
    return 0


def list_policies(arguments: Sequence[str]) -> int:
    """Print a line for each sampling policy; returns 0."""
    parse(
        ListRecipesOptions,
        arguments,
        VerbHelp(
            verb="recipes policies",
            about="List the sampling policies: ludus train RECIPE --sampling POLICY.",
            example="ludus recipes policies",
        ),
    )
    policies = {name: read_policy(name) for name in policy_names()}
    width = max(map(len, policies))
    for name, table in policies.items():
        print(f"{name:<{width}}  {table['summary']}  [{table['source']}]")
    return 0


@dataclass(frozen=True)
class ShowOptions:
    """The options of `ludus recipes show`."""

    recipe: Recipe
    """The name of a recipe, or a TOML file."""


def show(arguments: Sequence[str]) -> int:
    """Print every setting of a recipe; returns 0."""
    options = parse(
        ShowOptions,
        arguments,
        VerbHelp(
            verb="recipes show",
            about="Show every setting of a recipe, defaults included.",
            example="ludus recipes show grpo",
        ),
    )
    recipe = load_recipe(options.recipe)
    print(f"{recipe.name}: {recipe.summary}\nsource: {recipe.source}\n")
    rows = {
        key: value
        for key, value in _effective(recipe).items()
        if key not in ("name", "summary", "source")
    }
    width = max(len(key) for key in rows)
    for key, value in rows.items():
        print(f"{key:<{width}}  {_word(value)}")
    return 0


def check_recipe(name: str) -> None:
    """Refuse a recipe that no run could take.

    Raises:
        UnknownRecipe: no recipe has that name.
        ConfigError: the file is none of a recipe, or an option does not exist.
    """
    _effective(load_recipe(name))


@dataclass(frozen=True)
class DiffOptions:
    """The options of `ludus recipes diff`."""

    left: Recipe
    """The name of a recipe, or a TOML file."""
    right: Recipe
    """The recipe or TOML file to compare with."""


def diff(arguments: Sequence[str]) -> int:
    """Print the settings in which two recipes differ; returns 0."""
    options = parse(
        DiffOptions,
        arguments,
        VerbHelp(
            verb="recipes diff",
            about="Show where two recipes differ.",
            example="ludus recipes diff grpo dapo",
        ),
    )
    first, second = load_recipe(options.left), load_recipe(options.right)
    table = [(key, _word(a), _word(b)) for key, a, b in _differences().compare(first, second)]
    rows = [("", first.name, second.name), *table]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    if not table:
        print("no difference")
    return 0


def _word(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "(none)" if value == "" else str(value)


def _effective(recipe: Checked) -> dict[str, object]:
    """Return every setting of a recipe, whose functions read only what a run makes for them."""
    differences = _differences()
    from ludus.trainer.learning.credit import refuse_unmet

    algorithm = differences.resolve(recipe, max_tokens=1)
    tracked = recipe.sampling.tracker is not None
    refuse_unmet(algorithm, values="values" in algorithm.needs, tracked=tracked)
    settings: dict[str, object] = differences.effective(recipe)
    return settings


def _differences() -> ModuleType:
    # defaults are read off the functions themselves, which need torch
    try:
        from ludus.trainer.recipes import resolution
    except ModuleNotFoundError as error:
        raise MissingExtra.of("train", needed_for="ludus recipes show and diff") from error
    return resolution


ACTIONS: dict[str, Action] = {
    "list": list_recipes,
    "policies": list_policies,
    "show": show,
    "diff": diff,
}
