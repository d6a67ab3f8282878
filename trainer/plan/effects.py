"""What each part of a recipe can do in a run: clips, filters, corrections and penalties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..recipes.algorithm import Algorithm
from ..recipes.conflicts import GROUP_ESTIMATORS
from ..recipes.resolve import UpdatePlan, clip_rests


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the effect of a recipe's parts depends on, besides the recipe."""

    updates: UpdatePlan
    stale: bool
    """Whether rollouts may be trained under newer weights than those that sampled them."""
    exact: bool
    """Whether engine and learner compute in the same type, so that they differ by rounding
    alone.
    """


def recipe_effects(algorithm: Algorithm, run: Circumstances) -> list[tuple[str, str]]:
    """Return (part of the recipe, what the part can do in this run)."""
    return [line for part in PARTS for line in part(algorithm, run)]


def _advantage(algorithm: Algorithm, run: Circumstances) -> Iterator[tuple[str, str]]:
    name, size = algorithm.advantage_fn.name, algorithm.recipe.sampling.group_size
    if algorithm.recipe.algorithm.advantage in GROUP_ESTIMATORS:
        yield name, f"compares {size} rollouts of a task; a group whose rewards are equal adds 0"
    else:
        yield name, f"takes each rollout by itself ({size} a task)"


def _clip(algorithm: Algorithm, run: Circumstances) -> Iterator[tuple[str, str]]:
    settings, count = algorithm.recipe.algorithm, run.updates.settings.count
    name = algorithm.loss_fn.name
    if clip_rests(algorithm, run.updates.settings):
        yield f"clip of {name}", "never acts: with one update a step every ratio is 1"
    elif settings.ratio_to == "sampler":
        yield f"clip of {name}", "can act from the first update: ratios are to the sampler"
    elif count > 1:
        yield f"clip of {name}", f"can act from the second of {count} updates of a step"
    dual = settings.loss_options.get("dual_clip")
    if dual:
        yield "dual clip", f"bounds the loss of failures from a ratio of {dual} on"


def _filter(algorithm: Algorithm, run: Circumstances) -> Iterator[tuple[str, str]]:
    sampling = algorithm.recipe.sampling
    if sampling.filter:
        then = (
            "further groups replace what it drops"
            if sampling.refill
            else "a step trains fewer groups by as many as it drops"
        )
        yield f"group filter {sampling.filter}", f"reads {sampling.filter_by} rewards; {then}"
    if sampling.drop_solved_at:
        yield "drop_solved_at", f"retires tasks solved in {sampling.drop_solved_at:.0%} of rollouts"
    if sampling.tracker is not None:
        first = sampling.tracker.pool * sampling.tracker.prior_rollouts
        yield "success tracker", f"plays up to {first:,} rollouts before the first step"


def _corrections(algorithm: Algorithm, run: Circumstances) -> Iterator[tuple[str, str]]:
    corrections = algorithm.recipe.algorithm.corrections
    if run.stale:
        can = "can act: rollouts may be older than the weights that train on them"
    elif run.exact:
        can = "hardly acts: sampler and learner have the same weights and differ by rounding alone"
    else:
        can = "can act: sampler and learner compute in different types or programs"
    for name in [corrections.weights, *(each.name for each in corrections.filters)]:
        if name:
            yield f"correction {name}", can
    if run.stale and not corrections.weights and not corrections.filters:
        yield "correction", "none in the recipe, although rollouts may be stale"


def _penalties(algorithm: Algorithm, run: Circumstances) -> Iterator[tuple[str, str]]:
    settings = algorithm.recipe.algorithm
    if settings.kl.place != "none":
        yield (
            f"KL in the {settings.kl.place}",
            f"coefficient {settings.kl.coefficient:g}; 0 at the first update, and needs the "
            "weights of the reference",
        )
    bonus = settings.entropy
    if bonus.counts:
        moved = f", moved by {bonus.change:g} a step to keep {bonus.target:g} nats per token"
        yield "entropy bonus", f"coefficient {bonus.coefficient:g}{moved if bonus.target else ''}"
    if settings.value is not None:
        yield "value head", f"coefficient {settings.value.coefficient:g}; starts at 0 everywhere"
    if not settings.overlong.in_loss:
        counts = "count" if settings.overlong.in_statistics else "do not count"
        yield (
            "overlong mask",
            f"rollouts that a limit cut are not trained, and {counts} in the means of their group",
        )
    for step, bound in algorithm.shaping:
        yield f"shaping {bound.name}", f"{step.combine}s, weight {step.weight:g}"


PARTS = (_advantage, _clip, _filter, _corrections, _penalties)
