"""Training recipes as data, and the resolution to functions that a trainer calls."""

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
from .resolve import UpdatePlan, clip_rests, compare, effective, plan_updates, resolve

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
