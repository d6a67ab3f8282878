"""From groups of episodes to one step of the weights: credit, correction, update.

Axes: N trajectories, B rows (segments), T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.errors import ConfigError, UpdateRefused

from ..algorithms import RatioStatistics, covariance_mask, hapo_entropy_scale
from ..recipes import Algorithm, options_for
from ..rollout.collect import Group
from ..rollout.tracker import SuccessTracker
from .batch import Batch
from .experience import Experience, gather, prompt_tokens, responses_of
from .guard import Refusal, refuse_broken
from .learner import Learner, Predicted
from .recipe_inputs import refuse_misplaced
from .update_numbers import dropped_shares, movement_numbers, sampler_gap, signal_shares

PROVIDED = frozenset(
    {
        "old_logp",
        "sampler_logp",
        "ref_logp",
        "entropy",
        "truncated",
        "proxies",
        "values",
        "alpha",
        "beta",
        "bootstrap",
    }
)
"""Tensors that the trainer can give a recipe beyond those that every recipe has."""

_CREDITED = ("old_logp", "ref_logp", "proxies", "values", "alpha", "beta", "bootstrap")
"""Provided tensors that an advantage may read."""
_CORRECTED = ("old_logp", "ref_logp", "sampler_logp", "old_entropy")
"""Provided tensors that a correction may read."""
_SHORT = {"old_entropy": "entropy"}
"""Before the first update the old policy's entropies are the policy's own."""

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


class Updater:
    """Applies an algorithm to experience.

    Args:
        algorithm: a resolved recipe.
        learner: holds the weights that are updated.
        reference: a frozen copy that the recipe pulls towards, if the recipe asks for one.
        tracker: tracks success rates, if the recipe has a tracker; each step is remembered there.
        updates: number of mini-batches, and optimizer updates, that share a step's groups; fewer
            where
            a step has fewer groups to train.
        epochs: number of times that every group is used.

    Raises:
        ConfigError: the recipe needs a tensor this trainer does not make.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        learner: Learner,
        *,
        reference: Learner | None = None,
        tracker: SuccessTracker | None = None,
        updates: int = 1,
        epochs: int = 1,
    ) -> None:
        without = frozenset({"values", "bootstrap"} if learner.value_head is None else ())
        without |= {"alpha", "beta"} if tracker is None else frozenset()
        missing = sorted(algorithm.needs - (PROVIDED - without))
        if missing:
            raise ConfigError(
                f"recipe {algorithm.recipe.name!r} needs {', '.join(missing)}, which this trainer "
                "does not compute"
            )
        refuse_misplaced(algorithm)
        self.algorithm = algorithm
        self.learner = learner
        self.reference = reference
        self.tracker = tracker
        self.updates = updates
        self.epochs = epochs
        self._moves: list[RatioStatistics] = []
        self._value_scale = 1.0
        self.refusals: list[Refusal] = []
        """Of the last step."""
        self.refused_in_a_row = 0
        """Updates since the last one that was made."""

    def kept_groups(self, groups: Sequence[Group]) -> int:
        """Return how many of `groups` pass the recipe's filter."""
        experience = gather(groups)
        if experience is None:
            return 0
        kept = self._kept(experience, self._shaped(experience))
        return len(experience.groups[kept].unique())

    def step(self, experience: Experience, *, generator: torch.Generator) -> dict[str, float]:
        """Learn from the experience of one step. An update that is not finite is not made; see
        `refusals`.

        Returns:
            Metrics: those of `Learner.update` averaged over the updates, `updates` and `refused`
            (how many were made, and were not), `zero_advantage` (share of rows without a signal),
            and those of `update_numbers`.
        """
        self.refusals = []
        try:
            batch, metrics = self._credited(experience, generator)
        except UpdateRefused as error:
            self._refuse(error, experience, experience.batch)
            return {"refused": 1.0, "updates": 0.0}
        drift = self._drift(experience)
        idle = self._idle(batch)
        metrics["zero_advantage"] = float(idle.float().mean())
        made: list[dict[str, float]] = []
        for rows in self._shares(batch, generator):
            moves = len(self._moves)
            try:
                made.append(
                    self.learner.update(
                        batch,
                        rows,
                        self._loss,
                        idle=idle,
                        together=batch.extra["groups"] if self.algorithm.compares else None,
                        entropy="entropy" in self.algorithm.needs,
                    )
                )
                self.refused_in_a_row = 0
            except UpdateRefused as error:
                del self._moves[moves:]
                self._refuse(error, experience, batch)
        for name in made[0] if made else ():
            metrics[name] = sum(one[name] for one in made) / len(made)
        if made:
            metrics["tokens"] *= len(made)
        metrics |= {"updates": float(len(made)), "refused": float(len(self.refusals))}
        moved, self._moves = movement_numbers(self._moves), []
        return metrics | moved | self._remember(experience, batch, drift)

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
        truncated = experience.truncated
        shaped = self._shaped(experience)
        kept = self._kept(experience, shaped)
        known = self._known(experience)
        refuse_broken(
            {**known, "rewards": experience.rewards, "shaped rewards": shaped}, batch, rollouts
        )
        read = {name: known[name] for name in _CREDITED if name in known}
        by_sampler = {_SHORT.get(name, name): known[name] for name in _CORRECTED if name in known}
        if "weights" in algorithm.advantage_fn.optional:
            weights = algorithm.weigh(batch.mask, rollouts, **by_sampler)
            read |= {} if weights is None else {"weights": weights}
        credit = algorithm.advantages(
            shaped,
            experience.groups,
            batch.mask,
            rollouts,
            kept=kept,
            truncated=truncated,
            correct=(experience.rewards > 0).to(shaped.dtype),
            turn_rewards=experience.turn_rewards,
            turns=experience.turns,
            **read,
        )
        refuse_broken({"advantages": credit.advantages, "returns": credit.returns}, batch, rollouts)
        trained = kept & ~experience.excluded
        corrected = algorithm.correct(
            batch.mask * trained[rollouts].unsqueeze(1),
            rollouts,
            generator,
            advantages=credit.advantages,
            truncated=truncated,
            rewards=experience.rewards,
            **by_sampler,
        )
        ready = Batch(batch.ids, corrected.mask, batch.sampler_logp, batch.lengths).with_extra(
            advantages=credit.advantages,
            returns=credit.returns,
            value_mask=credit.value_mask,
            old_values=known.get("values"),
            weights=corrected.weights,
            old_logp=batch.sampler_logp if self._to_sampler else known.get("old_logp"),
            ref_logp=known.get("ref_logp"),
            groups=experience.groups[rollouts],
            rewards=shaped[rollouts],
            prompt_tokens=prompt_tokens(corrected.mask, experience),
        )
        ready = ready.with_extra(**self._of_whole_batch(ready, known))
        self._value_scale = self._weight_of_values(ready)
        refuse_broken({"weights": corrected.weights}, ready, rollouts)
        return ready, {
            **sampler_gap(known.get("old_logp"), batch),
            **dropped_shares(
                experience,
                kept,
                ready,
                overlong_in_loss=algorithm.recipe.algorithm.overlong.in_loss,
            ),
            **signal_shares(ready),
        }

    def _shaped(self, experience: Experience) -> Tensor:
        tokens = experience.batch.mask.sum(1)
        lengths = tokens.new_zeros(len(experience.rewards))
        lengths = lengths.index_add(0, experience.rollouts, tokens)
        return self.algorithm.shape(
            experience.rewards,
            experience.groups,
            lengths=lengths,
            truncated=experience.truncated,
        )

    def _kept(self, experience: Experience, shaped: Tensor) -> Tensor:
        """Return which rollouts pass the recipe's filter, [N] bool."""
        return self.algorithm.keep(shaped, experience.groups, raw=experience.rewards)

    @property
    def _to_sampler(self) -> bool:
        """Whether the loss's ratio is taken against the log-probabilities of the engine."""
        return self.algorithm.recipe.algorithm.ratio_to == "sampler"

    def _known(self, experience: Experience) -> dict[str, Tensor]:
        """Compute the tensors, beyond rewards, that credit and corrections of this recipe read."""
        batch, needs = experience.batch, self.algorithm.needs
        known = {"sampler_logp": batch.sampler_logp}
        if self._needs_old:
            known["old_logp"] = self.learner.score(batch)
        if self.reference is not None:
            known["ref_logp"] = self.reference.score(batch)
        if self._needs_old_entropy:
            known["old_entropy"] = self.learner.score_entropy(batch)
        if "proxies" in needs:
            known["proxies"] = self.learner.score_norms(batch)
        if "values" in needs:
            known["values"] = self.learner.score_values(batch)
        if "bootstrap" in needs:
            known["bootstrap"] = self._state_values(experience)
        if self.tracker is not None:
            known["alpha"], known["beta"] = self.tracker.counts(experience.tasks)
        return known

    def _state_values(self, experience: Experience) -> Tensor:
        """Return, for each trajectory [N], the value of the state it was cut in; 0 after an end."""
        found, states = torch.zeros(len(experience.rewards)), experience.states
        if states is not None:
            found[experience.states_of] = self.learner.score_values(states).sum(1)
        return found

    def _of_whole_batch(self, batch: Batch, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute what a loss selects by comparing all tokens of the batch.

        The selection is made here, so that the split of rows into updates and passes changes
        nothing.
        """
        loss, made = self.algorithm.loss_fn, dict[str, Tensor]()
        if "marked" in loss.optional:
            logp, advantages = known["old_logp"], batch.extra["advantages"]
            share: dict[str, Any] = options_for(covariance_mask, loss)
            made["marked"] = covariance_mask(logp, advantages, batch.mask, **share)
        if "scale" in loss.optional:
            options: dict[str, Any] = options_for(hapo_entropy_scale, loss)
            made["scale"] = hapo_entropy_scale(known["old_entropy"], batch.mask, **options)
        return made

    def _weight_of_values(self, batch: Batch) -> float:
        """Return the weight of the policy's term over that of the value's term.

        The weights differ where the value head is read at some tokens only: the mean of the value's
        term is taken over those tokens.
        """
        if "value_mask" not in batch.extra:
            return 1.0
        zeros = dict.fromkeys(("values", "old_values", "returns"), torch.zeros_like(batch.mask))
        given = {**batch.extra, **zeros}
        _, every = self.algorithm.value_loss(**given, mask=batch.mask)
        _, some = self.algorithm.value_loss(**given, mask=batch.mask * given["value_mask"])
        return float(every / some) if some else 1.0

    def _drift(self, experience: Experience) -> Tensor | None:
        if self.tracker is None:
            return None
        return self.tracker.drift(experience.tasks, self.learner.score)

    def _remember(
        self, experience: Experience, batch: Batch, drift: Tensor | None
    ) -> dict[str, float]:
        """Tell the tracker the result of each task, with the old policy's log-probabilities."""
        if self.tracker is None or drift is None:
            return {}
        responses = responses_of(experience, batch.extra["old_logp"])
        before = self.tracker.rates(experience.tasks)
        self.tracker.remember(experience.tasks, self._shaped(experience), drift, responses)
        return {"tracked_rate": float(before.mean()), "tracked_drift": float(drift.mean())}

    @property
    def _needs_old(self) -> bool:
        """Whether the old policy must be scored before the first update, rather than be the learner
        itself.
        """
        needs = self.algorithm.needs
        corrects = self.algorithm.weights_fn is not None or bool(self.algorithm.filters)
        remembers = self.tracker is not None
        compares = "marked" in self.algorithm.loss_fn.optional
        several = self.updates * self.epochs > 1 and not self._to_sampler
        return several or corrects or remembers or compares or "ref_logp" in needs

    @property
    def _needs_old_entropy(self) -> bool:
        """Whether entropies are read before the first update."""
        algorithm = self.algorithm
        filtered = any("entropy" in one.required for one in algorithm.filters)
        return filtered or "scale" in algorithm.loss_fn.optional

    def _loss(self, batch: Batch, predicted: Predicted) -> tuple[Tensor, Tensor]:
        extra = dict(batch.extra)
        extra.setdefault("old_logp", predicted.logp.detach())
        if predicted.entropy is not None:
            extra["entropy"] = predicted.entropy
        if predicted.logp.requires_grad:
            self._moves.append(
                self.algorithm.moved(
                    logp=predicted.logp,
                    old_logp=extra["old_logp"],
                    advantages=extra["advantages"],
                    mask=batch.mask,
                )
            )
        loss = self.algorithm.loss(
            logp=predicted.logp, mask=batch.mask, sampler_logp=batch.sampler_logp, **extra
        )
        if predicted.values is None or "returns" not in extra:
            return loss.total, loss.weight
        # the value's term has the policy's aggregation, and so its weight
        read = batch.mask * extra.pop("value_mask", batch.mask)
        total, _ = self.algorithm.value_loss(values=predicted.values, mask=read, **extra)
        return loss.total + self._value_scale * total, loss.weight

    def _idle(self, batch: Batch) -> Tensor:
        """Return the rows whose gradient is zero whatever the model outputs, [B] bool.

        Such rows have no advantage anywhere, and the recipe has no term for KL or entropy.
        """
        settings = self.algorithm.recipe.algorithm
        if (
            settings.loss not in LINEAR
            or settings.kl.place == "loss"
            or settings.entropy.coefficient
            or settings.value is not None
        ):
            return torch.zeros(len(batch), dtype=torch.bool)
        return ((batch.extra["advantages"] * batch.mask) == 0).all(1)

    def _shares(self, batch: Batch, generator: torch.Generator) -> list[Tensor]:
        """Return the rows of each update.

        Groups are not split, so that segments and rivals stay together. Groups that train no token
        have no share, since a mini-batch of such groups alone would be an update less.
        """
        row_groups = batch.extra["groups"]
        trained = row_groups[batch.mask.any(1)].unique()
        names = trained if len(trained) else row_groups.unique()[:1]
        shares: list[Tensor] = []
        for _ in range(self.epochs):
            order = names[torch.randperm(len(names), generator=generator)]
            shares += [share for share in order.tensor_split(self.updates) if len(share)]
        return [torch.isin(row_groups, share).nonzero().squeeze(1) for share in shares]
