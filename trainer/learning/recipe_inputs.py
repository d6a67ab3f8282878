"""The check, before any rollout is played, that a recipe reads only what this trainer makes."""

from __future__ import annotations

from ludus.errors import ConfigError

from ..recipes import Algorithm
from ..recipes.inputs import Made, made_by, offered


def refuse_unmet(algorithm: Algorithm, *, values: bool, tracked: bool) -> None:
    """Refuse a recipe whose functions read what the trainer does not make for that place.

    Args:
        algorithm: a resolved recipe.
        values: whether the learner has a value head.
        tracked: whether success rates are tracked per task.

    Raises:
        ConfigError: with what is missing, and what there is.
    """
    name = algorithm.recipe.name
    made = made_by(
        Made.ALWAYS,
        Made.ON_DEMAND,
        *([Made.VALUE_HEAD] if values else []),
        *([Made.TRACKER] if tracked else []),
    )
    if missing := sorted(algorithm.needs - made):
        raise ConfigError(
            f"recipe {name!r} needs {', '.join(missing)}, which this trainer does not compute; a "
            f"function may ask for {', '.join(sorted(made))} (options stand after the *)"
        )
    for place, names in algorithm.needs_at.items():
        if missing := sorted(names - offered(place)):
            raise ConfigError(
                f"recipe {name!r}: what {place} names needs {', '.join(missing)}; it is given "
                f"{', '.join(sorted(offered(place)))}"
            )
