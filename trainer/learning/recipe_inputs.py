"""What a function may ask for, by the place of the recipe that names it."""

from __future__ import annotations

from collections.abc import Mapping

from ludus.errors import ConfigError

from ..recipes import Algorithm

_ROLLOUT = frozenset({"rewards", "groups", "lengths", "truncated", "correct"})
_POLICIES = frozenset({"logp", "old_logp", "ref_logp", "sampler_logp", "entropy"})
GIVEN: Mapping[str, frozenset[str]] = {
    "algorithm.advantage": _ROLLOUT
    | {"mask", "rollouts", "segments", "token_rewards", "old_logp", "ref_logp"}
    | {"proxies", "values", "alpha", "beta", "bootstrap", "turn_rewards", "turns"},
    "algorithm.corrections": _POLICIES | {"mask", "advantages", "rewards", "truncated"},
    "algorithm.loss": _POLICIES | {"mask", "advantages", "rewards", "groups", "correct"},
    "sampling.filter": frozenset({"rewards", "groups"}),
    "shaping": _ROLLOUT,
}
"""Tensors by name, as `Updater` hands them over."""


def refuse_misplaced(algorithm: Algorithm) -> None:
    """Refuse a function in a place of the recipe where what it reads is not there.

    Raises:
        ConfigError: with what is missing, and what there is.
    """
    for place, names in algorithm.needs_at.items():
        if missing := sorted(names - GIVEN[place]):
            raise ConfigError(
                f"recipe {algorithm.recipe.name!r}: what {place} names needs "
                f"{', '.join(missing)}; it is given {', '.join(sorted(GIVEN[place]))}"
            )
