"""Corrections, filters, divergences, aggregations and the remaining surrogates against plain loops
over Python floats, on random cases: values and gradients.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import exp, inf, log, nan, sqrt
from typing import Literal

import pytest
import torch
from torch import Tensor

from ludus.trainer import algorithms as A
from ludus.trainer.algorithms.aggregation import Agg

SEEDS = range(10)
Matrix = list[list[float]]


@dataclass(frozen=True)
class Case:
    """A random batch as lists; masked slots hold what is no number."""

    logp: Matrix
    old: Matrix
    mu: Matrix
    advantages: Matrix
    mask: list[list[int]]
    rewards: list[float]
    groups: list[int]

    @property
    def live(self) -> list[list[int]]:
        """Places of the trained tokens, row by row."""
        return [[t for t, m in enumerate(row) if m] for row in self.mask]

    @property
    def spots(self) -> list[tuple[int, int]]:
        """Every trained token."""
        return [(i, k) for i, live in enumerate(self.live) for k in live]


def make(seed: int) -> Case:
    draw = random.Random(f"case {seed}")
    b, t = draw.randint(2, 7), draw.randint(1, 6)
    mask = [[int(draw.random() < 0.7) for _ in range(t)] for _ in range(b)]
    mask[0] = [0] * t if seed % 3 == 0 else mask[0]
    if not any(map(any, mask)):
        mask[-1][0] = 1

    def matrix(junk: float, low: float = -3.0, high: float = -0.2) -> Matrix:
        return [[draw.uniform(low, high) if m else junk for m in row] for row in mask]

    old = matrix(nan)
    near = [
        [x + draw.uniform(-0.9, 0.9) if m else inf for x, m in zip(xs, ms, strict=True)]
        for xs, ms in zip(old, mask, strict=True)
    ]
    mu = [
        [x + draw.uniform(-0.9, 0.9) if m else -inf for x, m in zip(xs, ms, strict=True)]
        for xs, ms in zip(old, mask, strict=True)
    ]
    return Case(
        logp=near,
        old=old,
        mu=mu,
        advantages=matrix(nan, -2.0, 2.0),
        mask=mask,
        rewards=[float(draw.choice([0, 0, 1, 1, 0.5])) for _ in range(b)],
        groups=[draw.randint(3, 5) for _ in range(b)],
    )


def t(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(found: Tensor, expected: object) -> None:
    torch.testing.assert_close(found, t(expected), rtol=1e-9, atol=1e-9)


def mean(xs: list[float]) -> float:
    return sum(xs) / len(xs) if xs else 0.0


def held(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def grid(case: Case, of: Callable[[int, int], float]) -> Matrix:
    """`of` on trained tokens, 0 elsewhere."""
    return [[of(i, k) if m else 0.0 for k, m in enumerate(row)] for i, row in enumerate(case.mask)]


# --- corrections and filters ----------------------------------------------------------------------


def ratio_at(case: Case, level: str, i: int, k: int) -> float:
    xs = [case.old[i][j] - case.mu[i][j] for j in case.live[i]]
    return exp({"token": case.old[i][k] - case.mu[i][k], "sequence": sum(xs)}.get(level, mean(xs)))


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_importance_weights(level: A.Level) -> None:
    for seed in SEEDS:
        case = make(seed)
        old, mu, mask = t(case.old), t(case.mu), t(case.mask)
        exact = partial(ratio_at, case, level)
        close(A.importance_weights(old, mu, mask, level=level), grid(case, exact))
        tis = grid(case, lambda i, k, of=exact: min(of(i, k), 1.1))
        close(A.tis_weights(old, mu, mask, level=level, cap=1.1), tis)
        both = grid(case, lambda i, k, of=exact: held(of(i, k), 0.8, 1.1))
        close(A.tis_weights(old, mu, mask, level=level, cap=1.1, floor=0.8), both)
        scale = mean([tis[i][k] for i, k in case.spots])
        normal = [[x / scale for x in row] for row in tis]
        close(A.tis_weights(old, mu, mask, level=level, cap=1.1, normalise=True), normal)
        mis = grid(case, lambda i, k, of=exact: of(i, k) if 0.8 <= of(i, k) <= 1.3 else 0.0)
        close(A.mis_weights(old, mu, mask, level=level, low=0.8, high=1.3), mis)


@pytest.mark.parametrize("seed", SEEDS)
def test_filters_of_rows(seed: int) -> None:
    case = make(seed)
    logp, mu, mask = t(case.logp), t(case.mu), t(case.mask)
    xs = [[case.logp[i][k] - case.mu[i][k] for k in live] for i, live in enumerate(case.live)]
    k2 = [max([x * x / 2 for x in row], default=0.0) for row in xs]
    k3 = [mean([exp(x) - 1 - x for x in row]) for row in xs]
    close(A.trust_region_statistic(logp, mu, mask, statistic="max_k2"), k2)
    close(A.trust_region_statistic(logp, mu, mask, statistic="mean_k3"), k3)
    kept = A.trust_region_mask(logp, mu, mask, threshold=0.1)
    assert kept.tolist() == [x <= 0.1 for x in k3]
    kept = A.trust_region_mask(logp, mu, mask, threshold=0.1, statistic="max_k2")
    assert kept.tolist() == [x <= 0.1 for x in k2]
    levels: tuple[tuple[Literal["geometric", "sequence"], Callable[[list[float]], float]], ...]
    levels = (("geometric", mean), ("sequence", sum))
    for level, of in levels:
        band = A.ratio_band_mask(logp, mu, mask, low=0.8, high=1.3, level=level)
        assert band.tolist() == [0.8 <= exp(of(row)) <= 1.3 for row in xs]
    each = [draw_sign(seed, i) for i in range(len(xs))]
    dropped = [a < 0 and -mean(row) > 0.05 for a, row in zip(each, xs, strict=True)]
    assert A.opsm_mask(logp, mu, t(each), mask, delta=0.05).tolist() == [not x for x in dropped]


def draw_sign(seed: int, i: int) -> float:
    return random.Random(f"{seed}/{i}").choice([-1.0, 1.0])


@pytest.mark.parametrize("seed", SEEDS)
def test_filters_of_tokens(seed: int) -> None:
    case = make(seed)
    draw = random.Random(seed)
    logp, mu, mask = t(case.logp), t(case.mu), t(case.mask)

    def moved_too_far(i: int, k: int) -> bool:
        moved, a = exp(case.logp[i][k]) - exp(case.mu[i][k]), case.advantages[i][k]
        return (a > 0 and moved > 0.05) or (a < 0 and -moved > 0.05)

    found = A.dppo_mask(logp, mu, t(case.advantages), mask, delta=0.05)
    assert found.tolist() == grid(case, lambda i, k: float(not moved_too_far(i, k)))
    entropy = [[draw.uniform(0, 0.6) for _ in row] for row in case.mask]
    sure = [
        case.rewards[i] >= 1 and mean([entropy[i][k] for k in live]) < 0.3
        for i, live in enumerate(case.live)
    ]
    found = A.mpt_mask(logp, t(case.rewards), t(entropy), mask, sigma=0.3, probability=0.2)
    expected = grid(case, lambda i, k: float(not (sure[i] and exp(case.logp[i][k]) >= 0.2)))
    assert found.tolist() == expected
    low = A.spo_probability_mask(t(case.old), mask, threshold=0.3)
    assert low.tolist() == grid(case, lambda i, k: float(exp(case.old[i][k]) < 0.3))


# --- divergence, entropy, value, aggregation ------------------------------------------------------

KLS: dict[str, Callable[[float], float]] = {
    "k1": lambda x: x,
    "k2": lambda x: x * x / 2,
    "k3": lambda x: exp(-x) - 1 + x,
}


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("weighted", [False, True])
def test_divergences(estimator: A.Estimator, weighted: bool) -> None:
    of = KLS[estimator]
    for seed in SEEDS:
        case = make(seed)
        old = t(case.old) if weighted else None
        find = partial(A.kl, t(case.logp), t(case.mu), t(case.mask), old_logp=old)

        def value(i: int, k: int, case: Case = case, clamp: float = inf, top: float = inf) -> float:
            x = held(case.logp[i][k] - case.mu[i][k], -clamp, clamp)
            ratio = exp(case.logp[i][k] - case.old[i][k]) if weighted else 1.0
            return ratio * held(of(x), -top, top)

        close(find(estimator=estimator), grid(case, value))
        clamped = grid(case, partial(value, clamp=0.4, top=0.05))
        close(find(estimator=estimator, max_log_ratio=0.4, max_value=0.05), clamped)


@pytest.mark.parametrize("seed", SEEDS)
def test_straight_through_divergence_has_the_value_of_k3_and_the_gradient_of_k2(seed: int) -> None:
    case = make(seed)
    logp = t(case.logp).requires_grad_()
    total, _ = A.kl_loss(logp, t(case.mu), t(case.mask), estimator="k3+")
    (gradient,) = torch.autograd.grad(total, logp)
    close(total.detach(), sum(KLS["k3"](case.logp[i][k] - case.mu[i][k]) for i, k in case.spots))
    close(gradient, grid(case, lambda i, k: case.logp[i][k] - case.mu[i][k]))
    # a detached ratio multiplies the gradient, and has none of its own
    logp = t(case.logp).requires_grad_()
    total, _ = A.kl_loss(
        logp, t(case.mu), t(case.mask), estimator="k2", old_logp=t(case.old), detach_ratio=True
    )
    (gradient,) = torch.autograd.grad(total, logp)

    def expected(i: int, k: int) -> float:
        return exp(case.logp[i][k] - case.old[i][k]) * (case.logp[i][k] - case.mu[i][k])

    close(gradient, grid(case, expected))


@pytest.mark.parametrize("seed", SEEDS)
def test_entropy_and_log_probabilities_of_logits(seed: int) -> None:
    draw = random.Random(seed)
    rows = [[draw.uniform(-3, 3) for _ in range(5)] for _ in range(3)]
    actions = [draw.randrange(5) for _ in rows]
    temperature = 0.7
    p = [[exp(z / temperature) for z in row] for row in rows]
    p = [[x / sum(row) for x in row] for row in p]
    logits = t(rows).requires_grad_()
    found = A.entropy_from_logits(logits, temperature=temperature)
    close(found.detach(), [-sum(x * log(x) for x in row) for row in p])
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    # dH/dz_a = -p_a (ln p_a + H) / temperature
    h = [-sum(x * log(x) for x in row) for row in p]
    close(gradient, [[-x * (log(x) + h[i]) / temperature for x in row] for i, row in enumerate(p)])
    taken = A.logp_from_logits(t(rows), torch.tensor(actions), temperature=temperature)
    close(taken, [log(row[a]) for row, a in zip(p, actions, strict=True)])
    proxy = A.logit_gradient_proxy(taken, t(rows), temperature=temperature)
    norms = [
        sum(((j == a) - x) ** 2 for j, x in enumerate(row))
        for row, a in zip(p, actions, strict=True)
    ]
    close(proxy, norms)


@pytest.mark.parametrize("clip", [None, 0.2])
def test_value_loss(clip: float | None) -> None:
    for seed in SEEDS:
        case = make(seed)
        values = t(case.logp).requires_grad_()
        loss = A.value_loss(values, t(case.old), t(case.mu), t(case.mask), value_clip=clip)

        def one(i: int, k: int, v: float, case: Case = case) -> float:
            ret, old = case.mu[i][k], case.old[i][k]
            bound = v if clip is None else held(v, old - clip, old + clip)
            return max((v - ret) ** 2, (bound - ret) ** 2) / 2

        expected = mean([one(i, k, case.logp[i][k]) for i, k in case.spots])
        close(A.divide(*loss).detach(), expected)
        (gradient,) = torch.autograd.grad(loss[0], values)

        def slope(i: int, k: int, one: Callable[..., float] = one, case: Case = case) -> float:
            at, h = case.logp[i][k], 1e-6
            return (one(i, k, at + h) - one(i, k, at - h)) / (2 * h)

        torch.testing.assert_close(gradient, t(grid(case, slope)), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_aggregations(seed: int) -> None:
    case = make(seed)
    losses, mask, groups = case.advantages, case.mask, torch.tensor(case.groups)
    sums = [sum(losses[i][k] for k in live) for i, live in enumerate(case.live)]
    n = [len(live) for live in case.live]
    alive = [i for i, count in enumerate(n) if count]
    means = [sums[i] / n[i] if n[i] else 0.0 for i in range(len(n))]
    prompts = {g: [i for i in alive if case.groups[i] == g] for g in case.groups}
    by_prompt = [sum(sums[i] for i in r) / sum(n[i] for i in r) for r in prompts.values() if r]
    expected: list[tuple[Agg, float]] = [
        ("token_mean", sum(sums) / sum(n)),
        ("sequence_mean", sum(means) / len(alive)),
        ("sequence_mean_all_rows", sum(means) / len(n)),
        ("sequence_sum", sum(sums) / len(alive)),
        ("sequence_sum_all_rows", sum(sums) / len(n)),
        (partial(A.fixed_length, length=7), sum(sums) / (7 * len(n))),
        (partial(A.fixed_length, length=7, rows="live"), sum(sums) / (7 * len(alive))),
        (partial(A.fixed_length, length=7, rows="one"), sum(sums) / 7),
        (partial(A.prompt_mean, groups=groups), mean(by_prompt)),
    ]
    for agg, value in expected:
        close(A.divide(*A.aggregate(t(losses), t(mask), agg)), value)


# --- surrogates -----------------------------------------------------------------------------------

Scalar = Callable[[Case, Matrix], float]


def token_mean(case: Case, of: Callable[[int, int], float]) -> float:
    return mean([of(i, k) for i, k in case.spots])


def reinforce(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        weight = min(exp(case.old[i][k] - case.mu[i][k]), 1.2)
        return -weight * case.advantages[i][k] * lp[i][k]

    return token_mean(case, one)


def vespo(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        w = exp(sum(case.logp[i][j] - case.old[i][j] for j in case.live[i]))
        power, fall = (1.5, 0.7) if case.advantages[i][k] >= 0 else (2.5, 0.4)
        return -exp(fall) * w**power * exp(-fall * w) * case.advantages[i][k] * lp[i][k]

    return token_mean(case, one)


def covariance(case: Case, i: int, k: int) -> float:
    a = mean([case.advantages[x][y] for x, y in case.spots])
    m = mean([case.logp[x][y] for x, y in case.spots])
    return (case.advantages[i][k] - a) * (case.logp[i][k] - m)


def kl_cov(case: Case, lp: Matrix) -> float:
    ranked = sorted(case.spots, key=lambda spot: -covariance(case, *spot))
    chosen = ranked[: max(1, int(0.3 * len(ranked)))]

    def one(i: int, k: int) -> float:
        x = lp[i][k] - case.old[i][k]
        return -case.advantages[i][k] * exp(x) + (0.4 * abs(x) if (i, k) in chosen else 0.0)

    return token_mean(case, one)


def kimi_k25(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        x = lp[i][k] - case.old[i][k]
        return -case.advantages[i][k] * exp(x) + 0.3 * x * x

    return token_mean(case, one)


def entropies(case: Case) -> Matrix:
    draw = random.Random(f"{case.groups} entropies")
    return [[draw.uniform(0.05, 2.0) for _ in row] for row in case.mask]


def hapo(case: Case, lp: Matrix) -> float:
    h = entropies(case)
    logs = sorted(log(h[i][k]) for i, k in case.spots)
    pivot = logs[round(0.8 * (len(logs) - 1))]
    raw = {(i, k): log(h[i][k]) - pivot for i, k in case.spots}
    size = sqrt(max(mean([x * x for x in raw.values()]), 1e-8))
    raw = {spot: x / size for spot, x in raw.items()}
    top = max([x for x in raw.values() if x > 0], default=1e-8)
    bottom = max([-x for x in raw.values() if x < 0], default=1e-8)

    def one(i: int, k: int) -> float:
        z = raw[i, k] / top if raw[i, k] > 0 else raw[i, k] / bottom
        low = 0.2 * (1 - 0.9 * z) if z <= 0 else 0.2
        high = 0.3 * (1 + 0.9 * z) if z > 0 else 0.3
        now, ratio = exp(case.logp[i][k] - case.old[i][k]), exp(lp[i][k] - case.old[i][k])
        inside = 1 - low / 2 < now < 1 + high / 2
        counts = (z > 0 and not inside) or (z <= 0 and inside)
        a = case.advantages[i][k] * (1 + 0.8 * z if counts else 1.0)
        return max(-a * ratio, -a * held(ratio, 1 - low, 1 + high))

    return token_mean(case, one)


def given(name: str, case: Case, logp: Tensor) -> A.Sum:
    old, a, mask = t(case.old), t(case.advantages), t(case.mask)
    if name == "reinforce":
        return A.reinforce_loss(
            logp, a, mask, weights=A.tis_weights(old, t(case.mu), mask, cap=1.2)
        )
    if name == "vespo":
        return A.vespo_loss(logp, old, a, mask, k_pos=1.5, lam_pos=0.7, k_neg=2.5, lam_neg=0.4)
    if name == "kl_cov":
        marked = A.covariance_mask(logp, a, mask, share=0.3)
        return A.kl_cov_loss(logp, old, a, mask, coefficient=0.4, marked=marked)
    if name == "kimi_k25":
        return A.kimi_k25_loss(logp, old, a, mask, tau=0.3)
    return A.hapo_loss(logp, old, t(entropies(case)), a, mask, eps_high=0.3, alpha=0.9, beta=0.8)


LOSSES: dict[str, Scalar] = {
    "reinforce": reinforce,
    "vespo": vespo,
    "kl_cov": kl_cov,
    "kimi_k25": kimi_k25,
    "hapo": hapo,
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name: str) -> None:
    scalar = LOSSES[name]
    for seed in SEEDS:
        case = make(seed)
        logp = t(case.logp).requires_grad_()
        loss = A.divide(*given(name, case, logp))
        close(loss.detach(), scalar(case, case.logp))
        (gradient,) = torch.autograd.grad(loss, logp)

        def slope(i: int, k: int, case: Case = case) -> float:
            up, down = ([list(row) for row in case.logp] for _ in range(2))
            up[i][k], down[i][k] = up[i][k] + 1e-6, down[i][k] - 1e-6
            return (scalar(case, up) - scalar(case, down)) / 2e-6

        torch.testing.assert_close(gradient, t(grid(case, slope)), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_clip_cov_leaves_out_tokens_of_the_band_that_ppo_does_not_clip(seed: int) -> None:
    case = make(seed)
    low, high = 0.05, 1.0

    def possible(i: int, k: int) -> bool:
        a, ratio = case.advantages[i][k], exp(case.logp[i][k] - case.old[i][k])
        clipped = -a * held(ratio, 0.8, 1.2) > -a * ratio
        return low < covariance(case, i, k) < high and not clipped

    tensors = (t(case.logp), t(case.old), t(case.advantages), t(case.mask))
    every = A.clip_cov_mask(*tensors, share=1.0, low=low, high=high)
    assert every.tolist() == grid(case, lambda i, k: float(not possible(i, k)))
    candidates = sum(possible(i, k) for i, k in case.spots)
    generator = torch.Generator().manual_seed(seed)
    one = A.clip_cov_mask(*tensors, low=low, high=high, generator=generator)
    assert len(case.spots) - int(one.sum()) == min(candidates, 1)
    assert bool((one | ~every)[t(case.mask).bool()].any()) == bool(case.spots)
