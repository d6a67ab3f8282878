"""`ludus recipes`: list the training recipes, show a recipe, or compare two."""

from __future__ import annotations

from types import ModuleType

from ludus.errors import ConfigError, MissingExtra

HELP = """\
usage: ludus recipes                  one line each, with the updates of a step and the source
       ludus recipes show NAME        every setting, defaults included
       ludus recipes diff A B         where two recipes differ

NAME, A and B are recipes or TOML files of your own. The updates of a step are mini-batches x
epochs, of no more mini-batches than rollout.tasks_per_step; trainer.updates_per_step overrides
them. "never clips": with one update every ratio is 1, and the clip of the loss cannot act.

example:
  ludus recipes diff grpo dapo"""


def main(arguments: list[str]) -> int:
    """List, show or compare recipes as `arguments` say; returns 0.

    Raises:
        UnknownRecipe: no recipe has that name.
        ConfigError: the arguments cannot be read.
    """
    match arguments:
        case []:
            _list()
        case ["-h" | "--help" | "help"] | [_, "-h" | "--help"]:
            print(HELP)
        case ["list"]:
            _list()
        case ["show", name]:
            library = _library()
            recipe = library.load_recipe(name)
            print(f"{recipe.name}: {recipe.summary}\nsource: {recipe.source}\n")
            settings = library.effective(recipe)
            rows = {
                key: value
                for key, value in settings.items()
                if key not in ("name", "summary", "source")
            }
            width = max(len(key) for key in rows)
            for key, value in rows.items():
                print(f"{key:<{width}}  {_word(value)}")
        case ["diff", left, right]:
            _diff(left, right)
        case _:
            raise ConfigError(f"cannot read {' '.join(arguments)!r} (ludus recipes --help)")
    return 0


def _list() -> None:
    library = _library()
    recipes = [library.load_recipe(name) for name in library.recipe_names()]
    width = max(len(recipe.name) for recipe in recipes)
    for recipe in recipes:
        # any length will do to learn whether the loss has a clip
        algorithm = library.resolve(recipe, max_tokens=1)
        rests = library.clip_rests(algorithm, recipe.updates)
        updates = f"{recipe.updates.splits:>2} x {recipe.updates.epochs}"
        updates += ", never clips" if rests else ""
        print(f"{recipe.name:<{width}}  {updates:<19}  {recipe.summary}  [{recipe.source}]")


def _diff(left: str, right: str) -> None:
    library = _library()
    one, other = library.load_recipe(left), library.load_recipe(right)
    table = [(key, _word(a), _word(b)) for key, a, b in library.compare(one, other)]
    rows = [("", one.name, other.name), *table]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    if not table:
        print("no difference")


def _word(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "(none)" if value == "" else str(value)


def _library() -> ModuleType:
    # defaults are read off the functions themselves, which need torch
    try:
        from ludus.trainer import recipes
    except ModuleNotFoundError as error:
        raise MissingExtra.of("train", needed_for="ludus recipes") from error
    return recipes
