"""From the experience of a step to a step of the weights: credit, passes, numbers.

Axes: N trajectories, B rows (segments), T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ludus.errors import UpdateRefused

from ..algorithms import RatioStatistics, adaptive_entropy_coefficient
from ..models.mask_policy import MaskPolicy
from ..recipes.algorithm import Algorithm
from ..recipes.inputs import Inputs, need
from ..recipes.recipe import EntropyBonus, UpdateSettings, valued
from ..recipes.resolution import resolve
from ..rollout.batch import Batch
from ..rollout.collect import Group
from ..rollout.tracker import SuccessTracker
from .credit import (
    Asked,
    Credited,
    Models,
    Scores,
    ask_models,
    credit,
    idle_rows,
    refuse_unmet,
    rows_of_updates,
)
from .experience import Experience, gather, played, responses_of
from .guard import Refusal, StepBound
from .learned import LearnedEpisode, SeenRow, learned_episodes, seen_rows
from .learner import PolicyLearner, Predicted, UpdatePasses
from .policy_model import MovingReference
from .texts import GivenTexts

ONE_UPDATE = UpdateSettings()


class PassLoss:
    """The loss of each pass of a step, which also keeps the measurements of passes.

    Args:
        algorithm: a resolved recipe.
        credited: the step.
        weighs: whether the correction's weights are computed in the pass.
        bonus: the weight of the entropy in the loss of this step.
        version: the version of the weights that learn from the step, where it is known.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        credited: Credited,
        *,
        weighs: bool = False,
        bonus: float | None = None,
        version: int | None = None,
    ) -> None:
        self.algorithm = algorithm
        self._value_scale = credited.value_scale
        self.weighs = weighs
        self.bonus = bonus
        self._version = version
        self.made = 0
        """Number of updates of the step that were made before the passes that come."""
        self.moves: list[tuple[float, ...]] = []
        """How far each pass moved the policy; see `movement_of`."""
        self.gaps: list[tuple[float, ...]] = []
        """How far the sampler was from the learner in each pass of the first update."""
        self.watched: frozenset[int] = frozenset()
        """The rollouts of the step whose rows are kept in `seen`."""
        self.seen: list[SeenRow] = []
        """The rows of watched rollouts in the passes of the first update."""

    def __call__(self, batch: Batch, predicted: Predicted) -> tuple[Tensor, Tensor]:
        """Return the sum of the loss over the rows of a pass, and their weight."""
        known, logp, algorithm = batch.inputs, predicted.logp, self.algorithm
        inputs = replace(
            known,
            logp=logp,
            old_logp=logp.detach() if known.old_logp is None else known.old_logp,
            entropy=predicted.entropy,
            values=predicted.values,
            mask=batch.mask,
            sampler_logp=batch.sampler_logp,
        )
        outcome = algorithm.on_pass(
            inputs,
            weigh=self.weighs,
            entropy_coefficient=self.bonus,
            value_scale=self._value_scale,
            measure=logp.requires_grad,
        )
        if outcome.moved is not None:
            self.moves.append(movement_of(outcome.moved, batch, self.made))
            if not self.made:  # the weights still are those before the step
                self.gaps.append(gap_of(logp.detach(), batch, self._version, batch.mask.shape[0]))
                self.seen += seen_rows(batch, predicted, self.watched)
        return outcome.total, outcome.weight

    def forget_after(self, moves: int, gaps: int, seen: int) -> None:
        """Keep the first of the passes' statistics and of the rows seen, and drop the others."""
        del self.moves[moves:], self.gaps[gaps:], self.seen[seen:]


class Updater:
    """Applies an algorithm to experience.

    A step goes one way: `ask_models` and `credit` make a `Credited` of the experience, and
    `Learner.update` makes the passes of each update, which call a `PassLoss`.

    Args:
        algorithm: a resolved recipe.
        learner: holds the weights that are updated.
        reference: a frozen policy that the recipe pulls towards, if the recipe asks for one.
        tracker: tracks success rates, if the recipe has a tracker; each step is remembered there.
        updates: how the updates of a step share its groups; fewer are made where a step has fewer
            groups to train, and where the policy has moved too far.
        max_kl: the largest divergence from the policy before the step, in nats per token; 0 bounds
            nothing (trainer.max_kl).

    Raises:
        ConfigError: the recipe needs a tensor this trainer does not make.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        learner: PolicyLearner,
        *,
        reference: Scores | None = None,
        tracker: SuccessTracker | None = None,
        updates: UpdateSettings = ONE_UPDATE,
        max_kl: float = 0.0,
    ) -> None:
        refuse_unmet(algorithm, values=learner.value_head is not None, tracked=tracker is not None)
        self.algorithm = algorithm
        self.learner = learner
        self.reference = reference
        copies = (reference, learner.mask)
        self.moving = [each for each in copies if isinstance(each, MovingReference | MaskPolicy)]
        """The copies of the policy that count steps."""
        self.tracker = tracker
        self.updates = updates
        self.max_kl = max_kl
        self.texts: GivenTexts | None = None
        """Makes the given texts that the recipe asks for."""
        self.asked = Asked.of(algorithm, updates, tracked=tracker is not None)
        self.entropy = EntropyControl(algorithm.recipe.algorithm.entropy)
        self.values: dict[str, float] = {}
        """The numbers that move, by path; see `adopt`."""
        self.refusals: list[Refusal] = []
        """The updates of the last step that were refused."""
        self.watched: frozenset[int] = frozenset()
        """Ordinals of the rollouts whose tokens `learned` tells of after the next step."""
        self.learned: list[LearnedEpisode] = []
        self.refused_in_a_row = 0
        """The number of updates refused since an update was last made."""

    def adopt(self, values: Mapping[str, float]) -> None:
        """Take the numbers of the next step.

        Args:
            values: by path, as `Recipe.schedules` names them; empty where none moves.

        Raises:
            ConfigError: the recipe cannot be with these numbers.
        """
        if dict(values) == self.values:
            return
        self.values = dict(values)
        recipe = valued(self.algorithm.recipe, values)
        self.algorithm = resolve(recipe, max_tokens=self.algorithm.max_tokens)
        self.asked = Asked.of(self.algorithm, self.updates, tracked=self.tracker is not None)
        kept, self.entropy = self.entropy.coefficient, EntropyControl(recipe.algorithm.entropy)
        if recipe.algorithm.entropy.target:
            self.entropy.coefficient = kept

    def passing(self, groups: Sequence[Group]) -> list[int]:
        """Return the indices of the groups that pass the recipe's filter."""
        experience = gather(groups)
        if experience is None:
            return []
        sampling, shaped = self.algorithm.recipe.sampling, experience.rewards
        if sampling.filter and sampling.filter_by == "shaped":
            shaped = self.algorithm.shape(played(experience))
        kept = self.algorithm.keep(
            Inputs(rewards=shaped, groups=experience.groups), raw=experience.rewards
        )
        return [int(index) for index in experience.groups[kept].unique()]

    def known(self, experience: Experience) -> Inputs:
        """Return the experience as inputs, with the models' readings before the step's first
        update.
        """
        models = Models(self.learner, self.reference, self.tracker)
        ratio = self.algorithm.recipe.algorithm.proxy_ratio
        return ask_models(experience, models, self.asked, proxy_ratio=ratio)

    def gather(self, groups: Sequence[Group], version: int | None = None) -> Experience | None:
        """Flatten a step's groups, with the given texts that the recipe asks for; see `gather`."""
        return gather(groups, version=version, texts=self.texts)

    def credited(
        self,
        experience: Experience,
        known: Inputs | None = None,
        generator: torch.Generator | None = None,
    ) -> Credited:
        """Return the step with the advantage of every token.

        Args:
            experience: the experience of the step.
            known: as `known` returns it; None asks.
            generator: randomness for filters that draw; None uses torch's global generator.

        Raises:
            UpdateRefused: a number is not finite.
        """
        return credit(
            experience,
            self.known(experience) if known is None else known,
            self.algorithm,
            generator=generator,
            weigh=not self.asked.weighs_in_pass,
        )

    def loss_of(self, credited: Credited, version: int | None = None) -> PassLoss:
        """Return the loss of the passes of a step, whose weights have the given version."""
        return PassLoss(
            self.algorithm,
            credited,
            weighs=self.asked.weighs_in_pass,
            bonus=self.entropy.applied,
            version=version,
        )

    def step(self, experience: Experience, *, generator: torch.Generator) -> dict[str, float]:
        """Learn from the experience of a step; an update that is not finite is not made
        (`refusals`).

        Returns:
            Metrics: those of `Learner.update` averaged over the updates, `updates` and `refused`
            (how many were made, and were not), `stopped` (how many `max_kl` left out), `kl_after`
            (nats per token from the policy before the step to that after it) and `share` (the
            least share of an update that `max_kl` kept),
            `zero_advantage` (share of rows without a signal), and those of `movement_numbers`,
            `mean_gap`, `dropped_shares` and `signal_shares`.
        """
        self.refusals = []
        try:
            known = self.known(experience)
            credited = self.credited(experience, known, generator)
        except UpdateRefused as error:
            self._refuse(error, experience, experience.batch)
            return {"refused": 1.0, "updates": 0.0}
        metrics = numbers_of_credit(experience, known, credited, self.algorithm)
        metrics |= self.entropy.begin_step(experience.batch)
        drift: Tensor | None = None
        if self.tracker is not None:
            drift = self.tracker.drift(experience.tasks, self.learner.score)
        loss = self.loss_of(credited, experience.version)
        loss.watched = frozenset(
            number
            for number, episode in enumerate(experience.episodes)
            if episode.ordinal in self.watched
        )
        # The learner's own, also where the ratio of the recipe is to the sampler.
        before = known.old_logp
        metrics |= self._updated(experience, credited, loss, generator, before)
        self.learned = learned_episodes(experience, credited.batch, loss.watched, loss.seen, before)
        movement = movement_numbers(self.learner.gathered(loss.moves))
        for copy in self.moving:
            copy.after_step()
        # The gap of the old policy's scores, if `metrics` has it, takes precedence.
        metrics = mean_gap(self.learner.gathered(loss.gaps)) | metrics
        return metrics | movement | self._remember(experience, credited, drift, before)

    def _updated(
        self,
        experience: Experience,
        credited: Credited,
        loss: PassLoss,
        generator: torch.Generator,
        before: Tensor | None,
    ) -> dict[str, float]:
        """Make the updates of a step; return the metrics."""
        idle = idle_rows(credited, self.algorithm, bonus=self.entropy.applied)
        first, update_metrics = self.learner.updates, list[dict[str, float]]()
        shares = rows_of_updates(credited.batch, self.updates, generator)
        bound = StepBound(
            self.learner.score, credited.batch, torch.arange(len(idle))[~idle], self.max_kl, before
        )
        stopped = 0
        for number, rows in enumerate(shares):
            loss.made = self.learner.updates - first
            # Passes that are computed again, or refused, must not count in the statistics.
            forget = partial(loss.forget_after, len(loss.moves), len(loss.gaps), len(loss.seen))
            passes = UpdatePasses(
                idle=idle,
                together=credited.together,
                entropy=self.asked.entropy_in_pass,
                afresh=forget,
                hold=bound.hold,
            )
            try:
                numbers = self.learner.update(credited.batch, rows, loss, passes)
            except UpdateRefused as error:
                forget()
                self._refuse(error, experience, credited.batch)
                continue
            self.refused_in_a_row = 0
            update_metrics.append(numbers)
            if bound.reached:
                stopped = len(shares) - number - 1
                break
        count = len(update_metrics)
        metrics = {
            name: sum(numbers[name] for numbers in update_metrics) / count
            for name in (update_metrics[0] if update_metrics else ())
        }
        if update_metrics:
            metrics["tokens"] *= count  # of the step, not of an update on average
        if bound.shares:
            metrics |= {"kl_after": bound.divergence, "share": min(bound.shares)}
        return metrics | {
            "zero_advantage": float(idle.float().mean()),
            "updates": float(count),
            "refused": float(len(self.refusals)),
            "stopped": float(stopped),
        }

    def _refuse(self, error: UpdateRefused, experience: Experience, batch: Batch) -> None:
        """Keep the rows and episodes of an update that was not made."""
        self.refused_in_a_row += 1
        rows = torch.tensor(error.rows or range(len(batch)))
        rollouts = experience.rollouts[rows].unique().tolist()
        episodes = [experience.episodes[rollout] for rollout in rollouts]
        refusal = Refusal(str(error), batch.take(rows), episodes)
        if remedy := error.remedy or self._mend_own_loss():
            refusal = replace(refusal, remedy=remedy)
        self.refusals.append(refusal)

    def _mend_own_loss(self) -> str:
        """Return what to do where the loss is a function from outside the library; else ""."""
        name = self.algorithm.loss_fn.name
        is_own = ":" in name
        return f"mend {name} (algorithm.loss), or lower trainer.lr" if is_own else ""

    def _remember(
        self,
        experience: Experience,
        credited: Credited,
        drift: Tensor | None,
        old_logp: Tensor | None,
    ) -> dict[str, float]:
        """Tell the tracker the result of each task, with the old policy's log-probabilities."""
        if self.tracker is None or drift is None:
            return {}
        responses = responses_of(experience, need(old_logp, "old_logp", "sampling.tracker"))
        before = self.tracker.rates(experience.tasks)
        self.tracker.remember(experience.tasks, credited.shaped, drift, responses)
        return {"tracked_rate": float(before.mean()), "tracked_drift": float(drift.mean())}


class EntropyControl:
    """Holds the weight of the entropy bonus, which follows a target where the recipe has one.

    The entropy of a step is estimated from the samples, as the mean of `-logprob` over their
    tokens. Nothing has to be computed for that, and every rank finds the same number.

    Args:
        settings: the recipe's entropy bonus.
    """

    def __init__(self, settings: EntropyBonus) -> None:
        self.settings = settings
        self.coefficient = settings.coefficient
        """The controller's state: the weight that it would apply where the entropy is low."""
        self.applied = settings.coefficient
        """The weight of the bonus in the current step."""

    def begin_step(self, batch: Batch) -> dict[str, float]:
        """Set the weight for the step that learns from `batch`.

        Returns:
            Metrics, where the recipe has a target: `entropy` (nats per token) and
            `entropy_coefficient` (the weight that is applied).
        """
        tokens = float(batch.mask.sum())
        if not self.settings.target or not tokens:
            return {}
        entropy = -float((batch.sampler_logp * batch.mask).sum()) / tokens
        self.coefficient, self.applied = adaptive_entropy_coefficient(
            self.coefficient, entropy, target=self.settings.target, step=self.settings.change
        )
        return {"entropy": entropy, "entropy_coefficient": self.applied}


def numbers_of_credit(
    experience: Experience, known: Inputs, credited: Credited, algorithm: Algorithm
) -> dict[str, float]:
    """Return metrics of a step's credit: the gap from sampler to old policy, the shares that left
    the loss, and the shares with a signal.
    """
    old_logp, overlong = known.old_logp, algorithm.recipe.algorithm.overlong
    gaps = [] if old_logp is None else [gap_of(old_logp, experience.batch, experience.version)]
    return {
        **mean_gap(gaps),
        **dropped_shares(experience, credited, overlong_in_loss=overlong.in_loss),
        **signal_shares(credited.batch),
    }


def dropped_shares(
    experience: Experience, credited: Credited, *, overlong_in_loss: bool
) -> dict[str, float]:
    """Return the shares of the sampled tokens that are not trained, by the first reason that
    applies: `dropped_filter`, `dropped_excluded`, `dropped_overlong`, `dropped_correction`.

    Args:
        experience: the experience of the step.
        credited: the same step with the mask and weights of the loss.
        overlong_in_loss: whether rollouts that a limit cut short are trained.
    """
    kept, trained = credited.kept, credited.batch
    every, rollouts = experience.batch.mask.sum(1), experience.rollouts
    reasons = {"filter": ~kept, "excluded": experience.excluded}
    if not overlong_in_loss:
        reasons["overlong"] = experience.truncated
    remaining, shares = torch.ones_like(kept), dict[str, float]()
    for name, dropped in reasons.items():
        shares[name] = float(every[(remaining & dropped)[rollouts]].sum() / every.sum())
        remaining = remaining & ~dropped
    weights = trained.mask if trained.inputs.weights is None else trained.inputs.weights
    counted = (trained.mask * (weights > 0)).sum()
    shares["correction"] = float((every[remaining[rollouts]].sum() - counted) / every.sum())
    return {f"dropped_{name}": share for name, share in shares.items() if share}


def signal_shares(batch: Batch) -> dict[str, float]:
    """Return the share of trained tokens with an advantage (`signal`), and the share of these whose
    advantage is positive (`positive`).

    Empty where nothing is trained or has an advantage.
    """
    credited = need(batch.inputs.advantages, "advantages", "signal")[batch.mask.bool()]
    if not len(credited):
        return {}
    nonzero = credited[credited != 0]
    shares = {"signal": len(nonzero) / len(credited)}
    return shares | ({"positive": float((nonzero > 0).float().mean())} if len(nonzero) else {})


DEPTHS = {"1k": 0, "4k": 1024, "16k": 4096, "more": 16384}
"""Bins of context place, by the place at which each begins."""
PASS_ROWS = {"1": 1, "8": 2, "64": 9, "more": 65}
"""Bins of the number of rows in the learner's pass, by the fewest of each."""


def gap_of(
    logp: Tensor, batch: Batch, version: int | None = None, rows: int = 0
) -> tuple[float, ...]:
    """Return the summed distance in nats between learner and sampler and the number of tokens, and
    both once more for the tokens that the learner's own version has sampled, and for each of
    `DEPTHS` and of `PASS_ROWS` of these.

    Args:
        logp: [B, T], the learner's log-probabilities before the step's first update.
        batch: the rows.
        version: the version of these weights; None where it is not known, and then no token counts
            as its own.
        rows: rows of the pass that computed `logp`; 0 where it is not known.
    """
    distance, fresh = (logp - batch.sampler_logp).abs() * batch.mask, torch.zeros_like(batch.mask)
    if batch.versions is not None and version is not None:
        fresh = batch.mask * (batch.versions == version)
    starts = torch.tensor(list(DEPTHS.values()), device=fresh.device)
    places = torch.arange(fresh.shape[1], device=fresh.device)
    depth = torch.bucketize(places, starts, right=True) - 1
    sums = [distance.sum(), batch.mask.sum(), (distance * fresh).sum(), fresh.sum()]
    for index in range(len(DEPTHS)):
        within = fresh * (depth == index)
        sums += [(distance * within).sum(), within.sum()]
    shape = sum(rows >= least for least in PASS_ROWS.values())
    for index in range(1, len(PASS_ROWS) + 1):
        sums += [sums[2] * (index == shape), sums[3] * (index == shape)]
    return tuple(float(number) for number in sums)


def mean_gap(gaps: Sequence[tuple[float, ...]]) -> dict[str, float]:
    """Return the mean distance per token as `old_sampler_gap`, and as `fresh_sampler_gap` that of
    the tokens which the learner's own version has sampled, as `sampler_gap_to/DEPTH` those at
    each of `DEPTHS`, and as `sampler_gap_rows/ROWS` those in passes of so many rows; each only
    where something was measured.

    >>> mean_gap([(1.0, 3.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)])
    {'old_sampler_gap': 0.25}
    >>> mean_gap([(1.0, 4.0, 0.5, 1.0, 0.5, 1.0)])
    {'old_sampler_gap': 0.25, 'fresh_sampler_gap': 0.5, 'sampler_gap_to/1k': 0.5}
    """
    # Each tuple is that of `gap_of`: pairs of a sum of distances and a number of tokens.
    columns = [sum(column) for column in zip(*gaps, strict=True)]
    names = (
        *("old_sampler_gap", "fresh_sampler_gap"),
        *(f"sampler_gap_to/{to}" for to in DEPTHS),
        *(f"sampler_gap_rows/{to}" for to in PASS_ROWS),
    )
    pairs = zip(names, columns[::2], columns[1::2], strict=False)
    return {name: distance / tokens for name, distance, tokens in pairs if tokens}


def movement_of(moved: RatioStatistics, batch: Batch, updates: int) -> tuple[float, ...]:
    """Return the ratio and clip statistics of a pass as numbers, the number of updates of the step
    that were made before it, and the tokens they count.
    """
    return (*(float(number) for number in moved), float(updates), float(batch.mask.sum()))


def movement_numbers(moves: Sequence[tuple[float, ...]]) -> dict[str, float]:
    """Return ratio and clip statistics of a step: means over the tokens of all passes, and the
    extremes, so that how rows are split into passes changes nothing. `kl_last` and `clip_last` are
    those of the last update, before which the policy had moved farthest: the first update of a
    step sees no movement, and a mean over few updates hides what the last ones did.

    >>> first = (1.0, 0.5, 2.0, 0.0, 0.0, 0.0, 0.0, 0, 1.0)
    >>> passes = [first, (2.0, 1.5, 4.0, 0.1, 0.2, 0.5, 1.0, 1, 3.0)]
    >>> numbers = movement_numbers(passes)
    >>> numbers["ratio_mean"], numbers["ratio_max"], numbers["kl"], numbers["kl_last"]
    (1.75, 4.0, 0.375, 0.5)
    """
    # A pass without trained tokens has placeholders for its extremes, and does not count.
    counted = [numbers for numbers in moves if numbers[-1]]
    if not counted:
        return {}
    *columns, updates, _ = zip(*counted, strict=True)
    of = dict(zip(RatioStatistics._fields, columns, strict=True))
    last = mean_movement([numbers for numbers in counted if numbers[-2] == max(updates)])
    means = mean_movement(counted)
    return {
        **{name: value for name, value in means.items() if name != "variance"},
        "ratio_variance": means["variance"],
        "ratio_min": min(of["ratio_min"]),
        "ratio_max": max(of["ratio_max"]),
        "kl_last": last["kl"],
        "clip_last": last["clip_low"] + last["clip_high"],
    }


def mean_movement(moves: Sequence[tuple[float, ...]]) -> dict[str, float]:
    """Return the means of `movement_of` over tokens, which all of `moves` have."""
    *columns, _, counts = zip(*moves, strict=True)
    of = dict(zip(RatioStatistics._fields, columns, strict=True))
    return {
        name: sum(value * count for value, count in zip(of[name], counts, strict=True))
        / sum(counts)
        for name in ("ratio_mean", "clip_low", "clip_high", "kl", "variance")
    }
