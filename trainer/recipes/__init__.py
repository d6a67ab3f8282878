"""Training recipes as data, and what turns one into the functions a trainer calls."""

from .algorithm import Algorithm, Corrected
from .calls import options_for
from .credit import Credit
from .difference import compare, effective
from .loss import Loss
from .recipe import (
    Recipe,
    TrackerSettings,
    UnknownRecipe,
    load_recipe,
    merge,
    recipe_names,
)
from .resolve import resolve

__all__ = [
    "Algorithm",
    "Corrected",
    "Credit",
    "Loss",
    "Recipe",
    "TrackerSettings",
    "UnknownRecipe",
    "compare",
    "effective",
    "load_recipe",
    "merge",
    "options_for",
    "recipe_names",
    "resolve",
]
