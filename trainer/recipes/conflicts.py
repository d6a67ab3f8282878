"""Checks of recipe settings that cannot work together, each with a reason."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from ludus.errors import ConfigError

from .recipe import Recipe

if TYPE_CHECKING:
    from .calls import Bound  # torch

SEQUENCE_LOSSES = frozenset({"gspo_loss", "gmpo_loss", "luspo_loss"})
"""Losses with one ratio per sequence. A mean over tokens would weight sequences by length."""


@cache
def compares_groups(estimator: str) -> bool:
    """Whether an estimator has nothing but the other rollouts of a task to compare a rollout with.

    False where the name is none of `trainer.algorithms`.
    """
    from .. import algorithms  # torch, which the readers of a run's files do without

    if not estimator.endswith("_advantages") or estimator not in algorithms.__all__:
        return False
    parameters = inspect.signature(getattr(algorithms, estimator)).parameters
    return "groups" in parameters and "anchors" not in parameters


WHITENED = frozenset(
    {"reinforce_pp_advantages", "reinforce_pp_baseline_advantages", "single_stream_spo_advantages"}
)
"""Estimators whose advantages already have mean 0 and variance 1 over the batch."""
TOKEN_REWARDED = frozenset({"reinforce_pp_advantages", "gae_advantages", "egae_advantages"})
"""Estimators that take a reward at every token."""
WITH_VALUES = frozenset({"gae_advantages", "egae_advantages", "compaction_advantages"})
"""Estimators that need a value head."""
BOOTSTRAPPED = frozenset({"gae_advantages"})
"""Estimators that take the value of the state after truncation."""
TRACKED = "single_stream_spo_advantages"
"""The estimator that reads success rates tracked per task."""
TERMS = {
    "kl_loss": "[algorithm.kl]",
    "entropy_loss": "[algorithm.entropy]",
    "value_loss": "[algorithm.value]",
}
"""Losses that do not depend on rewards, and so are only terms beside a policy's loss."""
OF_TREES = frozenset(
    {
        "tree_pooled_advantages",
        "tree_sibling_advantages",
        "spo_tree_advantages",
        "treepo_advantages",
        "tree_grpo_advantages",
        "deepsearch_advantages",
    }
)
"""Estimators of trees of rollouts."""
OF_VINES = frozenset({"vine_tree_advantages"})
"""Estimators of rollouts with continuations for the value of their states."""
TREES = frozenset({"tree", "vine", "uncertain", "expand"})
"""Rules of sampling that play trees."""
ON_TREES = frozenset({"token_mean", "fixed_length"})
"""Aggregations that mean the same where a rollout's row holds the nodes that it owns alone."""
Rule = Callable[[Recipe], Iterator[str]]
LossRule = Callable[[Recipe, "Bound"], Iterator[str]]


def refuse_conflicts(recipe: Recipe, loss: Bound) -> None:
    """Refuse a recipe whose settings contradict each other, or what its loss takes.

    Args:
        recipe: the recipe.
        loss: its loss, of the library or of the user.

    Raises:
        ConfigError: with every reason found.
    """
    reasons = [reason for rule in RULES for reason in rule(recipe)]
    reasons += [reason for rule in LOSS_RULES for reason in rule(recipe, loss)]
    if reasons:
        raise ConfigError(f"recipe {recipe.name!r}: " + "; ".join(reasons))


def _numbers(recipe: Recipe) -> Iterator[str]:
    """Yield the numbers that are not finite; those of options are their functions' to refuse."""

    def broken(place: object, path: str) -> Iterator[str]:
        if isinstance(place, dict):
            for name, value in place.items():
                if not name.endswith("options") and name != "schedules":
                    yield from broken(value, f"{path}.{name}" if path else name)
        elif isinstance(place, (list, tuple)):
            for number, value in enumerate(place):
                yield from broken(value, f"{path}.{number}")
        elif isinstance(place, float) and not math.isfinite(place):
            yield f"{path} must be finite, got {place}"

    yield from broken(msgspec.to_builtins(recipe), "")


def _groups(recipe: Recipe) -> Iterator[str]:
    size, advantage = recipe.sampling.group_size, recipe.algorithm.advantage
    if size < 1:
        yield f"sampling.group_size must be at least 1, got {size}"
    if size == 1 and compares_groups(advantage):
        yield (
            f"{advantage} compares rollouts of one task; with sampling.group_size = 1 all "
            "advantages are 0. Take --rollout.group-size 2 or more, or a recipe for one rollout "
            "(ludus recipes)"
        )
    if size == 1 and recipe.sampling.filter:
        yield f"sampling.filter = {recipe.sampling.filter!r} compares rollouts; group_size is 1"
    if size > 1 and advantage == TRACKED:
        yield (
            "single-stream SPO has one rollout per task and a tracker; set sampling.group_size = 1"
        )


def _sampling_and_updates(recipe: Recipe) -> Iterator[str]:
    sampling = recipe.sampling
    if sampling.temperature <= 0:
        yield f"sampling.temperature = {sampling.temperature}: greedy rollouts are all alike"
    if sampling.refill and not sampling.filter:
        yield (
            "sampling.refill replaces what sampling.filter drops, and there is no filter; set one, "
            "or leave out refill"
        )
    if sampling.prioritise and sampling.tracker is None:
        yield "sampling.prioritise needs tracked success rates: add [sampling.tracker]"
    if not 0 <= sampling.drop_solved_at <= 1:
        yield f"sampling.drop_solved_at is a pass rate in [0, 1], got {sampling.drop_solved_at}"
    mask = sampling.vocabulary
    if mask is not None and not (0 < mask.top_p <= 1 and mask.every >= 1):
        yield (
            "sampling.vocabulary: need 0 < top_p <= 1 and every >= 1, got "
            f"{mask.top_p:g} and {mask.every}"
        )
    updates = recipe.updates
    if updates.splits < 1 or updates.epochs < 1:
        yield (
            "updates.splits and updates.epochs must be at least 1, got "
            f"{updates.splits} and {updates.epochs}"
        )


def _trees(recipe: Recipe) -> Iterator[str]:
    settings = recipe.algorithm
    rules = {call.name for call in recipe.sampling.rules} & TREES
    if not rules:
        return
    fitting = OF_VINES if "vine" in rules else OF_TREES
    if settings.advantage not in fitting and ":" not in settings.advantage:
        yield (
            f"the leaves of a tree share tokens, and {settings.advantage} would take them for "
            f"rollouts of their own; with {', '.join(sorted(rules))} take "
            f"{', '.join(sorted(fitting))}"
        )
    if settings.agg not in ON_TREES or settings.loss in SEQUENCE_LOSSES:
        yield (
            f"agg = {settings.agg!r} with {settings.loss} is not defined on trees, where a row has "
            f"the nodes that it owns: set agg to {' or '.join(sorted(ON_TREES))}, and take a loss "
            "of single tokens"
        )
    if settings.value is not None or settings.kl.place == "reward":
        yield "a critic, or KL in the reward, joins rollouts in time, and a tree is no line"


def _tracking(recipe: Recipe) -> Iterator[str]:
    tracker = recipe.sampling.tracker
    tracked = recipe.algorithm.advantage == TRACKED
    if tracker is None:
        if tracked:
            yield f"{TRACKED} needs success rates: add [sampling.tracker]"
        return
    if not tracked and not recipe.sampling.prioritise:
        yield (
            f"[sampling.tracker] keeps success rates that nothing reads; {TRACKED} or "
            "sampling.prioritise would"
        )
    if recipe.shaping:
        yield "[sampling.tracker] counts successes, and shaped rewards are no successes"
    if tracker.pool < 1 or tracker.prior_rollouts < 0:
        yield (
            f"sampling.tracker: pool must be at least 1 and prior_rollouts not negative, got "
            f"{tracker.pool} and {tracker.prior_rollouts}"
        )
    if not 0 <= tracker.rho_low <= tracker.rho_high <= 1 or tracker.rho_low == 1:
        yield (
            "sampling.tracker: need 0 <= rho_low <= rho_high <= 1 and rho_low < 1, got "
            f"{tracker.rho_low} and {tracker.rho_high}"
        )
    if not tracker.half_life > 0 or not tracker.floor >= 0:
        yield (
            "sampling.tracker: half_life must be positive and floor not negative, got "
            f"{tracker.half_life} and {tracker.floor}"
        )


def _aggregation(recipe: Recipe) -> Iterator[str]:
    settings = recipe.algorithm
    if settings.loss in SEQUENCE_LOSSES and settings.agg in (
        "token_mean",
        "fixed_length",
        "prompt_mean",
    ):
        yield (
            f"{settings.loss} has one ratio per sequence, and agg = {settings.agg!r} would weigh "
            "sequences by their length (luspo_loss does that on purpose); use sequence_mean"
        )
    if settings.agg == "fixed_length" and "length" not in settings.agg_options:
        yield "agg = 'fixed_length' needs agg_options.length, in tokens or 'max_tokens'"


def _taken_by_loss(recipe: Recipe, loss: Bound) -> Iterator[str]:
    """Yield settings that the loss has no parameter for, and would leave out without a word."""
    settings, corrections = recipe.algorithm, recipe.algorithm.corrections
    if recipe.sampling.group_size == 1 and "groups" in loss.required:
        yield f"{loss.name} compares rollouts of one task; sampling.group_size is 1"
    if not loss.aggregates and settings.agg:
        yield (
            f"algorithm.agg = {settings.agg!r} would have no effect: {loss.name} has no parameter "
            'agg; set agg = "", or give the loss that parameter (docs/algorithms.md)'
        )
    if not loss.aggregates and (settings.kl.place == "loss" or settings.entropy.counts):
        yield (
            f"{loss.name} has no parameter agg, so a KL or entropy term per token cannot share its "
            "denominator"
        )
    if "weights" in (*loss.required, *loss.optional):
        return
    if corrections.weights:
        yield (
            f"corrections.weights = {corrections.weights!r} would have no effect: {loss.name} has "
            "no parameter weights; leave them out, or take another loss"
        )
    elif corrections.filters and corrections.denominator != "remaining":
        yield (
            f"corrections.filters would have no effect: {loss.name} has no parameter weights, by "
            'which tokens leave the sum alone; set corrections.denominator = "remaining"'
        )


def _ratios(recipe: Recipe, loss: Bound) -> Iterator[str]:
    settings, weights = recipe.algorithm, recipe.algorithm.corrections.weights
    corrected = "sampler_logp" in loss.required
    if corrected and weights:
        yield (
            f"{loss.name} already weighs by the sampler's probabilities; corrections.weights = "
            f"{weights!r} would count them twice"
        )
    if settings.ratio_to == "learner":
        return
    if corrected or weights:
        yield (
            "ratio_to = 'sampler' corrects for the engine's probabilities, and so does "
            f"{weights or loss.name}: they would count twice"
        )
    elif "old_logp" not in (*loss.required, *loss.optional):
        yield f"ratio_to = 'sampler' changes nothing: {loss.name} has no ratio"


def _losses(recipe: Recipe) -> Iterator[str]:
    loss, options = recipe.algorithm.loss, recipe.algorithm.loss_options
    if loss in TERMS:
        yield f"{loss} is a term beside a policy's loss; put it into {TERMS[loss]}"
    for name in ("eps_low", "eps_high"):
        value = options.get(name)
        if isinstance(value, (int, float)) and value < 0:
            yield f"loss_options.{name} = {value} would clip on the wrong side of 1"
    dual = options.get("dual_clip")
    if isinstance(dual, (int, float)) and dual <= 1:
        yield f"loss_options.dual_clip = {dual} must be above 1, or every failure is clipped"


def _credit(recipe: Recipe) -> Iterator[str]:
    settings = recipe.algorithm
    if not 0 < settings.proxy_ratio < 1:
        yield (
            "algorithm.proxy_ratio is a share of the likeliest token, above 0 and below 1, got "
            f"{settings.proxy_ratio}"
        )
    if settings.advantage in WITH_VALUES and settings.value is None:
        yield f"{settings.advantage} needs a value head: add [algorithm.value]"
    head = settings.value
    if head is not None and (head.coefficient <= 0 or head.value_clip < 0):
        yield (
            "algorithm.value: coefficient must be positive and value_clip not negative, got "
            f"{head.coefficient} and {head.value_clip}"
        )
    if settings.value is not None and settings.advantage not in WITH_VALUES:
        yield f"[algorithm.value] trains a value head that {settings.advantage} never reads"
    if settings.whiten and settings.advantage in WHITENED:
        yield f"whiten = true after {settings.advantage}, which is whitened already"
    if settings.credit.truncation == "value" and settings.advantage not in BOOTSTRAPPED:
        yield (
            f"credit.truncation = 'value' asks a value head for the state after truncation, which "
            f"{settings.advantage} does not take; gae_advantages does"
        )
    if settings.credit.discount == "turn" and settings.advantage not in TOKEN_REWARDED:
        yield (
            f"credit.discount = 'turn' says what gamma counts, and {settings.advantage} takes one "
            "reward per rollout"
        )
    for name in ("gamma", "lam"):
        value = settings.advantage_options.get(name)
        if isinstance(value, (int, float)) and not 0 <= value <= 1:
            yield f"advantage_options.{name} = {value} is not in [0, 1]"


def _divergence(recipe: Recipe) -> Iterator[str]:
    settings, kl = recipe.algorithm, recipe.algorithm.kl
    if kl.place == "loss" and kl.estimator == "k1":
        yield "kl: k1 in the loss has an expected gradient of 0; use k2 or k3+, or place = 'reward'"
    if kl.place == "reward" and settings.advantage not in TOKEN_REWARDED:
        yield (
            f"kl.place = 'reward' gives every token a reward, which {settings.advantage} cannot "
            "take; use place = 'loss'"
        )
    moves = "algorithm.kl.coefficient" in recipe.schedules
    if kl.place != "none" and kl.coefficient <= 0 and not moves:
        yield f"kl.place = {kl.place!r} with coefficient {kl.coefficient} does nothing"
    if kl.place == "none" and kl.coefficient:
        yield f"kl.coefficient = {kl.coefficient} has no effect with kl.place = 'none'"


def _entropy(recipe: Recipe) -> Iterator[str]:
    bonus = recipe.algorithm.entropy
    if bonus.target < 0:
        yield f"algorithm.entropy.target is in nats per token, at least 0, got {bonus.target}"
    if bonus.target > 0 and (bonus.coefficient < 0 or bonus.change <= 0):
        yield (
            "algorithm.entropy: with a target the coefficient must not be negative and change must "
            f"be positive, got {bonus.coefficient} and {bonus.change}"
        )


def _overlong(recipe: Recipe) -> Iterator[str]:
    settings = recipe.algorithm
    if settings.overlong.in_loss and not settings.overlong.in_statistics:
        yield (
            "overlong.in_statistics = false with in_loss = true: what is trained needs an "
            "advantage, and so a place in the statistics"
        )


RULES: tuple[Rule, ...] = (
    _numbers,
    _groups,
    _sampling_and_updates,
    _trees,
    _tracking,
    _aggregation,
    _losses,
    _credit,
    _divergence,
    _entropy,
    _overlong,
)
LOSS_RULES: tuple[LossRule, ...] = (_taken_by_loss, _ratios)
"""All rules; each yields the reasons for refusing a recipe."""
