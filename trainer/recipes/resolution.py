"""A recipe made ready for a run: its functions found and their options checked, the number of its
updates limited by the number of groups, a correction added where rollouts are older than the
weights that learn from them; and all effective settings, which two recipes are compared by.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from .algorithm import Algorithm
from .calls import bind, default_agg, defaults
from .conflicts import refuse_conflicts
from .recipe import Recipe, UpdateSettings


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
    refuse_conflicts(recipe, loss)
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
        max_tokens=max_tokens,
    )


class UpdatePlan(NamedTuple):
    """The updates of every step of a run, and notes for the user."""

    settings: UpdateSettings
    notes: tuple[str, ...]
    """Notes of one line each."""


def plan_updates(algorithm: Algorithm, *, groups: int, wanted: int = 0) -> UpdatePlan:
    """Return the updates of a step with `groups` groups.

    Args:
        algorithm: a resolved recipe.
        groups: the number of groups in the step; a mini-batch contains at least one whole group.
        wanted: the updates that the user asks for, each on separate groups; 0 follows the recipe,
            with at most as many mini-batches as groups.

    >>> from .recipe import load_recipe
    >>> plan_updates(resolve(load_recipe("gspo")), groups=2).settings.splits
    2
    """
    recipe, notes = algorithm.recipe, list[str]()
    settings = UpdateSettings(splits=wanted) if wanted else recipe.updates
    if settings.splits > groups:
        notes.append(
            f"recipe {recipe.name!r} shares a step out into {settings.splits} mini-batches, but "
            f"rollout.tasks_per_step = {groups} allows {groups}: a step makes "
            f"{groups * settings.epochs} instead of {settings.count} updates"
        )
        settings = UpdateSettings(splits=groups, epochs=settings.epochs)
    if clip_rests(algorithm, settings):
        notes.append(
            f"recipe {recipe.name!r} makes one update on each batch of rollouts: every ratio is "
            f"1, and the clip of {algorithm.loss_fn.name} never acts (trainer.updates_per_step "
            "above 1 would let it)"
        )
    return UpdatePlan(settings, tuple(notes))


def clip_rests(algorithm: Algorithm, settings: UpdateSettings) -> bool:
    """Return whether the loss has a clip that can never act.

    With a single update, and the learner as the old policy, every ratio is 1.
    """
    clips = "eps_high" in inspect.signature(algorithm.loss_fn.function).parameters
    to_itself = algorithm.recipe.algorithm.ratio_to == "learner"
    return clips and to_itself and settings.count == 1


DEFAULT_WEIGHTS = "tis_weights"
"""Truncated importance weights, at most 2 per token. Multiplied by a clipped ratio to the learner
before the update, they are decoupled PPO (AReaL, arXiv 2505.24298) with a truncated first factor.
"""


def corrected(recipe: Recipe) -> Recipe:
    """Return a recipe that corrects for the difference between the learner's probabilities and
    those of the weights that sampled.

    A recipe that does so by itself stays as it is: by `corrections.weights`, by a loss that reads
    the engine's probabilities, or by `ratio_to = "sampler"`. Others get truncated importance
    weights (`tis_weights`), whether their loss has a ratio or not. A loss that takes no weights
    stays uncorrected.

    Raises:
        ConfigError: the recipe cannot be resolved.
    """
    algorithm = resolve(recipe, max_tokens=1)
    if _own(algorithm) or "weights" not in algorithm.loss_fn.optional:
        return recipe
    settings = recipe.algorithm
    corrections = msgspec.structs.replace(settings.corrections, weights=DEFAULT_WEIGHTS)
    return msgspec.structs.replace(
        recipe, algorithm=msgspec.structs.replace(settings, corrections=corrections)
    )


def told_correction(algorithm: Algorithm) -> str:
    """Say in a sentence how a recipe corrects for stale tokens, if at all."""
    if own := _own(algorithm):
        return (
            f"stale tokens are corrected by {own} (a recipe that names no correction gets "
            f'{DEFAULT_WEIGHTS}; overlap.correction = "none" leaves it out)'
        )
    return uncorrected(algorithm)


def uncorrected(algorithm: Algorithm) -> str:
    """Say that nothing corrects for stale tokens; empty if something does."""
    if _own(algorithm):
        return ""
    return (
        f"stale tokens are not corrected: recipe {algorithm.recipe.name!r} names no correction "
        "(algorithm.corrections), and none is added; keep overlap.max_staleness small"
    )


def _own(algorithm: Algorithm) -> str:
    """Return what corrects for stale tokens in a recipe; empty if nothing does."""
    settings, loss = algorithm.recipe.algorithm, algorithm.loss_fn
    if settings.corrections.weights:
        return settings.corrections.weights
    if "sampler_logp" in loss.required:
        return loss.name
    return 'ratio_to = "sampler"' if settings.ratio_to == "sampler" else ""


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
        flat = {**{f"{key}.{option}": value for option, value in defaults(name).items()}, **flat}
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
