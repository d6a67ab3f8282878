"""Training recipes as data, and the resolution to functions that a trainer calls."""

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
from .resolve import resolve
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
