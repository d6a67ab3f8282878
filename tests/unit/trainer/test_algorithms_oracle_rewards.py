"""The remaining estimators, shaping and sampling against plain loops over Python floats, on random
cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, cos, exp, floor, nan, pi, sqrt
from typing import Literal

import pytest
import torch
from torch import Tensor

from ludus.trainer import algorithms as A

SEEDS = range(10)
Matrix = list[list[float]]


@dataclass(frozen=True)
class Case:
    """A random batch as lists; masked slots hold what is no number."""

    old: Matrix
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

    return Case(
        old=[[draw.uniform(-3.0, -0.2) if m else nan for m in row] for row in mask],
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


def std(xs: list[float], ddof: int) -> float:
    return sqrt(sum((x - mean(xs)) ** 2 for x in xs) / (len(xs) - ddof)) if len(xs) > ddof else 0.0


def held(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def members(groups: list[int], i: int) -> list[int]:
    return [j for j, g in enumerate(groups) if g == groups[i]]


def grid(case: Case, of: Callable[[int, int], float]) -> Matrix:
    """`of` on trained tokens, 0 elsewhere."""
    return [[of(i, k) if m else 0.0 for k, m in enumerate(row)] for i, row in enumerate(case.mask)]


# --- advantages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_more_estimators_of_groups(seed: int) -> None:
    case = make(seed)
    r, g = case.rewards, case.groups
    rewards, groups = t(r), torch.tensor(g)
    alpha = len(r) / max(1, sum(x != 0 for x in r))
    own = [[r[j] for j in members(g, i)] for i in range(len(r))]
    centred = [x - mean(xs) for x, xs in zip(r, own, strict=True)]
    close(A.gpg_advantages(rewards, groups, norm=0.5), [c * alpha / 0.5 for c in centred])
    best = [0.0] * len(r)
    for name in set(g):
        rows = [i for i, each in enumerate(g) if each == name]
        ordered = sorted(rows, key=lambda i: -r[i])
        if len(rows) > 1:
            lead = r[ordered[0]] - r[ordered[1]]
            best[ordered[0]] = lead / (std([r[i] for i in rows], 1) + 1e-6)
    close(A.pass_at_k_advantages(rewards, groups), best)
    raw = [x if len(xs) == 1 else c for x, xs, c in zip(r, own, centred, strict=True)]
    close(A.dr_grpo_advantages(rewards, groups, singleton="raw"), raw)
    close(A.reinforce_advantages(rewards, baseline=0.25), [x - 0.25 for x in r])
    share = [mean([float(x > 0) for x in xs]) for xs in own]
    rover = [5 * (1 - s) if x > 0 else -2 * s for x, s in zip(r, share, strict=True)]
    close(A.rover_advantages(rewards > 0, groups), rover)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("floor_of", ["add", "clamp"])
def test_whitened_baselines(ddof: int, floor_of: Literal["add", "clamp"]) -> None:
    for seed in SEEDS:
        case = make(seed)
        r, g = case.rewards, case.groups
        centred = [x - mean([r[j] for j in members(g, i)]) for i, x in enumerate(r)]
        flat = [centred[i] for i, _ in case.spots]
        m, var = mean(flat), std(flat, ddof) ** 2
        scale = sqrt(var + 1e-3) if floor_of == "add" else sqrt(max(var, 1e-3))
        expected = grid(case, lambda i, _, c=centred, m=m, s=scale: (c[i] - m) / s)
        found = A.reinforce_pp_baseline_advantages(
            t(r), torch.tensor(g), t(case.mask), ddof=ddof, eps=1e-3, floor=floor_of
        )
        close(found, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_single_stream_steps(seed: int) -> None:
    draw = random.Random(seed)
    n = draw.randint(2, 6)
    r = [float(draw.random() < 0.5) for _ in range(n)]
    a, b = ([draw.uniform(0.5, 9) for _ in range(n)] for _ in range(2))
    d = [draw.choice([0.0, draw.uniform(0, 0.02)]) for _ in range(n)]
    surprise = [x - p / (p + q) for x, p, q in zip(r, a, b, strict=True)]
    scale = std(surprise, 1) + 1e-8
    close(
        A.single_stream_spo_advantages(t(r), t(a), t(b)),
        [(x - mean(surprise)) / scale for x in surprise],
    )
    rho = [held(2 ** (-x / 0.06), 0.875, 0.96) for x in d]
    close(A.single_stream_spo_memory(t(d)), rho)
    found = A.single_stream_spo_update(t(r), t(a), t(b), t(rho))
    close(found[0], [k * x + y for k, x, y in zip(rho, a, r, strict=True)])
    close(found[1], [k * x + 1 - y for k, x, y in zip(rho, b, r, strict=True)])
    v = [x / (x + y) for x, y in zip(a, b, strict=True)]
    close(A.single_stream_spo_sampling_weights(t(a), t(b)), [sqrt(x * (1 - x)) + 0.05 for x in v])
    wins = [float(draw.randint(0, 8)) for _ in range(n)]
    prior = A.single_stream_spo_prior(t(wins), 8)
    close(prior[0], [8 * (s + 0.5) / 9 for s in wins])
    close(prior[1], [8 * (8 - s + 0.5) / 9 for s in wins])


@pytest.mark.parametrize("seed", SEEDS)
def test_chains_of_segments(seed: int) -> None:
    case = make(seed)
    draw = random.Random(seed)
    segments = [[-1] * len(row) for row in case.mask]
    for i, live in enumerate(case.live):
        low = 0
        for k in live:
            segments[i][k] = low // 2
            low += exp(case.old[i][k]) < 0.5
    found = A.spo_chain_segments(t(case.old), t(case.mask), interval=2, threshold=0.5)
    assert found.tolist() == segments
    width = max(max(row, default=0) for row in segments) + 2
    values = [[draw.random() for _ in range(width)] for _ in segments]
    steps = [[later - now for now, later in pairwise(row)] for row in values]
    close(A.vine_ppo_advantages(t(values)), steps)
    expected = grid(case, lambda i, k: steps[i][segments[i][k]])
    close(A.spo_chain_advantages(t(values), found, t(case.mask)), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_optimal_token_baseline_across_holes(seed: int) -> None:
    """Compacted: the k-th trained token of a row is compared with the k-th of the others."""
    case = make(seed)
    draw = random.Random(seed)
    rewards = [[draw.random() for _ in row] for row in case.mask]
    proxies = [[draw.uniform(0.01, 1) for _ in row] for row in case.mask]
    go = [[sum(rewards[i][k] for k in live[p:]) for p in range(len(live))]
          for i, live in enumerate(case.live)]  # fmt: skip
    gathered = [[sum(proxies[i][k] for k in live[: p + 1]) for p in range(len(live))]
                for i, live in enumerate(case.live)]  # fmt: skip
    expected = [[0.0] * len(row) for row in case.mask]
    for i, live in enumerate(case.live):
        js = members(case.groups, i)
        for p, k in enumerate(live):
            alive = [j for j in js if len(case.live[j]) > p]
            weight = sum(gathered[j][p] for j in alive) + 1e-8
            base = sum(gathered[j][p] * go[j][p] for j in alive) / weight
            expected[i][k] = go[i][p] - (base if len(js) > 1 else 0.0)
    found = A.otb_advantages(
        t(rewards), torch.tensor(case.groups), t(case.mask), t(proxies), compact=True
    )
    close(found, expected)


# --- shaping --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """Random answers: right or wrong, how long, in which group."""

    correct: list[int]
    lengths: list[int]
    groups: list[int]

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tensor(self.correct), t(self.lengths), torch.tensor(self.groups)


def answers(seed: int) -> Answers:
    draw = random.Random(f"answers {seed}")
    n = draw.randint(2, 9)
    return Answers(
        correct=[draw.randint(0, 1) for _ in range(n)],
        lengths=[draw.choice([10, 20, 50, 80, 100, 120]) for _ in range(n)],
        groups=[draw.randint(0, 2) for _ in range(n)],
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_length_rewards_of_single_answers(seed: int) -> None:
    made = answers(seed)
    correct, lengths, _ = made.tensors()
    pairs = list(zip(made.correct, made.lengths, strict=True))
    ramp = [(100 - 40 - n) / 40 for n in made.lengths]
    found = A.overlong_penalty_rewards(lengths, max_length=100, buffer=40, factor=0.5)
    close(found, [0.5 * held(x, -1, 0) for x in ramp])
    found = A.overlong_penalty_rewards(lengths, max_length=100, buffer=40, clamp=False)
    close(found, [min(x, 0) for x in ramp])
    for clamp in (True, False):
        found = A.overlong_penalty_rewards(lengths, max_length=100, buffer=0, clamp=clamp)
        close(found, [-float(n > 100) for n in made.lengths])
    gold = t([60.0] * len(pairs))
    found = A.l1_exact_rewards(correct, lengths, gold, alpha=0.01)
    close(found, [c - 0.01 * abs(60 - n) for c, n in pairs])
    found = A.l1_max_rewards(correct, lengths, gold, alpha=0.02)
    close(found, [c * held(0.02 * (60 - n) + 0.5, 0, 1) for c, n in pairs])
    found = A.l1_max_rewards(correct, lengths, gold, alpha=0.02, slope="repository")
    close(found, [c * max(0, (held(0.02 * (60 - n), -1, 1) + 1) / 2) for c, n in pairs])

    def wave(n: int, start: float, end: float) -> float:
        return end + (start - end) * (1 + cos(pi * n / 100)) / 2

    found = A.cosine_rewards(correct, lengths, max_length=100, margin=10)
    close(
        found, [-10 if n + 10 >= 100 else wave(n, 2, 1) if c else wave(n, -10, 0) for c, n in pairs]
    )
    found = A.laser_rewards(correct, lengths, 50)
    close(found, [(1.5 if n <= 50 else 1.0) if c else -0.5 for c, n in pairs])
    used = [n / 60 for n in made.lengths]
    found = A.curriculum_length_rewards(lengths, budget=60)
    close(found, [x if x <= 1 else max(0.0, 1 - (x - 1)) for x in used])


@pytest.mark.parametrize("seed", SEEDS)
def test_length_rewards_within_groups(seed: int) -> None:
    made = answers(seed)
    correct, lengths, groups = made.tensors()
    kimi, level, dot, weights, shortened = [], [], [], [], []
    accuracy = {
        g: mean([float(made.correct[j]) for j, h in enumerate(made.groups) if h == g])
        for g in made.groups
    }
    ranked = sorted(accuracy, key=lambda g: (-accuracy[g], g))
    top = set(ranked[: ceil(0.4 * len(ranked))])
    for i, (c, n) in enumerate(zip(made.correct, made.lengths, strict=True)):
        js = members(made.groups, i)
        sizes = [float(made.lengths[j]) for j in js]
        span = max(sizes) - min(sizes)
        lam = 0.5 - (n - min(sizes)) / span if span else 0.0
        kimi.append(lam if c else min(0.0, lam))
        share = sum(made.correct[j] for j in js) / len(js)
        level.append(0 if share >= 2 / 3 else 1 if share >= 1 / 3 else 2)
        limit = floor(mean(sizes) + 0.5 * std(sizes, 1))
        dot.append(limit if share == 1 and n - limit >= 5 else n)
        right = [made.lengths[j] for j in js if made.correct[j]]
        scores = [exp((1 - m / 200) / 0.2) for m in right]
        weights.append(exp((1 - n / 200) / 0.2) / sum(scores) if c else 0.0)
        spread = std([float(m) for m in right], 0)
        z = (n - mean([float(m) for m in right])) / spread if spread else 0.0
        bite = 0.3 / (1 + exp(-z)) if made.groups[i] in top else 0.0
        shortened.append((1 - bite) if c else 0.0)
    close(A.kimi_length_rewards(correct, lengths, groups), kimi)
    assert A.laser_d_level(correct, groups).tolist() == level
    kept = A.dot_truncation_lengths(correct, lengths, groups, deviations=0.5, least_cut=5)
    assert kept.tolist() == dot
    close(A.drpo_length_weights(correct, lengths, groups, max_length=200, lam=0.2), weights)
    close(A.grpo_lambda_rewards(correct, lengths, groups, alpha=0.3, share=0.4), shortened)


@pytest.mark.parametrize("seed", SEEDS)
def test_rewards_read_off_the_response(seed: int) -> None:
    draw = random.Random(seed)
    responses = [[draw.randint(0, 2) for _ in range(draw.randint(0, 9))] for _ in range(4)]
    right = [draw.randint(0, 1) for _ in responses]
    expected = []
    for items in responses:
        grams = [tuple(items[k : k + 2]) for k in range(len(items) - 1)]
        expected.append(-0.5 * (1 - len(set(grams)) / len(grams)) if grams else 0.0)
    found = A.repetition_rewards(responses, n=2, penalty=0.5)
    close(found, expected)
    found = A.repetition_rewards(
        responses, n=2, penalty=0.5, punish="wrong", correct=torch.tensor(right)
    )
    wrong = [0.0 if c else x for c, x in zip(right, expected, strict=True)]
    close(found, wrong)
    after, before = ([[draw.random() for _ in range(3)] for _ in range(4)] for _ in range(2))
    mask = [[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0]]
    gains = [
        mean([a[k] - b[k] for k in range(3) if m[k]])
        for a, b, m in zip(after, before, mask, strict=True)
    ]
    close(A.rlpr_rewards(t(after), t(before), t(mask)), [held(x, 0, 1) for x in gains])
    mixed = A.rlpr_rewards(t(after), t(before), t(mask), format_rewards=t(right))
    close(mixed, [0.9 * held(x, 0, 1) + 0.1 * c for x, c in zip(gains, right, strict=True)])


# --- sampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_filters_of_groups(seed: int) -> None:
    case = make(seed)
    r, g = case.rewards, case.groups
    rewards, groups = t(r), torch.tensor(g)
    own = [[r[j] for j in members(g, i)] for i in range(len(r))]
    varied = [len(set(xs)) > 1 for xs in own]
    assert A.zero_gradient_mask(rewards, groups).tolist() == varied
    passing = [v or len(xs) == 1 for v, xs in zip(varied, own, strict=True)]
    assert A.dynamic_sampling_mask(rewards, groups).tolist() == passing
    band = [0.1 < mean(xs) < 0.95 for xs in own]
    assert A.difficulty_band_mask(rewards, groups).tolist() == band
    wide = [std(xs, 0) >= 0.4 for xs in own]
    assert A.reward_spread_mask(rewards, groups, threshold=0.4, ddof=0).tolist() == wide
    arrived = list(dict.fromkeys(g))
    usable = [h for h in arrived if varied[g.index(h)]][:1]
    active = A.active_sampling_mask(rewards, groups, wanted=1)
    assert active.tolist() == [h in usable for h in g]


@pytest.mark.parametrize("schedule", ["equal_treatment", "hardness_weighted"])
@pytest.mark.parametrize("spread", ["variance", "std"])
def test_dars_budgets_of_every_accuracy(
    schedule: Literal["equal_treatment", "hardness_weighted"], spread: Literal["variance", "std"]
) -> None:
    for n in (4, 8, 16):
        u = [k / n for k in range(n + 1)]
        expected = []
        for x in u:
            x = x or 0.5 / n
            s = 2 * x * (1 - x) if spread == "variance" else 2 * sqrt(x * (1 - x))
            peak = 0.5 * n if spread == "variance" else float(n)
            want = peak if schedule == "equal_treatment" else 2 * (1 - x) * peak
            extra = 0 if x >= 0.5 else ceil(round((want - n * s) / s, 9))
            expected.append(min(max(extra, 0), 3 * n))
        found = A.dars_extra_rollouts(
            t(u), rollouts=n, max_rollouts=4 * n, schedule=schedule, spread=spread
        )
        assert found.tolist() == expected
