"""Resolution of a recipe: the named functions are found and every option is checked."""

from __future__ import annotations

from functools import partial

from ludus.errors import ConfigError

from .algorithm import Algorithm
from .calls import bind, default_agg
from .conflicts import refuse_conflicts
from .recipe import Recipe


def resolve(recipe: Recipe, *, max_tokens: int | None = None) -> Algorithm:
    """Find every function that a recipe names, check all options, and refuse settings in conflict.

    Args:
        recipe: a recipe from `load_recipe`.
        max_tokens: the longest response, for options given as "max_tokens".

    >>> from .recipe import load_recipe
    >>> resolve(load_recipe("grpo")).advantage_fn.name
    'grpo_advantages'

    Raises:
        ConfigError: an unknown function or option, or settings in conflict; the message says why.
    """
    settings, sampling = recipe.algorithm, recipe.sampling
    find = partial(bind, max_tokens=max_tokens)
    loss = find(settings.loss, "_loss", settings.loss_options, where="algorithm.loss")
    refuse_conflicts(recipe)
    if settings.agg and not loss.aggregates:
        raise ConfigError(
            f"algorithm.agg = {settings.agg!r} would have no effect: {settings.loss} has no "
            'parameter agg; set agg = "", or give the loss that parameter (docs/algorithms.md)'
        )
    agg = None
    if loss.aggregates:
        name, agg_options = settings.agg or default_agg(loss.function), dict(settings.agg_options)
        if name.endswith("_all_rows"):
            name, agg_options = name.removesuffix("_all_rows"), {**agg_options, "rows": "all"}
        agg = find(name, "", agg_options, where="algorithm.agg")
    advantage, options = settings.advantage, settings.advantage_options
    where = "algorithm.corrections"
    weights, weight_options = settings.corrections.weights, settings.corrections.weight_options
    chosen, filter_options = sampling.filter, sampling.filter_options
    return Algorithm(
        recipe=recipe,
        advantage_fn=find(advantage, "_advantages", options, where="algorithm.advantage"),
        loss_fn=loss,
        agg=agg,
        weights_fn=find(weights, "_weights", weight_options, where=where) if weights else None,
        filters=tuple(
            find(each.name, "_mask", each.options, where=where)
            for each in settings.corrections.filters
        ),
        group_filter=find(chosen, "_mask", filter_options, where="sampling.filter")
        if chosen
        else None,
        shaping=tuple(
            (each, find(each.name, "_rewards", each.options, where="shaping"))
            for each in recipe.shaping
        ),
    )
