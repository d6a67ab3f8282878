"""Training recipes as data, and the resolution to functions that a trainer calls.

Recipes are read without torch; what resolves them needs it, and is imported when it is asked for.
"""

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from .algorithm import Algorithm, Corrected
    from .calls import options_for
    from .credit import Credit
    from .difference import compare, effective
    from .inputs import Inputs
    from .loss import Loss
    from .recipe import (
        Recipe,
        TrackerSettings,
        UnknownRecipe,
        UpdateSettings,
        load_recipe,
        merge,
        recipe_names,
    )
    from .resolution import resolve
    from .updates import UpdatePlan, clip_rests, plan_updates

__all__ = [
    "Algorithm",
    "Corrected",
    "Credit",
    "Inputs",
    "Loss",
    "Recipe",
    "TrackerSettings",
    "UnknownRecipe",
    "UpdatePlan",
    "UpdateSettings",
    "clip_rests",
    "compare",
    "effective",
    "load_recipe",
    "merge",
    "options_for",
    "plan_updates",
    "recipe_names",
    "resolve",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".algorithm": "Algorithm Corrected",
        ".calls": "options_for",
        ".credit": "Credit",
        ".difference": "compare effective",
        ".inputs": "Inputs",
        ".loss": "Loss",
        ".recipe": "Recipe TrackerSettings UnknownRecipe UpdateSettings load_recipe merge "
        "recipe_names",
        ".resolution": "resolve",
        ".updates": "UpdatePlan clip_rests plan_updates",
    },
)
