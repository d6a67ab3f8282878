"""Credit: from the experience of a step to the rows that its passes learn from.

    experience = gather(groups)                         # what was played
    known = ask_models(experience, models, asked)       # and what models say of it, once
    credited = credit(experience, known, algorithm)     # and what every token has earned
    for rows in rows_of_updates(credited.batch, updates, generator):
        learner.update(credited.batch, rows, loss, passes)     # (sum, weight) of each pass

Each stage is a value that the one before has made, and can be printed.

Axes: N trajectories, B rows (segments), T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ludus.errors import ConfigError

from ..recipes.algorithm import Algorithm
from ..recipes.inputs import Inputs, Made, made_by, need, offered
from ..recipes.recipe import UpdateSettings
from ..rollout.batch import Batch
from ..rollout.length_rules import given_by
from ..rollout.tracker import SuccessTracker
from .experience import Experience, played
from .guard import refuse_broken
from .texts import ASKED_BY, answers_of, texts_of

COMPUTED = made_by(Made.ON_DEMAND, Made.VALUE_HEAD, Made.TRACKER) - frozenset(ASKED_BY)
"""Tensors that models and trackers compute; a number that is not finite is refused. What is read of
given texts is checked in the rewards that it shapes.
"""
LINEAR = frozenset(
    {
        "reinforce_loss",
        "ppo_clip_loss",
        "dapo_loss",
        "dual_clip_loss",
        "two_sided_clip_loss",
        "cispo_loss",
        "gspo_loss",
        "gspo_token_loss",
        "luspo_loss",
    }
)
"""Losses that are the advantage times a factor: a row without advantage has no gradient."""


class Scores(Protocol):
    """A policy that gives log-probabilities, such as the reference of a recipe's KL."""

    def score(self, batch: Batch) -> Tensor:
        """Return log-probabilities [B, T] of the whole batch, without gradient, on the CPU."""
        ...


class PolicyScores(Scores, Protocol):
    """A policy with the further readings that some recipes need; see `PolicyReader`."""

    def score_values(self, batch: Batch) -> Tensor: ...
    def score_entropy(self, batch: Batch) -> Tensor: ...
    def score_norms(self, batch: Batch) -> Tensor: ...
    def score_proxy(self, batch: Batch, ratio: float) -> Tensor: ...


@dataclass(frozen=True)
class Models:
    """The models that are asked about a step before the first update."""

    learner: PolicyScores
    reference: Scores | None = None
    """A frozen policy that the recipe pulls towards."""
    tracker: SuccessTracker | None = None
    """Success rates of tasks."""


@dataclass(frozen=True)
class Asked:
    """The log-probabilities, entropies and values that a step needs of the learner, by its recipe
    and number of updates.
    """

    old: bool
    """Whether the old policy is scored before the first update, rather than be the learner itself
    in the pass.
    """
    entropy: bool
    """Whether entropies are read before the first update."""
    entropy_in_pass: bool
    """Whether the loss reads entropies."""
    proxies: bool
    """Whether score norms are read."""
    proxy: bool
    """Whether probabilities without the unlikely tokens are read."""
    values: bool
    """Whether the value head is read before the first update."""
    bootstrap: bool
    """Whether the value head is read at the states that a limit cut trajectories in."""
    weighs_in_pass: bool
    """Whether the correction's weights are computed in the pass that learns.

    With one update the learner in that pass still is the old policy, so that scoring the batch
    beforehand, a third of the cost of an update, would say the same again.
    """

    @classmethod
    def of(cls, algorithm: Algorithm, updates: UpdateSettings, *, tracked: bool) -> Asked:
        """Return the readings that a recipe needs.

        Args:
            algorithm: a resolved recipe.
            updates: how the updates of a step share its groups.
            tracked: whether success rates are tracked, which are told of the old policy.
        """
        filters, loss, needs = algorithm.filters, algorithm.loss_fn, algorithm.needs
        several = updates.count > 1 and algorithm.recipe.algorithm.ratio_to != "sampler"
        compares = bool({"marked", "selected"} & set(loss.optional))
        besides = several or tracked or compares or "ref_logp" in needs
        in_pass = algorithm.weighs_rows_alone and not besides
        corrects = algorithm.weights_fn is not None or bool(filters)
        filters_read = any("entropy" in token_filter.required for token_filter in filters)
        return cls(
            old=besides or (corrects and not in_pass),
            entropy=filters_read or "scale" in loss.optional,
            entropy_in_pass="entropy" in needs,
            proxies="proxies" in needs,
            proxy="proxy_logp" in needs,
            values="values" in needs,
            bootstrap="bootstrap" in needs,
            weighs_in_pass=in_pass,
        )


@dataclass(frozen=True, slots=True)
class Credited:
    """A step with everything that the passes read."""

    batch: Batch
    """The rows; the mask and the inputs are those of the loss."""
    shaped: Tensor
    """[N]: the rewards after shaping."""
    kept: Tensor
    """[N] bool: the trajectories that pass the recipe's filter of groups."""
    together: Tensor | None
    """[B] int: rows with the same number share a pass; None where a row may be alone in one."""
    value_scale: float
    """The weight of the policy's term over that of the value's term."""


def refuse_unmet(algorithm: Algorithm, *, values: bool, tracked: bool) -> None:
    """Refuse a recipe whose functions read tensors that the trainer does not make for that place.

    Args:
        algorithm: a resolved recipe.
        values: whether the learner has a value head.
        tracked: whether success rates are tracked per task.

    Raises:
        ConfigError: with what is missing, and what there is.
    """
    name = algorithm.recipe.name
    available = made_by(
        Made.ALWAYS,
        Made.ON_DEMAND,
        *([Made.VALUE_HEAD] if values else []),
        *([Made.TRACKER] if tracked else []),
    ) | given_by(algorithm.recipe.sampling.rules)
    if missing := sorted(algorithm.needs - available):
        raise ConfigError(
            f"recipe {name!r} needs {', '.join(missing)}, which this trainer does not compute; a "
            f"function may ask for {', '.join(sorted(available))} (options stand after the *)"
        )
    sampling = algorithm.recipe.sampling
    if texts_of(algorithm.needs) and sampling.filter and sampling.filter_by == "shaped":
        raise ConfigError(
            f"recipe {name!r} scores given texts once a step is complete, and {sampling.filter} "
            'chooses groups by shaped rewards before: set sampling.filter_by = "raw"'
        )
    for place, names in algorithm.needs_at.items():
        if missing := sorted(names - offered(place)):
            raise ConfigError(
                f"recipe {name!r}: what {place} names needs {', '.join(missing)}; it is given "
                f"{', '.join(sorted(offered(place)))}"
            )


def ask_models(
    experience: Experience, models: Models, asked: Asked, *, proxy_ratio: float = 0.02
) -> Inputs:
    """Return the experience as inputs, with the readings of the learner, the reference and the
    tracker.
    """
    batch, learner = experience.batch, models.learner
    tracker, reference = models.tracker, models.reference
    tracked = tracker.counts(experience.tasks) if tracker is not None else None
    return replace(
        played(experience),
        sampler_logp=batch.sampler_logp,
        old_logp=learner.score(batch) if asked.old else None,
        ref_logp=reference.score(batch) if reference is not None else None,
        entropy=learner.score_entropy(batch) if asked.entropy else None,
        proxies=learner.score_norms(batch) if asked.proxies else None,
        proxy_logp=learner.score_proxy(batch, proxy_ratio) if asked.proxy else None,
        values=learner.score_values(batch) if asked.values else None,
        bootstrap=_state_values(experience, learner) if asked.bootstrap else None,
        alpha=tracked[0] if tracked else None,
        beta=tracked[1] if tracked else None,
        **answers_of(
            {name: (text, learner.score(text)) for name, text in experience.texts.items()}
        ),
    )


def _state_values(experience: Experience, learner: PolicyScores) -> Tensor:
    """Return the value [N] of the state in which each trajectory was cut; 0 after an end."""
    values, states = torch.zeros(len(experience.rewards)), experience.states
    if states is not None:  # the value is read at a single token of each row
        values[experience.states_of] = learner.score_values(states).sum(1)
    return values


def credit(
    experience: Experience,
    known: Inputs,
    algorithm: Algorithm,
    *,
    generator: torch.Generator | None = None,
    weigh: bool = True,
) -> Credited:
    """Return the step with the advantage of every token.

    Args:
        experience: the experience of the step.
        known: as `ask_models` returns it.
        algorithm: a resolved recipe.
        generator: randomness for filters that draw; None uses torch's global generator.
        weigh: False leaves the correction's weights to the passes.

    Raises:
        UpdateRefused: a number is not finite; the error names the tensors and the rows.
    """
    assigned = algorithm.credit(
        known, excluded=experience.excluded, generator=generator, weigh=weigh
    )
    batch, rollouts, inputs = experience.batch, experience.rollouts, assigned.inputs
    computed = {name: tensor for name, tensor in known.given().items() if name in COMPUTED}
    refuse_broken({**computed, "rewards": experience.rewards}, batch, rollouts)
    # What was given is finite, so that the first function whose result is not is at fault.
    shaping = ", ".join(function.name for _, function in algorithm.shaping)
    refuse = partial(_refuse_of_function, algorithm, rollouts=rollouts)
    refuse("shaping", shaping, {"shaped rewards": assigned.shaped}, batch)
    assigned_credit = {"advantages": inputs.advantages, "returns": inputs.returns}
    refuse("algorithm.advantage", algorithm.advantage_fn.name, assigned_credit, batch)
    trained = replace(batch, mask=assigned.mask, inputs=inputs)
    weights_fn = algorithm.weights_fn
    correction = weights_fn.name if weights_fn is not None else ""
    refuse("algorithm.corrections", correction, {"weights": inputs.weights}, trained)
    return Credited(
        trained, assigned.shaped, assigned.kept, assigned.together, assigned.value_scale
    )


def _refuse_of_function(
    algorithm: Algorithm,
    place: str,
    function: str,
    tensors: Mapping[str, Tensor | None],
    batch: Batch,
    *,
    rollouts: Tensor,
) -> None:
    """Refuse what a function of the recipe made of finite numbers, if a number is not finite."""
    refuse_broken(
        tensors,
        batch,
        rollouts,
        by=f"{function} ({place} of the recipe {algorithm.recipe.name!r})",
        remedy=f"mend {function}: what it was given is finite, what it returned is not. A division "
        "by a spread, a count or a length that may be 0 does that, as in a group of equal rewards",
    )


def idle_rows(credited: Credited, algorithm: Algorithm, *, bonus: float) -> Tensor:
    """Return the rows whose gradient is zero whatever the model outputs, [B] bool.

    Such rows have no advantage anywhere, and the loss has no term for KL or entropy. A row that
    has to be in one pass with others is idle only if all of these are.

    Args:
        credited: the rows, with their advantages.
        algorithm: a resolved recipe.
        bonus: the weight of the entropy in the loss of this step.
    """
    settings, batch = algorithm.recipe.algorithm, credited.batch
    if (
        settings.loss not in LINEAR
        or settings.kl.place == "loss"
        or bonus
        or settings.value is not None
    ):
        return torch.zeros(len(batch), dtype=torch.bool)
    advantages = need(batch.inputs.advantages, "advantages", settings.loss)
    busy = ((advantages * batch.mask) != 0).any(1)
    if credited.together is not None:
        busy = torch.isin(credited.together, credited.together[busy])
    return ~busy


def rows_of_updates(
    batch: Batch, updates: UpdateSettings, generator: torch.Generator
) -> list[Tensor]:
    """Return the indices of the rows of each update.

    Groups are not split, so that segments, and rollouts that a loss compares, stay together.
    Groups that train no token are left out, since an update of such groups alone would change
    nothing. If no group trains a token, there is one update, of a single group.

    Args:
        batch: the rows, with the groups they belong to.
        updates: how the updates of a step share its groups.
        generator: draws the order of the groups.
    """
    row_groups = need(batch.inputs.groups, "groups", "updates")
    trained = row_groups[batch.mask.any(1)].unique()
    groups = trained if len(trained) else row_groups.unique()[:1]
    shares: list[Tensor] = []
    for _ in range(updates.epochs):
        order = groups[torch.randperm(len(groups), generator=generator)]
        shares += [share for share in order.tensor_split(updates.splits) if len(share)]
    return [torch.isin(row_groups, share).nonzero().squeeze(1) for share in shares]
