"""One update of every recipe from its paper's formula, in NumPy float64 and without autograd.

A function takes what a step knows (`PaperStep`) and the mini-batches that are drawn from the groups
its filter keeps, and gives for each update the slope of the loss, dL / dlogp [B, T]. It knows
nothing of `ludus`: means, spreads, clips and their derivatives are written out, each with its
source.

Axes: N rollouts, B rows, T tokens. A rollout is one row, but for SUPO's, which summaries cut into
several; a row's `mask` has holes where a tool spoke.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PaperStep:
    """What is known of a step before and while it learns."""

    rewards: Array
    """[N]."""
    owners: npt.NDArray[np.int64]
    """[B], the rollout of each row."""
    earned: Array
    """[B, T]: the same, each part on the last trained token of the turn that earned it."""
    groups: npt.NDArray[np.int64]
    """[N]."""
    mask: Array
    """[B, T]."""
    truncated: Flags
    """[N]: cut by a limit."""
    sampler: Array
    """[B, T], log-probabilities of the engine."""
    old: Array
    """[B, T], of the learner before the first update."""
    now: Array
    """[B, T], of the learner before this update."""
    proxies: Array
    """[B, T], 1 - 2 p + sum p^2 before the first update."""
    old_values: Array
    """[B, T], before the first update."""
    now_values: Array
    """[B, T], before this update."""
    alpha: Array
    """[N], of the task's success tracker."""
    beta: Array
    """[N], likewise."""
    end_values: Array
    """[N], before the first update: of the state that a limit cut a rollout in; 0 if it ended."""
    max_tokens: float
    mini_batch: Callable[[list[int]], Flags]
    """The groups that are kept, to the rollouts [N] of this update."""

    @property
    def lengths(self) -> Array:
        return self.mask.sum(1)

    def of(self, group: int) -> Flags:
        return self.groups == group

    @property
    def names(self) -> list[int]:
        return [int(one) for one in np.unique(self.groups)]

    def rows(self, kept: Flags, loses: Flags | None = None) -> Array:
        """The mask of this update's mini-batch, [B, T]; `loses` are kept and have no loss."""
        trained = kept if loses is None else kept & ~loses
        names = [g for g in self.names if bool((trained & self.of(g)).any())]
        chosen = self.mini_batch(names) & trained
        return self.mask * chosen[self.owners][:, None]


Slopes = tuple[Array, Array | None]
"""dL / dlogp [B, T], and dL / dvalue [B, T] where there is a value head."""


# --- advantages ----------------------------------------------------------------------------------


def centred(step: PaperStep, r: Array) -> Array:
    """r_i - mean_g."""
    out = np.zeros_like(r)
    for g in step.names:
        mine = step.of(g)
        out[mine] = r[mine] - r[mine].mean()
    return out


def by_group_spread(step: PaperStep, r: Array, eps: float) -> Array:
    """(r_i - mean_g) / (std_g + eps), std with n - 1; equal rewards give 0."""
    out = centred(step, r)
    for g in step.names:
        mine = step.of(g)
        if len(set(r[mine].tolist())) > 1:
            out[mine] /= r[mine].std(ddof=1) + eps
        else:
            out[mine] = 0.0
    return out


def whitened(x: Array, mask: Array) -> Array:
    """(x - mean) / sqrt(var + 1e-8) over the tokens of `mask`, var with n - 1."""
    tokens = x[mask > 0]
    return mask * (x - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)


def differ(step: PaperStep, r: Array) -> Flags:
    """The rollouts of groups whose rewards are not all equal."""
    uneven = [g for g in step.names if len(set(r[step.of(g)].tolist())) > 1]
    return np.isin(step.groups, uneven)


def everyone(step: PaperStep) -> Flags:
    return np.ones(len(step.rewards), dtype=np.bool_)


def overlong(step: PaperStep) -> Array:
    """DAPO, equation 13, with a fifth of the longest response as its cache."""
    cache = 0.2 * step.max_tokens
    free = step.max_tokens - cache
    return np.clip((free - step.lengths) / cache, -1.0, 0.0)


# --- slopes of the surrogates ---------------------------------------------------------------------


def ppo_slope(a: Array, rho: Array, low: float, high: float) -> Array:
    """d/dlogp of -min(rho A, clip(rho, 1 - low, 1 + high) A): -rho A, 0 where the clip rules."""
    stopped = ((a > 0) & (rho > 1 + high)) | ((a < 0) & (rho < 1 - low))
    return np.where(stopped, 0.0, -rho * a)


def dual_slope(a: Array, rho: Array, low: float, high: float, c: float) -> Array:
    """PPO's, and 0 where A < 0 and rho > c."""
    return np.where((a < 0) & (rho > c), 0.0, ppo_slope(a, rho, low, high))


def sequence_slope(step: PaperStep, a: Array, low: float, high: float) -> Array:
    """d/dlogp_t of -min(s A, clip(s) A), s = exp(mean_t log rho): PPO's slope in s, over n."""
    n = np.maximum(step.lengths, 1)
    s = np.exp(((step.now - step.old) * step.mask).sum(1) / n)
    return (ppo_slope(a, s, low, high) / n)[:, None] * np.ones_like(step.mask)


def over_tokens(slope: Array, mask: Array) -> Array:
    """1 / N sum over all tokens of the mini-batch."""
    return slope * mask / mask.sum()


def over_answers(slope: Array, mask: Array) -> Array:
    """1 / B sum_i 1 / n_i sum_t."""
    n = mask.sum(1)
    return slope * mask / np.maximum(n, 1)[:, None] / (n > 0).sum()


def ratio(step: PaperStep) -> Array:
    return np.exp((step.now - step.old) * step.mask)


def column(x: Array) -> Array:
    return x[:, None]


# --- the recipes ----------------------------------------------------------------------------------


def grpo(step: PaperStep) -> Slopes:
    """DeepSeekMath, equation 3 without its KL term, section 4.1.2."""
    a = by_group_spread(step, step.rewards, 1e-6)
    slope = ppo_slope(column(a), ratio(step), 0.2, 0.2)
    return over_answers(slope, step.rows(everyone(step))), None


def gspo(step: PaperStep) -> Slopes:
    """GSPO, equations 5 to 7: the ratio of a sequence, the mean over sequences."""
    a = by_group_spread(step, step.rewards, 1e-6)
    mask = step.rows(everyone(step))
    return sequence_slope(step, a, 3e-4, 4e-4) * mask / (mask.sum(1) > 0).sum(), None


def luspo(step: PaperStep) -> Slopes:
    """TRL, loss_type luspo: GSPO's loss of a sequence times its length, the mean over all rows."""
    a = by_group_spread(step, step.rewards, 1e-4)
    mask = step.rows(everyone(step))
    each = sequence_slope(step, a, 2e-3, 2.5e-3) * column(step.lengths)
    return each * mask / (mask.sum(1) > 0).sum(), None


def cispo(step: PaperStep) -> Slopes:
    """MiniMax-M1, equations 4 and 5: sg[min(rho, 1.28)] A log pi, the token mean."""
    a = by_group_spread(step, step.rewards, 1e-6)
    weight = np.minimum(ratio(step), 1.28)
    return over_tokens(-weight * column(a), step.rows(everyone(step))), None


def minimax_m1(step: PaperStep) -> Slopes:
    """The same, with DAPO's dynamic sampling and length penalty (section 3.1)."""
    a = by_group_spread(step, step.rewards + overlong(step), 1e-6)
    weight = np.minimum(ratio(step), 1.28)
    return over_tokens(-weight * column(a), step.rows(differ(step, step.rewards))), None


def dapo(step: PaperStep) -> Slopes:
    """DAPO, equations 8, 9, 11 (of right answers) and 13; the token mean of its script."""
    a = by_group_spread(step, step.rewards + overlong(step), 1e-6)
    slope = ppo_slope(column(a), ratio(step), 0.2, 0.28)
    return over_tokens(slope, step.rows(differ(step, step.rewards))), None


def dler(step: PaperStep) -> Slopes:
    """dler_slurm.sh: what was cut earns 0, groups without a difference go, then
    reinforce_plus_plus_baseline: centred rewards, whitened over the tokens that are left.
    """
    r = np.where(step.truncated, 0.0, step.rewards)
    kept = differ(step, r)
    a = whitened(column(centred(step, r)) * step.mask, step.mask * column(kept.astype(np.float64)))
    slope = dual_slope(a, ratio(step), 0.2, 0.28, 10.0)
    return over_tokens(slope, step.rows(kept)), None


def dr_grpo(step: PaperStep) -> Slopes:
    """Understanding R1-Zero-like training: no spread; a sum over tokens by one constant length."""
    slope = ppo_slope(column(centred(step, step.rewards)), ratio(step), 0.2, 0.2)
    mask = step.rows(everyone(step))
    return slope * mask / (step.max_tokens * (mask.sum(1) > 0).sum()), None


def rloo(step: PaperStep) -> Slopes:
    """Back to basics: (r_i - mean of the others) times the score of the whole answer."""
    a = np.zeros_like(step.rewards)
    for i, g in enumerate(step.groups):
        others = step.of(int(g)).copy()
        others[i] = False
        a[i] = step.rewards[i] - step.rewards[others].mean()
    mask = step.rows(everyone(step))
    return -column(a) * mask / (mask.sum(1) > 0).sum(), None


def lite_ppo(step: PaperStep) -> Slopes:
    """Tricks or traps: the group's mean, the batch's spread, the token mean."""
    a = centred(step, step.rewards) / (step.rewards.std(ddof=1) + 1e-6)
    slope = ppo_slope(column(a), ratio(step), 0.2, 0.2)
    return over_tokens(slope, step.rows(everyone(step))), None


def reinforce_pp(step: PaperStep) -> Slopes:
    """REINFORCE++: returns-to-go, gamma 1, whitened over all tokens."""
    a = whitened(np.cumsum(step.earned[:, ::-1], axis=1)[:, ::-1] * step.mask, step.mask)
    slope = ppo_slope(a, ratio(step), 0.2, 0.2)
    return over_tokens(slope, step.rows(everyone(step))), None


def ppo(step: PaperStep) -> Slopes:
    """PPO, equations 7 and 11 (gamma 1, lambda .95; a sum that is cut ends in V(s_T)), whitened;
    the value's loss is .5 times half of the worse of two squared errors, the second within .2 of
    the old value.
    """
    advantages, returns = np.zeros_like(step.mask), np.zeros_like(step.mask)
    for i in range(len(step.mask)):
        spots = np.flatnonzero(step.mask[i])
        following, next_value = 0.0, float(step.end_values[i])
        for t in spots[::-1]:
            delta = step.earned[i, t] + next_value - step.old_values[i, t]
            following = delta + 0.95 * following
            advantages[i, t] = following
            next_value = step.old_values[i, t]
        returns[i] = (advantages[i] + step.old_values[i]) * step.mask[i]
    mask = step.rows(everyone(step))
    slope = ppo_slope(whitened(advantages, step.mask), ratio(step), 0.2, 0.2)
    v, before = step.now_values, step.old_values
    held = np.clip(v, before - 0.2, before + 0.2)
    far, near = (v - returns) ** 2, (held - returns) ** 2
    plain = (v - returns) * ((far >= near) | (held == v))
    return over_tokens(slope, mask), over_tokens(0.5 * plain, mask)


def spo(step: PaperStep) -> Slopes:
    """spo_ray_trainer.py: r - alpha / (alpha + beta), normalised over the batch; dual clip 10."""
    a = step.rewards - step.alpha / (step.alpha + step.beta)
    a = (a - a.mean()) / (a.std(ddof=1) + 1e-8)
    slope = dual_slope(column(a), ratio(step), 0.2, 0.28, 10.0)
    return over_tokens(slope, step.rows(everyone(step))), None


def otb(step: PaperStep) -> Slopes:
    """verl, the multi-turn optimal token baseline: B_t = sum_i r_i W_it / sum_i W_it over the rows
    of the group that have a t-th trained token, W_it the proxies summed up to it; beyond the second
    longest row, B = 0.
    """
    a = np.zeros_like(step.mask)
    for g in step.names:
        mine = np.flatnonzero(step.of(g))
        spots = {i: np.flatnonzero(step.mask[i]) for i in mine}
        gathered = {i: np.cumsum(step.proxies[i, spots[i]]) for i in mine}
        runner_up = sorted(len(spots[i]) for i in mine)[-2]
        for k in range(max(len(spots[i]) for i in mine)):
            alive = [i for i in mine if len(spots[i]) > k]
            weight = sum(float(gathered[i][k]) for i in alive)
            total = sum(float(step.rewards[i] * gathered[i][k]) for i in alive)
            base = total / (weight + 1e-8) if k < runner_up else 0.0
            for i in alive:
                a[i, spots[i][k]] = step.rewards[i] - base
    slope = ppo_slope(a, ratio(step), 0.2, 0.2)
    return over_tokens(slope, step.rows(everyone(step))), None


def scale_rl(step: PaperStep) -> Slopes:
    """ScaleRL, the objective of section 4: 0 < mean(r) < 1, A / std of all A that are left,
    sg[min(pi_train / pi_gen, 5)], the token mean of each prompt and the mean over prompts.
    """
    kept = differ(step, step.rewards)
    a = centred(step, step.rewards)
    a = a / (a[kept].std(ddof=1) + 1e-6)
    weight = np.minimum(np.exp((step.now - step.sampler) * step.mask), 5.0)
    mask = step.rows(kept)
    slope = -weight * column(a) * mask
    prompts = [g for g in step.names if mask[step.of(g)].any()]
    for g in prompts:
        slope[step.of(g)] /= mask[step.of(g)].sum() * len(prompts)
    return slope, None


def olmo_rl(step: PaperStep) -> Slopes:
    """open-instruct: centred rewards, min(old / mu, 2) times the clipped surrogate, token mean."""
    a = column(centred(step, step.rewards))
    rho_correction = np.minimum(np.exp((step.old - step.sampler) * step.mask), 2.0)
    slope = rho_correction * ppo_slope(a, ratio(step), 0.2, 0.272)
    return over_tokens(slope, step.rows(differ(step, step.rewards))), None


def supo(step: PaperStep) -> Slopes:
    """SUPO, equations 3 and 4 with its overlong mask: statistics are over rollouts, and every row
    of a rollout has its advantage.
    """
    a = by_group_spread(step, step.rewards, 1e-6)[step.owners]
    slope = ppo_slope(column(a), ratio(step), 0.2, 0.28)
    return over_tokens(slope, step.rows(everyone(step), loses=step.truncated)), None


RECIPES: dict[str, Any] = {
    each.__name__: each
    for each in (
        *(cispo, dapo, dler, dr_grpo, grpo, gspo, lite_ppo, luspo, minimax_m1, olmo_rl, otb, ppo),
        *(reinforce_pp, rloo, scale_rl, spo, supo),
    )
}
