"""All effective settings of a recipe, defaults included, and the differences between two
recipes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from .calls import defaults
from .recipe import Recipe
from .resolution import resolve


def effective(recipe: Recipe) -> dict[str, object]:
    """Return every setting by dotted name, including the default options of the functions.

    >>> from .recipe import load_recipe
    >>> effective(load_recipe("grpo"))["algorithm.advantage.eps"]
    1e-06

    Raises:
        ConfigError: the recipe names an unknown function, or contradicts itself.
    """
    settings = recipe.algorithm
    # The length is needed to resolve shares of it; the aggregation's name does not depend on it.
    agg = resolve(recipe, max_tokens=1).agg
    flat = _flatten(msgspec.to_builtins(recipe))
    flat["algorithm.agg"] = settings.agg or (agg.name if agg is not None else "rows")
    for key, name in _called(recipe):
        if ":" not in name:
            flat = {
                **{f"{key}.{option}": value for option, value in defaults(name).items()},
                **flat,
            }
    return dict(sorted(flat.items()))


def compare(left: Recipe, right: Recipe) -> list[tuple[str, object, object]]:
    """Return (setting, left value, right value) wherever two recipes differ; None means an absent
    setting.

    >>> from .recipe import load_recipe
    >>> ("algorithm.loss.eps_high", 0.2, 0.28) in compare(load_recipe("grpo"), load_recipe("dapo"))
    True
    """
    left_settings, right_settings = effective(left), effective(right)
    described = {"name", "summary", "source"}
    return [
        (key, left_settings.get(key), right_settings.get(key))
        for key in sorted({*left_settings, *right_settings} - described)
        if left_settings.get(key) != right_settings.get(key)
    ]


def _called(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield (dotted prefix of the options, function) for every function that the recipe names."""
    settings = recipe.algorithm
    yield "algorithm.advantage", settings.advantage
    yield "algorithm.loss", settings.loss
    if settings.corrections.weights:
        yield "algorithm.corrections.weights", settings.corrections.weights
    for token_filter in settings.corrections.filters:
        yield f"algorithm.corrections.filters.{token_filter.name}", token_filter.name
    if recipe.sampling.filter:
        yield "sampling.filter", recipe.sampling.filter
    for step in recipe.shaping:
        yield f"shaping.{step.name}", step.name


def _flatten(value: object, prefix: str = "") -> dict[str, object]:
    if isinstance(value, Mapping):
        flat: dict[str, object] = {}
        for key, item in value.items():
            flat |= _flatten(item, f"{prefix}.{key}" if prefix else str(key))
        return flat
    if isinstance(value, (list, tuple)) and all(isinstance(each, Mapping) for each in value):
        return {
            key: item
            for place, each in enumerate(value)
            for key, item in _flatten(each, f"{prefix}.{each.get('name') or place}").items()
        }
    # Options stand beside their function: `loss_options.eps` becomes `loss.eps`.
    key = (
        prefix.replace("_options.", ".").replace(".weight.", ".weights.").replace(".options.", ".")
    )
    return {key: tuple(value) if isinstance(value, list) else value}
