"""Reward against compute as a sigmoid, with an interval: what a recipe would reach.

After "The Art of Scaling Reinforcement Learning Compute for LLMs" (ScaleRL, arXiv 2510.13786,
equation 1): R(C) = R0 + (A - R0) / (1 + (C_mid / C)^B).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
LEAST = 6
"""Points below which four numbers are not fitted."""
ZOOMS, CELLS, DRAWS = 6, 24, 200
MANY = 5
"""Runs from which whole runs are drawn anew."""
WIDEST = 64.0
"""An interval wider than so many times the spread of the rewards has no end."""
STEEPEST, SHALLOWEST = 8.0, 0.15


class Sigmoid(msgspec.Struct, frozen=True):
    """A fitted curve.

    R(C) = start + (top - start) / (1 + (middle / C)^steepness)
    """

    start: float
    """R0, the reward before training."""
    top: float
    """A, the reward that is approached."""
    steepness: float
    """B."""
    middle: float
    """C_mid, the compute at which half of the gain is made."""

    def at(self, compute: float | Values) -> Values:
        """Return the reward at some compute."""
        share = 1.0 / (1.0 + (self.middle / np.asarray(compute, float)) ** self.steepness)
        reward: Values = self.start + (self.top - self.start) * share
        return reward


class FittedCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A curve with 95 % intervals."""

    curve: Sigmoid
    top: tuple[float, float]
    """Interval of the reward that is approached; infinite where the points do not bound it."""
    twice: tuple[float, float, float]
    """The reward at twice the compute so far, and its interval."""
    error: float
    """Root of the mean squared distance of the points."""
    bounded: bool
    """Whether the points show where the curve ends: half of the gain lies within the compute so
    far, and the interval of the top is no wider than the gain.
    """


def fit(compute: Sequence[float], reward: Sequence[float]) -> Sigmoid:
    """Return the sigmoid of least squares.

    Raises:
        ValueError: there are fewer than `LEAST` points of positive compute.
    """
    x, y = np.asarray(compute, float), np.asarray(reward, float)
    x, y = x[x > 0], y[x > 0]
    if len(x) < LEAST:
        raise ValueError(f"a sigmoid needs {LEAST} points of positive compute, got {len(x)}")
    return _searched(x, lambda share, _middle, _power: _lines(share, y))[0]


Solve = Callable[[Values, Values, Values], tuple[Values, Values, Values]]
"""Start, gain and squared error [G] of the best curve for each share [G, N], log of the middle and
steepness [G, 1].
"""


def _searched(x: Values, solve: Solve) -> tuple[Sigmoid, float]:
    """Return the best curve and its squared error.

    For a middle and a steepness the other two numbers are linear; these two are looked for on a
    grid that is made finer `ZOOMS` times.
    """
    middles = math.log(x.min() / 4), math.log(x.max() * 8)
    steeps = math.log(SHALLOWEST), math.log(STEEPEST)
    for _ in range(ZOOMS):
        grid = np.meshgrid(np.linspace(*middles, CELLS), np.linspace(*steeps, CELLS))
        middle, power = grid[0].reshape(-1, 1), np.exp(grid[1].reshape(-1, 1))
        share = 1 / (1 + np.exp((middle - np.log(x)) * power))
        start, gain, error = solve(share, middle, power)
        best = int(error.argmin())
        middles = _narrowed(middles, float(middle[best, 0]))
        steeps = _narrowed(steeps, math.log(power[best, 0]))
    first, steepness = float(start[best]), float(power[best, 0])
    curve = Sigmoid(first, first + float(gain[best]), steepness, math.exp(float(middle[best, 0])))
    return curve, float(error[best])


def _lines(share: Values, y: Values) -> tuple[Values, Values, Values]:
    """Return start, gain >= 0 and squared error of the best line for each row of `share` [G, N]."""
    centred, mean = share - share.mean(1, keepdims=True), y.mean()
    spread = np.maximum((centred**2).sum(1), 1e-12)
    gain = np.maximum((centred * (y - mean)).sum(1) / spread, 0.0)
    start = mean - gain * share.mean(1)
    error = ((start[:, None] + gain[:, None] * share - y) ** 2).sum(1)
    return start, gain, error


def _narrowed(bounds: tuple[float, float], centre: float) -> tuple[float, float]:
    half = 1.5 * (bounds[1] - bounds[0]) / (CELLS - 1)
    return max(bounds[0], centre - half), min(bounds[1], centre + half)


def fit_with_interval(
    runs: Sequence[tuple[Sequence[float], Sequence[float]]], *, draws: int = DRAWS, seed: int = 0
) -> FittedCurve:
    """Fit one curve to the points of several runs, with intervals.

    With `MANY` runs or more, whole runs are drawn anew. With fewer, an interval holds the values v
    for which the best curve through v has at most 1 + F / (n - 4) times the least squares, where F
    is the 95 % quantile of F(1, n - 4) (profile likelihood): it takes points as independent.

    Args:
        runs: compute and reward of each run.
        draws: samples of the bootstrap over runs.
        seed: of the bootstrap.

    Raises:
        ValueError: there are fewer than `LEAST` points of positive compute.
    """
    x = np.concatenate([np.asarray(compute, float) for compute, _ in runs])
    y = np.concatenate([np.asarray(reward, float) for _, reward in runs])
    x, y = x[x > 0], y[x > 0]
    curve = fit(list(x), list(y))
    later = 2 * float(x.max())
    if len(runs) >= MANY:
        drawn = _bootstrap(runs, draws, seed)
        top = _interval([draw.top for draw in drawn])
        twice = _interval([float(draw.at(later)) for draw in drawn])
    else:
        top = _profile(x, y, curve, math.inf)
        twice = _profile(x, y, curve, later)
    return FittedCurve(
        curve=curve,
        top=top,
        twice=(float(curve.at(later)), *twice),
        error=float(np.sqrt(np.mean((y - curve.at(x)) ** 2))),
        bounded=curve.middle < x.max() and top[1] - top[0] <= max(curve.top - curve.start, 1e-9),
    )


def _bootstrap(
    runs: Sequence[tuple[Sequence[float], Sequence[float]]], draws: int, seed: int
) -> list[Sigmoid]:
    generator = np.random.default_rng(seed)
    fits: list[Sigmoid] = []
    for _ in range(draws):
        chosen = [runs[n] for n in generator.integers(0, len(runs), len(runs))]
        x = [place for compute, _ in chosen for place in compute]
        fits.append(fit(x, [value for _, rewards in chosen for value in rewards]))
    return fits


def _interval(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def _profile(x: Values, y: Values, curve: Sigmoid, compute: float) -> tuple[float, float]:
    """Return the interval of the reward at some compute, which may be infinite."""
    best = curve.top if math.isinf(compute) else float(curve.at(compute))
    least = max(float(((y - curve.at(x)) ** 2).sum()), 1e-12)
    most = least * (1 + _f_quantile(len(x) - 4) / max(1, len(x) - 4))
    width = max(float(y.max() - y.min()), 1e-6)
    ends: list[float] = []
    for sign in (-1.0, 1.0):
        inside, outside = 0.0, width / 8
        while _constrained(x, y, best + sign * outside, compute) <= most:
            inside, outside = outside, 2 * outside
            if outside > WIDEST * width:
                break
        if outside > WIDEST * width:
            ends.append(sign * math.inf)
            continue
        for _ in range(12):
            middle = (inside + outside) / 2
            if _constrained(x, y, best + sign * middle, compute) <= most:
                inside = middle
            else:
                outside = middle
        ends.append(best + sign * outside)
    return ends[0], ends[1]


def _constrained(x: Values, y: Values, value: float, compute: float) -> float:
    """Return the least squared error of the curves that have `value` at `compute`.

    With s the share of the gain at x, and c at `compute`, R = R0 (1 - s / c) + value s / c is
    linear in R0.
    """

    def solve(share: Values, middle: Values, power: Values) -> tuple[Values, Values, Values]:
        if not math.isinf(compute):
            share = share * (1 + np.exp((middle - math.log(compute)) * power))
        complement, left = 1 - share, y - value * share
        start = (complement * left).sum(1) / np.maximum((complement**2).sum(1), 1e-12)
        return start, value - start, ((left - start[:, None] * complement) ** 2).sum(1)

    return _searched(x, solve)[1]


def _f_quantile(freedom: int) -> float:
    """Return the 95 % quantile of F(1, freedom), the square of Student's t at 97.5 %, by the
    expansion of Cornish and Fisher: within 2 % from 4 degrees on.
    """
    z, n = 1.959964, max(1, freedom)
    third = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    fourth = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return (z + (z**3 + z) / (4 * n) + third / n**2 + fourth / n**3) ** 2
