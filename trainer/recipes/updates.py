"""The number of optimizer updates in a step: as the recipe says, limited by the number of
groups.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

from .algorithm import Algorithm
from .recipe import UpdateSettings


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
    >>> from .resolution import resolve
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
