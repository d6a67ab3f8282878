"""From groups of episodes to a step of the weights: credit, correction, update.

Axes: N trajectories, B rows (segments), T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ludus.errors import UpdateRefused

from ..algorithms import covariance_mask, hapo_entropy_scale
from ..recipes import Algorithm, Inputs, UpdateSettings, options_for
from ..recipes.inputs import Made, made_by, need
from ..rollout.collect import Group
from ..rollout.tracker import SuccessTracker
from .batch import Batch
from .entropy_control import EntropyControl
from .experience import Experience, gather, played, prompt_tokens, responses_of
from .guard import Refusal, refuse_broken
from .learner import Learner, Predicted, UpdatePasses
from .policy_model import Scores
from .recipe_inputs import refuse_unmet
from .update_numbers import (
    dropped_shares,
    gap_of,
    mean_gap,
    movement_numbers,
    movement_of,
    signal_shares,
)
from .update_rows import idle_rows, rows_of_updates

COMPUTED = made_by(Made.ON_DEMAND, Made.VALUE_HEAD, Made.TRACKER)
"""Tensors that models and trackers compute; a number that is not finite is refused."""

ONE_UPDATE = UpdateSettings()


class Updater:
    """Applies an algorithm to experience.

    A step calls `_credited` (advantages, weights, masks), `rows_of_updates` and, for each update,
    `Learner.update`, which calls `_loss` once a pass.

    Args:
        algorithm: a resolved recipe.
        learner: holds the weights that are updated.
        reference: a frozen policy that the recipe pulls towards, if the recipe asks for one.
        tracker: tracks success rates, if the recipe has a tracker; each step is remembered there.
        updates: how the updates of a step share its groups; fewer are made where a step has fewer
            groups to train.

    Raises:
        ConfigError: the recipe needs a tensor this trainer does not make.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        learner: Learner,
        *,
        reference: Scores | None = None,
        tracker: SuccessTracker | None = None,
        updates: UpdateSettings = ONE_UPDATE,
    ) -> None:
        refuse_unmet(algorithm, values=learner.value_head is not None, tracked=tracker is not None)
        self.algorithm = algorithm
        self.learner = learner
        self.reference = reference
        self.tracker = tracker
        self.updates = updates
        self.entropy = EntropyControl(algorithm.recipe.algorithm.entropy)
        self._moves: list[tuple[float, ...]] = []
        """How far each pass of the step moved the policy; see `movement_of`."""
        self._gaps: list[tuple[float, ...]] = []
        """How far the sampler was from the learner in each pass of the first update."""
        self._first_update = 0
        """The number of updates made before the step."""
        self._version: int | None = None
        """The version of the weights before the step's first update."""
        self._value_scale = 1.0
        """The weight of the value's term; see `_weight_of_values`."""
        self.refusals: list[Refusal] = []
        """The updates of the last step that were refused."""
        self.refused_in_a_row = 0
        """The number of updates refused since an update was last made."""

    def passing(self, groups: Sequence[Group]) -> list[int]:
        """Return the indices of the groups that pass the recipe's filter."""
        experience = gather(groups)
        if experience is None:
            return []
        shaped = self.algorithm.shape(played(experience))
        kept = self._kept(experience, shaped)
        return [int(index) for index in experience.groups[kept].unique()]

    def step(self, experience: Experience, *, generator: torch.Generator) -> dict[str, float]:
        """Learn from the experience of a step; an update that is not finite is not made
        (`refusals`).

        Returns:
            Metrics: those of `Learner.update` averaged over the updates, `updates` and `refused`
            (how many were made, and were not), `zero_advantage` (share of rows without a signal),
            and those of `update_numbers`.
        """
        self.refusals, self._version = [], experience.version
        try:
            batch, metrics = self._credited(experience, generator)
        except UpdateRefused as error:
            self._refuse(error, experience, experience.batch)
            return {"refused": 1.0, "updates": 0.0}
        metrics |= self.entropy.begin_step(experience.batch)
        drift = self._drift(experience)
        idle = idle_rows(batch, self.algorithm, bonus=self.entropy.applied)
        metrics["zero_advantage"] = float(idle.float().mean())
        update_metrics: list[dict[str, float]] = []
        self._gaps, self._first_update = [], self.learner.updates
        for rows in rows_of_updates(batch, self.updates, generator):
            # Passes that are computed again, or refused, must not count in the statistics.
            forget = partial(self._forget_after, len(self._moves), len(self._gaps))
            passes = UpdatePasses(
                idle=idle,
                together=batch.inputs.groups if self.algorithm.compares else None,
                entropy="entropy" in self.algorithm.needs,
                afresh=forget,
            )
            try:
                update_metrics.append(self.learner.update(batch, rows, self._loss, passes))
                self.refused_in_a_row = 0
            except UpdateRefused as error:
                forget()
                self._refuse(error, experience, batch)
        count = len(update_metrics)
        for name in update_metrics[0] if update_metrics else ():
            metrics[name] = sum(numbers[name] for numbers in update_metrics) / count
        if update_metrics:
            metrics["tokens"] *= count  # of the step, not of an update on average
        metrics |= {"updates": float(count), "refused": float(len(self.refusals))}
        movement, self._moves = movement_numbers(self.learner.gathered(self._moves)), []
        # The gap of the old policy's scores, if `metrics` has it, takes precedence.
        metrics = mean_gap(self.learner.gathered(self._gaps)) | metrics
        return metrics | movement | self._remember(experience, batch, drift)

    def _forget_after(self, moves: int, gaps: int) -> None:
        """Keep the first `moves` and `gaps` of the passes' statistics, and drop the others."""
        del self._moves[moves:], self._gaps[gaps:]

    def _refuse(self, error: UpdateRefused, experience: Experience, batch: Batch) -> None:
        """Keep the rows and episodes of an update that was not made."""
        self.refused_in_a_row += 1
        rows = torch.tensor(error.rows or range(len(batch)))
        rollouts = experience.rollouts[rows].unique().tolist()
        episodes = [experience.episodes[rollout] for rollout in rollouts]
        self.refusals.append(Refusal(str(error), batch.take(rows), episodes))

    def _credited(
        self, experience: Experience, generator: torch.Generator | None = None
    ) -> tuple[Batch, dict[str, float]]:
        """Return the batch with advantages, weights, old and reference log-probabilities, and
        metrics.
        """
        algorithm, batch, rollouts = self.algorithm, experience.batch, experience.rollouts
        known = self._known(experience)
        shaped = algorithm.shape(known)
        kept = self._kept(experience, shaped)
        refuse_broken(
            {
                **{name: tensor for name, tensor in known.given().items() if name in COMPUTED},
                "rewards": experience.rewards,
                "shaped rewards": shaped,
            },
            batch,
            rollouts,
        )
        if "weights" in algorithm.advantage_fn.optional:
            known = replace(known, weights=algorithm.weigh(known))
        credit = algorithm.advantages(replace(known, rewards=shaped), kept=kept)
        refuse_broken({"advantages": credit.advantages, "returns": credit.returns}, batch, rollouts)
        trained = kept & ~experience.excluded
        corrected = algorithm.correct(
            replace(
                known,
                mask=batch.mask * trained[rollouts].unsqueeze(1),
                advantages=credit.advantages,
            ),
            generator,
            weigh=not self._weighs_in_the_pass,
        )
        ready = Batch(
            batch.ids,
            corrected.mask,
            batch.sampler_logp,
            batch.lengths,
            Inputs(
                advantages=credit.advantages,
                returns=credit.returns,
                value_mask=credit.value_mask,
                old_values=known.values,
                weights=corrected.weights,
                old_logp=batch.sampler_logp if self._to_sampler else known.old_logp,
                ref_logp=known.ref_logp,
                groups=experience.groups[rollouts],
                rewards=shaped[rollouts],
                prompt_tokens=prompt_tokens(corrected.mask, experience),
                **self._chosen_tokens(corrected.mask, credit.advantages, known),
            ),
            batch.images,
            batch.versions,
        )
        self._value_scale = self._weight_of_values(ready)
        refuse_broken({"weights": corrected.weights}, ready, rollouts)
        return ready, self._numbers_of_credit(known, experience, kept, ready)

    def _numbers_of_credit(
        self, known: Inputs, experience: Experience, kept: Tensor, ready: Batch
    ) -> dict[str, float]:
        """Return how far the sampler was from the old policy, what left the loss, and what has a
        signal.
        """
        old_logp, overlong = known.old_logp, self.algorithm.recipe.algorithm.overlong
        gaps = [] if old_logp is None else [gap_of(old_logp, experience.batch, self._version)]
        return {
            **mean_gap(gaps),
            **dropped_shares(experience, kept, ready, overlong_in_loss=overlong.in_loss),
            **signal_shares(ready),
        }

    def _kept(self, experience: Experience, shaped: Tensor) -> Tensor:
        """Return which rollouts pass the recipe's filter, [N] bool."""
        inputs = Inputs(rewards=shaped, groups=experience.groups)
        return self.algorithm.keep(inputs, raw=experience.rewards)

    @property
    def _to_sampler(self) -> bool:
        """Whether the loss's ratio is taken against the log-probabilities of the engine."""
        return self.algorithm.recipe.algorithm.ratio_to == "sampler"

    def _known(self, experience: Experience) -> Inputs:
        """Return what was played, with the tensors of the models that the recipe asks for."""
        batch, needs, learner = experience.batch, self.algorithm.needs, self.learner
        tracked = self.tracker.counts(experience.tasks) if self.tracker is not None else None
        return replace(
            played(experience),
            sampler_logp=batch.sampler_logp,
            old_logp=learner.score(batch) if self._needs_old else None,
            ref_logp=self.reference.score(batch) if self.reference is not None else None,
            entropy=learner.score_entropy(batch) if self._needs_old_entropy else None,
            proxies=learner.score_norms(batch) if "proxies" in needs else None,
            values=learner.score_values(batch) if "values" in needs else None,
            bootstrap=self._state_values(experience) if "bootstrap" in needs else None,
            alpha=tracked[0] if tracked else None,
            beta=tracked[1] if tracked else None,
        )

    def _state_values(self, experience: Experience) -> Tensor:
        """Return the value [N] of the state in which each trajectory was cut; 0 after an end."""
        values, states = torch.zeros(len(experience.rewards)), experience.states
        if states is not None:  # the value is read at a single token of each row
            values[experience.states_of] = self.learner.score_values(states).sum(1)
        return values

    def _chosen_tokens(self, mask: Tensor, advantages: Tensor, known: Inputs) -> dict[str, Tensor]:
        """Return the tensors for losses that mark or scale tokens by comparing all of them.

        Computed here, for the whole batch: splits into updates and passes change nothing.
        """
        loss, tensors = self.algorithm.loss_fn, dict[str, Tensor]()
        if "marked" in loss.optional:
            logp = need(known.old_logp, "old_logp", loss.name)
            share: dict[str, Any] = options_for(covariance_mask, loss)
            tensors["marked"] = covariance_mask(logp, advantages, mask, **share)
        if "scale" in loss.optional:
            entropy = need(known.entropy, "entropy", loss.name)
            options: dict[str, Any] = options_for(hapo_entropy_scale, loss)
            tensors["scale"] = hapo_entropy_scale(entropy, mask, **options)
        return tensors

    def _weight_of_values(self, batch: Batch) -> float:
        """Return the weight of the policy's term over that of the value's term.

        The weights differ where the value head is read at some tokens only: the mean of the value's
        term is taken over those tokens. Only the weights matter here, so that values are zeros.
        """
        value_mask = batch.inputs.value_mask
        if value_mask is None:
            return 1.0
        zero = torch.zeros_like(batch.mask)
        inputs = replace(batch.inputs, values=zero, old_values=zero, returns=zero)
        _, policy_weight = self.algorithm.value_loss(replace(inputs, mask=batch.mask))
        _, value_weight = self.algorithm.value_loss(replace(inputs, mask=batch.mask * value_mask))
        return float(policy_weight / value_weight) if value_weight else 1.0

    def _drift(self, experience: Experience) -> Tensor | None:
        """Return the tracker's measure of how far the policy moved on each task, [N]."""
        if self.tracker is None:
            return None
        return self.tracker.drift(experience.tasks, self.learner.score)

    def _remember(
        self, experience: Experience, batch: Batch, drift: Tensor | None
    ) -> dict[str, float]:
        """Tell the tracker the result of each task, with the old policy's log-probabilities."""
        if self.tracker is None or drift is None:
            return {}
        old_logp = need(batch.inputs.old_logp, "old_logp", "sampling.tracker")
        responses = responses_of(experience, old_logp)
        before = self.tracker.rates(experience.tasks)
        shaped = self.algorithm.shape(played(experience))
        self.tracker.remember(experience.tasks, shaped, drift, responses)
        return {"tracked_rate": float(before.mean()), "tracked_drift": float(drift.mean())}

    @property
    def _needs_old(self) -> bool:
        """Whether the old policy must be scored before the first update, rather than be the learner
        itself.
        """
        corrects = self.algorithm.weights_fn is not None or bool(self.algorithm.filters)
        return self._needs_old_besides_weights or (corrects and not self._weighs_in_the_pass)

    @property
    def _needs_old_besides_weights(self) -> bool:
        remembers = self.tracker is not None
        compares = "marked" in self.algorithm.loss_fn.optional
        several = self.updates.count > 1 and not self._to_sampler
        return several or remembers or compares or "ref_logp" in self.algorithm.needs

    @property
    def _weighs_in_the_pass(self) -> bool:
        """Whether the correction's weights are computed in the pass that learns.

        With one update the learner in that pass still is the old policy, so that scoring the batch
        beforehand, a third of the cost of an update, would say the same again.
        """
        return self.algorithm.weighs_rows_alone and not self._needs_old_besides_weights

    @property
    def _needs_old_entropy(self) -> bool:
        """Whether entropies are read before the first update."""
        algorithm = self.algorithm
        filters_read = any("entropy" in token_filter.required for token_filter in algorithm.filters)
        return filters_read or "scale" in algorithm.loss_fn.optional

    def _loss(self, batch: Batch, predicted: Predicted) -> tuple[Tensor, Tensor]:
        """Return the sum of the loss over the rows of a pass, and their weight."""
        known, logp = batch.inputs, predicted.logp
        inputs = replace(
            known,
            logp=logp,
            old_logp=logp.detach() if known.old_logp is None else known.old_logp,
            entropy=predicted.entropy,
            mask=batch.mask,
            sampler_logp=batch.sampler_logp,
        )
        if self._weighs_in_the_pass:
            inputs = replace(inputs, weights=self.algorithm.weigh_rows(inputs))
        if logp.requires_grad:
            self._moves.append(movement_of(self.algorithm.moved(inputs), batch))
            if self.learner.updates == self._first_update:  # still the weights that sampled
                self._gaps.append(gap_of(logp.detach(), batch, self._version))
        loss = self.algorithm.loss(inputs, entropy_coefficient=self.entropy.applied)
        if predicted.values is None or known.returns is None:
            return loss.total, loss.weight
        # The value's term has the policy's aggregation, and so, once it is scaled, its weight.
        value_mask = batch.mask if known.value_mask is None else batch.mask * known.value_mask
        value_inputs = replace(inputs, values=predicted.values, mask=value_mask)
        value_total, _ = self.algorithm.value_loss(value_inputs)
        return loss.total + self._value_scale * value_total, loss.weight
