"""Random cases against plain loops over Python floats: values of estimators, values and gradients
of losses.

The cases have holes in the mask, rows without a trained token, groups of one and garbage in masked
slots.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log, nan, sqrt

import pytest
import torch
from torch import Tensor

from ludus.trainer import algorithms as A

SEEDS = range(12)
Matrix = list[list[float]]


@dataclass(frozen=True)
class Case:
    """A random batch as lists; `t` makes a tensor of any of them."""

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


def make(seed: int, *, constant: bool = False) -> Case:
    draw = random.Random(seed)
    b, t = draw.randint(2, 7), draw.randint(1, 7)
    mask = [[int(draw.random() < 0.7) for _ in range(t)] for _ in range(b)]
    if seed % 3 == 0:
        mask[0] = [0] * t
    if not any(map(any, mask)):
        mask[-1][0] = 1

    # what stands in a masked slot must not matter, even where it is no number
    def matrix(junk: float) -> Matrix:
        return [[draw.uniform(-3.0, -0.2) if m else junk for m in row] for row in mask]

    old = matrix(nan)
    logp = [
        [x + draw.uniform(-0.8, 0.8) if m else 7.0 for x, m in zip(xs, ms, strict=True)]
        for xs, ms in zip(old, mask, strict=True)
    ]
    each = [draw.choice([-1.5, -0.5, 0.75, 2.0]) for _ in range(b)]
    advantages = [
        [each[i] if constant else draw.uniform(-2, 2) for _ in range(t)] for i in range(b)
    ]
    return Case(
        logp=logp,
        old=old,
        mu=matrix(-inf),
        advantages=advantages,
        mask=mask,
        rewards=[float(draw.choice([0, 0, 1, 1, 0.25])) for _ in range(b)],
        groups=[draw.randint(0, 2) for _ in range(b)],
    )


def t(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(found: Tensor, expected: object) -> None:
    torch.testing.assert_close(found, t(expected), rtol=1e-9, atol=1e-9)


def members(case: Case, i: int) -> list[int]:
    return [j for j, g in enumerate(case.groups) if g == case.groups[i]]


def mean(xs: list[float]) -> float:
    return sum(xs) / len(xs)


def std(xs: list[float], ddof: int) -> float:
    m = mean(xs)
    return sqrt(sum((x - m) ** 2 for x in xs) / (len(xs) - ddof)) if len(xs) > ddof else 0.0


# --- advantages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_group_estimators(seed: int) -> None:
    case = make(seed)
    r, g = t(case.rewards), torch.tensor(case.groups)
    n = [sum(row) for row in case.mask]
    groups = [[case.rewards[j] for j in members(case, i)] for i in range(len(n))]
    centred = [x - mean(xs) for x, xs in zip(case.rewards, groups, strict=True)]

    def over(xs: list[float], c: float, ddof: int, eps: float) -> float:
        return 0.0 if len(set(xs)) == 1 else c / (std(xs, ddof) + eps)

    close(A.dr_grpo_advantages(r, g), centred)
    for ddof, eps in ((1, 1e-6), (0, 1e-4)):
        expected = [over(xs, c, ddof, eps) for xs, c in zip(groups, centred, strict=True)]
        close(A.grpo_advantages(r, g, ddof=ddof, eps=eps), expected)
    raw = [
        x if len(xs) == 1 else over(xs, c, 1, 0.0)
        for x, xs, c in zip(case.rewards, groups, centred, strict=True)
    ]
    close(A.grpo_advantages(r, g, eps=0.0, singleton="raw"), raw)
    loo = [
        0.0 if len(xs) == 1 else x - (sum(xs) - x) / (len(xs) - 1)
        for x, xs in zip(case.rewards, groups, strict=True)
    ]
    close(A.rloo_advantages(r, g), loo)
    spread = std(case.rewards, 1) + 1e-6
    close(A.lite_ppo_advantages(r, g), [c / spread for c in centred])
    spread = std(centred, 1) + 1e-6
    close(A.lite_ppo_advantages(r, g, std_of="centred"), [c / spread for c in centred])


@pytest.mark.parametrize("seed", SEEDS)
def test_length_weighted_baselines(seed: int) -> None:
    case = make(seed)
    n = [sum(row) for row in case.mask]
    opo, hapo = [], []
    for i, r in enumerate(case.rewards):
        js = members(case, i)
        total = sum(n[j] for j in js)
        m = (
            sum(n[j] * case.rewards[j] for j in js) / total
            if total
            else mean([case.rewards[j] for j in js])
        )
        opo.append(0.0 if len(js) == 1 else r - m)
        var = sum(n[j] * (case.rewards[j] - m) ** 2 for j in js) / total if total else 0.0
        hapo.append((r - m) / (sqrt(var) + 1e-6) if var > 1e-18 and n[i] else 0.0)
    r, g, lengths = t(case.rewards), torch.tensor(case.groups), torch.tensor(n)
    close(A.opo_advantages(r, g, lengths), opo)
    close(A.hapo_advantages(r, g, lengths, fallback=None), hapo)


@pytest.mark.parametrize("seed", SEEDS)
def test_gae_returns_and_whitening(seed: int) -> None:
    case = make(seed)
    draw = random.Random(f"values {seed}")
    r = [[draw.uniform(-1, 1) for _ in row] for row in case.mask]
    v = [[draw.uniform(-1, 1) for _ in row] for row in case.mask]
    gamma, lam = 0.9, 0.8
    width = len(case.mask[0])
    skip = [[0.0] * width for _ in r]
    step = [[0.0] * width for _ in r]
    egae = [[0.0] * width for _ in r]
    go = [[0.0] * width for _ in r]
    cut = [i % 2 == 0 for i in range(len(r))]
    for i, live in enumerate(case.live):
        for mine, truncated in ((skip, False), (egae, cut[i])):
            following, a = (v[i][live[-1]] if truncated and live else 0.0), 0.0
            for k in reversed(live):
                a = r[i][k] + gamma * following - v[i][k] + gamma * lam * a
                following, mine[i][k] = v[i][k], a
        following, a = 0.0, 0.0
        for k in reversed(range(live[-1] + 1 if live else 0)):
            here = v[i][k] if case.mask[i][k] else 0.0
            a = (r[i][k] if case.mask[i][k] else 0.0) + gamma * following - here + gamma * lam * a
            following, step[i][k] = here, a if case.mask[i][k] else 0.0
        total = 0.0
        for k in reversed(live):
            total = r[i][k] + gamma * total
            go[i][k] = total
    mask = t(case.mask)
    close(A.gae_advantages(t(r), t(v), mask, gamma=gamma, lam=lam)[0], skip)
    close(A.gae_advantages(t(r), t(v), mask, gamma=gamma, lam=lam, holes="step")[0], step)
    close(A.egae_advantages(t(r), t(v), mask, torch.tensor(cut), gamma=gamma, lam=lam)[0], egae)
    close(A.returns_to_go(t(r), mask, gamma=gamma), go)
    flat = [go[i][k] for i, live in enumerate(case.live) for k in live]
    m, var = mean(flat), std(flat, 1) ** 2
    white = [
        [(x - m) / sqrt(var + 1e-8) if c else 0.0 for x, c in zip(xs, cs, strict=True)]
        for xs, cs in zip(go, case.mask, strict=True)
    ]
    close(A.reinforce_pp_advantages(t(r), mask, gamma=gamma), white)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("zero_tail", [False, True])
def test_optimal_token_baseline(seed: int, zero_tail: bool) -> None:
    # right padded, so that slots and trained tokens are the same
    draw = random.Random(seed)
    b, width = draw.randint(2, 6), 5
    n = [draw.randint(0, width) for _ in range(b)]
    groups = [draw.randint(0, 1) for _ in range(b)]
    rewards = [draw.random() for _ in range(b)]
    g = [[draw.uniform(0.01, 1) for _ in range(width)] for _ in range(b)]
    w = [[draw.uniform(0.5, 2) for _ in range(width)] for _ in range(b)]
    expected = [[0.0] * width for _ in range(b)]
    for i in range(b):
        js = [j for j in range(b) if groups[j] == groups[i]]
        longest = sorted((n[j] for j in js), reverse=True)
        for k in range(n[i]):
            alive = [j for j in js if n[j] > k]
            gathered = {j: sum(g[j][q] * w[j][q] ** 2 for q in range(k + 1)) for j in alive}
            base = sum(rewards[j] * gathered[j] for j in alive) / (sum(gathered.values()) + 1e-8)
            tail = zero_tail and len(js) > 1 and k >= longest[1]
            expected[i][k] = rewards[i] - (0.0 if len(js) == 1 or tail else base)
    mask = t([[int(k < m) for k in range(width)] for m in n])
    found = A.otb_advantages(
        t(rewards), torch.tensor(groups), mask, t(g), weights=t(w), zero_tail=zero_tail
    )
    close(found, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_trees(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.randint(1, 12)
    # children may come before their parents
    order = list(range(size))
    draw.shuffle(order)
    parents = [-1] * size
    for place in range(1, size):
        parents[order[place]] = order[draw.randrange(place)]
    rewards = [float(draw.choice([0, 1, 0.5])) for _ in range(size)]
    children = {i: [j for j in range(size) if parents[j] == i] for i in range(size)}

    def leaves(i: int) -> list[int]:
        return [leaf for j in children[i] for leaf in leaves(j)] if children[i] else [i]

    def value(i: int, r: list[float]) -> float:
        return mean([value(j, r) for j in children[i]]) if children[i] else r[i]

    def compared(i: int, drop: bool, flat: bool) -> float:
        top = weight = 0.0
        h = i
        while h >= 0:
            below = [rewards[j] for j in leaves(h)]
            if not (drop and len(set(below)) == 1):
                share = 1.0 if flat else float(len(below))
                top, weight = top + share * (rewards[i] - mean(below)), weight + share
            h = parents[h]
        return top / weight if weight and not children[i] else 0.0

    p = torch.tensor(parents)
    close(A.tree_values(t(rewards), p), [value(i, rewards) for i in range(size)])
    for drop in (False, True):
        for flat in (False, True):
            expected = [compared(i, drop, flat) for i in range(size)]
            weigh = "one" if flat else "size"
            close(
                A.treepo_leaf_rewards(t(rewards), p, weigh_by=weigh, drop_constant=drop), expected
            )
    leaf = [compared(i, False, False) for i in range(size)]
    above = [
        value(i, leaf) - value(parents[i], leaf) if parents[i] >= 0 else 0.0 for i in range(size)
    ]
    close(A.treepo_advantages(t(rewards), p), above)


# --- losses: value and gradient -------------------------------------------------------------------

Scalar = Callable[[Case, Matrix], float]
"""The loss as a function of log-probabilities, with what is detached taken from `case.logp`."""


def token_mean(case: Case, of: Callable[[int, int], float]) -> float:
    spots = [(i, k) for i, live in enumerate(case.live) for k in live]
    return sum(of(i, k) for i, k in spots) / len(spots)


def row_mean(case: Case, of: Callable[[int, int], float]) -> float:
    live = [(i, ks) for i, ks in enumerate(case.live) if ks]
    return sum(sum(of(i, k) for k in ks) / len(ks) for i, ks in live) / len(live)


def held(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def pessimistic(a: float, ratio: float, low: float, high: float) -> float:
    return max(-a * ratio, -a * held(ratio, low, high))


def rho(case: Case, lp: Matrix, i: int, k: int) -> float:
    return exp(lp[i][k] - case.old[i][k])


def s(case: Case, lp: Matrix, i: int) -> float:
    ks = case.live[i]
    return exp(sum(lp[i][k] - case.old[i][k] for k in ks) / len(ks))


def ppo(case: Case, lp: Matrix) -> float:
    return token_mean(
        case, lambda i, k: pessimistic(case.advantages[i][k], rho(case, lp, i, k), 0.9, 1.3)
    )


def dual(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        a = case.advantages[i][k]
        plain = pessimistic(a, rho(case, lp, i, k), 0.8, 1.2)
        return min(plain, -a * 1.5) if a < 0 else plain

    return token_mean(case, one)


def two_sided(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        a, x = case.advantages[i][k], rho(case, lp, i, k)
        return max(-a * min(x, 1.6), -a * held(x, 0.8, 1.2))

    return token_mean(case, one)


def cispo(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        return -held(rho(case, case.logp, i, k), 0.7, 1.28) * case.advantages[i][k] * lp[i][k]

    return token_mean(case, one)


def minpro(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        before = [rho(case, case.logp, i, j) for j in case.live[i] if j < k]
        c = held(min(before, default=1.0) * rho(case, case.logp, i, k), 0.0, 1.4)
        return -c * case.advantages[i][k] * lp[i][k]

    return token_mean(case, one)


def topr(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        c = 1.0 if case.rewards[i] > 0 else min(rho(case, case.logp, i, k), 1.0)
        return -c * case.advantages[i][k] * lp[i][k]

    return token_mean(case, one)


def topr_whole(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        product = exp(sum(case.logp[i][j] - case.old[i][j] for j in case.live[i]))
        c = 1.0 if case.rewards[i] > 0 else min(product, 1.0)
        return -c * case.advantages[i][k] * lp[i][k]

    return token_mean(case, one)


def minirl(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        a, x = case.advantages[i][k], rho(case, case.logp, i, k)
        if (a > 0 and x > 1.2) or (a < 0 and x < 0.8):
            return 0.0
        return -exp(case.logp[i][k] - case.mu[i][k]) * a * lp[i][k]

    return token_mean(case, one)


def decoupled(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        w = min(exp(case.old[i][k] - case.mu[i][k]), 1.5)
        return w * pessimistic(case.advantages[i][k], rho(case, lp, i, k), 0.8, 1.2)

    return token_mean(case, one)


def gspo(case: Case, lp: Matrix) -> float:
    return row_mean(
        case, lambda i, k: pessimistic(case.advantages[i][k], s(case, lp, i), 0.95, 1.1)
    )


def luspo(case: Case, lp: Matrix) -> float:
    rows = [
        sum(pessimistic(case.advantages[i][k], s(case, lp, i), 0.95, 1.1) for k in ks)
        for i, ks in enumerate(case.live)
        if ks
    ]
    return sum(rows) / len(case.mask)


def gmpo(case: Case, lp: Matrix) -> float:
    def whole(i: int) -> float:
        xs = []
        for k in case.live[i]:
            x, sign = lp[i][k] - case.old[i][k], 1 if case.advantages[i][k] > 0 else -1
            xs.append(sign * min(sign * x, sign * held(x, -0.3, 0.4)))
        return exp(mean(xs))

    return row_mean(case, lambda i, k: -case.advantages[i][k] * whole(i))


def sapo(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        a = case.advantages[i][k]
        tau = 1.0 if a > 0 else 1.05
        return -a * 4 / tau / (1 + exp(-tau * (rho(case, lp, i, k) - 1)))

    return row_mean(case, one)


def lp_reg(case: Case, lp: Matrix) -> float:
    negative = sorted(
        (case.logp[i][k], i, k)
        for i, live in enumerate(case.live)
        for k in live
        if case.advantages[i][k] < 0
    )
    count = int(len(negative) * 0.5)
    chosen = {(i, k) for _, i, k in negative[:count]} if count >= 2 else set()

    def one(i: int, k: int) -> float:
        a, x = case.advantages[i][k], rho(case, lp, i, k)
        d = case.mu[i][k] - lp[i][k]
        if (i, k) in chosen and case.logp[i][k] < case.mu[i][k]:
            return -a * x + 0.7 * (exp(d) - 1 - d)
        return pessimistic(a, x, 0.0, 1.5)

    return token_mean(case, one)


def kimi(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        return -case.advantages[i][k] * lp[i][k] + 0.15 * (lp[i][k] - case.old[i][k]) ** 2

    return token_mean(case, one)


def pacs(case: Case, lp: Matrix) -> float:
    scores = [sum(lp[i][k] - case.old[i][k] for k in live) for i, live in enumerate(case.live)]
    losses = []
    for i, r in enumerate(case.rewards):
        others = [scores[j] for j in members(case, i) if j != i]
        psi = scores[i] - mean(others) if others else 0.0
        losses.append(r * log(1 + exp(-psi)) + (1 - r) * log(1 + exp(psi)))
    return mean(losses)


def rover(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        later = [j for j in case.live[i] if j > k]
        following = 1.3 * (case.logp[i][later[0]] - case.old[i][later[0]]) if later else 0.0
        return (1.3 * (lp[i][k] - case.old[i][k]) - case.advantages[i][k] - following) ** 2

    return token_mean(case, one)


def k2(case: Case, lp: Matrix) -> float:
    return 0.1 * token_mean(case, lambda i, k: (lp[i][k] - case.mu[i][k]) ** 2 / 2)


def k3_weighted(case: Case, lp: Matrix) -> float:
    def one(i: int, k: int) -> float:
        x = lp[i][k] - case.mu[i][k]
        return rho(case, lp, i, k) * (exp(-x) - 1 + x)

    return token_mean(case, one)


def drpo(case: Case, lp: Matrix) -> float:
    total, count = 0.0, 0
    for g in set(case.groups):
        js = [j for j in range(len(case.groups)) if case.groups[j] == g and case.live[j]]
        right, wrong = (
            [j for j in js if case.rewards[j] > 0],
            [j for j in js if case.rewards[j] <= 0],
        )
        if not right or not wrong:
            continue
        score = {j: mean([lp[j][k] for k in case.live[j]]) for j in js}
        weight = {j: exp((1 - len(case.live[j]) / 9) / 0.5) for j in right}
        z = sum(weight.values())
        bad = 2.0 * log(mean([exp(score[j] / 2.0) for j in wrong]))
        total += bad - sum(weight[j] / z * score[j] for j in right)
        count += 1
    return total / count if count else 0.0


LOSSES: dict[str, tuple[Callable[..., tuple[Tensor, Tensor]], Scalar, dict[str, object], bool]] = {
    "ppo": (A.ppo_clip_loss, ppo, {"eps_low": 0.1, "eps_high": 0.3}, False),
    "dual": (A.dual_clip_loss, dual, {"dual_clip": 1.5}, False),
    "two_sided": (A.two_sided_clip_loss, two_sided, {"delta": 1.6}, False),
    "cispo": (A.cispo_loss, cispo, {"eps_low": 0.3, "eps_high": 0.28}, False),
    "minpro": (A.minpro_loss, minpro, {"eps_high": 0.4}, False),
    "topr": (A.topr_loss, topr, {}, False),
    "topr_whole": (A.topr_loss, topr_whole, {"ratio": "sequence"}, False),
    "minirl": (A.minirl_loss, minirl, {}, False),
    "decoupled": (A.decoupled_ppo_loss, decoupled, {"cap": 1.5}, False),
    "gspo": (A.gspo_loss, gspo, {"eps_low": 0.05, "eps_high": 0.1}, True),
    "gspo_token": (A.gspo_token_loss, gspo, {"eps_low": 0.05, "eps_high": 0.1}, True),
    "luspo": (A.luspo_loss, luspo, {"eps_low": 0.05, "eps_high": 0.1}, True),
    "gmpo": (A.gmpo_loss, gmpo, {"eps_low": 0.3, "eps_high": 0.4}, True),
    "sapo": (A.sapo_loss, sapo, {}, False),
    "lp_reg": (A.lp_reg_loss, lp_reg, {"eps_high": 0.5, "beta": 0.7}, False),
    "kimi": (A.kimi_loss, kimi, {"tau": 0.3}, False),
    "pacs": (A.pacs_loss, pacs, {}, False),
    "rover": (A.rover_loss, rover, {"temperature": 1.3}, False),
    "k2": (A.kl_loss, k2, {"estimator": "k2", "coefficient": 0.1}, False),
    "k3_weighted": (A.kl_loss, k3_weighted, {"estimator": "k3"}, False),
    "drpo": (A.drpo_loss, drpo, {"max_length": 9, "lam": 0.5, "tau": 2.0}, False),
}


def arguments(name: str, case: Case, logp: Tensor) -> dict[str, object]:
    every: dict[str, object] = {
        "logp": logp,
        "old_logp": t(case.old),
        "sampler_logp": t(case.mu),
        "ref_logp": t(case.mu),
        "proxy_logp": t(case.mu),
        "advantages": t(case.advantages),
        "mask": t(case.mask),
        "rewards": t(case.rewards),
        "correct": t(case.rewards),
        "groups": torch.tensor(case.groups),
    }
    function = LOSSES[name][0]
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    chosen = {key: every[key] for key in names}
    if name == "lp_reg":
        chosen["selected"] = A.low_probability_mask(
            logp, t(case.advantages), t(case.mask), share=0.5
        )
    if name == "k3_weighted":
        chosen["old_logp"] = every["old_logp"]
    return chosen


def slope(scalar: Scalar, case: Case, i: int, k: int, h: float = 1e-6) -> float:
    """The central difference of a loss at one log-probability."""
    up, down = ([list(row) for row in case.logp] for _ in range(2))
    up[i][k] += h
    down[i][k] -= h
    return (scalar(case, up) - scalar(case, down)) / (2 * h)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name: str) -> None:
    function, scalar, options, constant = LOSSES[name]
    for seed in SEEDS:
        case = make(seed, constant=constant)
        logp = t(case.logp).requires_grad_()
        loss = A.divide(*function(**arguments(name, case, logp), **options))
        close(loss.detach(), scalar(case, case.logp))
        (gradient,) = torch.autograd.grad(loss, logp, allow_unused=True)
        expected = [[0.0] * len(row) for row in case.mask]
        for i, live in enumerate(case.live):
            for k in live:
                expected[i][k] = slope(scalar, case, i, k)
        torch.testing.assert_close(gradient, t(expected), rtol=1e-6, atol=1e-8)
