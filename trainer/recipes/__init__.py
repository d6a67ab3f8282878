"""Training recipes as data, and the resolution to functions that a trainer calls.

Recipes are read without torch; what resolves them needs it, and is imported when it is asked for.
"""

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from .algorithm import Algorithm, Assigned, Corrected, Credit
    from .calls import options_for
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
    from .resolution import UpdatePlan, clip_rests, compare, effective, plan_updates, resolve

__all__ = [
    "Algorithm",
    "Assigned",
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
        ".algorithm": "Algorithm Assigned Corrected Credit",
        ".calls": "options_for",
        ".inputs": "Inputs",
        ".loss": "Loss",
        ".recipe": "Recipe TrackerSettings UnknownRecipe UpdateSettings load_recipe merge "
        "recipe_names",
        ".resolution": "UpdatePlan clip_rests compare effective plan_updates resolve",
    },
)
