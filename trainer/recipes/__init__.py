"""Training recipes as data, and what turns one into the functions a trainer calls."""

from .algorithm import Algorithm, Corrected, Credit, Loss, resolve
from .difference import compare, effective
from .recipe import Recipe, UnknownRecipe, load_recipe, merge, recipe_names

__all__ = [
    "Algorithm",
    "Corrected",
    "Credit",
    "Loss",
    "Recipe",
    "UnknownRecipe",
    "compare",
    "effective",
    "load_recipe",
    "merge",
    "recipe_names",
    "resolve",
]
