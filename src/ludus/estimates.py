"""Statistics of a sample of episodes: pass@k and confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

import msgspec

Z95 = NormalDist().inv_cdf(0.975)


class Estimate(msgspec.Struct, frozen=True):
    """A number with a 95% interval."""

    value: float
    low: float
    high: float

    def cells(self) -> tuple[str, str]:
        """Return the number and the interval as table cells; the interval of a single task is
        unknown.
        """
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return f"{self.value:.3f}", "unknown from one task"
        return f"{self.value:.3f}", f"{self.low:.3f} to {self.high:.3f}"


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return an unbiased estimate of the chance that one of `k` samples passes, if `c` of `n`
    samples did.

    1 - C(n - c, k) / C(n, k), after "Evaluating Large Language Models Trained on Code"
    (arXiv 2107.03374, equation 1).

    >>> pass_at_k(4, 2, 2)  # the pairs that both fail: 1 of 6
    0.8333333333333334
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"need 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def wilson(c: float, n: float) -> Estimate:
    """Return a success rate with Wilson's interval, which is sound for few samples and for rates of
    0 and 1. `c` may be a sum of shares in [0, 1]: the interval is then wider than it need be.
    """
    if n < 1:
        raise ValueError("a rate needs at least one sample")
    rate, z2 = c / n, Z95 * Z95
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Estimate(rate, max(0.0, centre - half), min(1.0, centre + half))


MOST_EFFECTIVE = 4.0
"""The most samples for which a sample may count, however little the samples differ."""


def share_of(values: Sequence[float]) -> Estimate:
    """Return the mean of shares in [0, 1] with Wilson's interval, for as many samples as would have
    the variance of these: samples of 0 and 1 count once, and equal ones for up to four.

    The effective number is n p (1 - p) / s^2, as for the design effect of a survey (Kish,
    "Survey Sampling", 1965, section 8.2).

    >>> share_of([0.0, 1.0, 1.0, 1.0]) == wilson(3.0, 4)
    True
    >>> share_of([1.0, 1.0 - 1e-16]) == wilson(2.0, 2)  # they differ by rounding alone
    True
    """
    n, mean = len(values), min(1.0, max(0.0, fmean(values)))
    spread = fmean((value - mean) ** 2 for value in values)
    most = MOST_EFFECTIVE * n
    # Shares vary at most as much as samples of 0 and 1 do, so that only rounding gives fewer.
    effective = max(n, min(most, n * mean * (1 - mean) / spread)) if spread else float(n)
    if spread == 0 and 0 < mean < 1:
        effective = most
    return wilson(mean * effective, effective)


def mean_over_tasks(values: Sequence[float]) -> Estimate:
    """Return the mean of one value per task, with a normal interval.

    The interval is over tasks, since samples of one task are not independent of each other.
    """
    mean = fmean(values)
    if len(values) < 2:
        return Estimate(mean, -math.inf, math.inf)
    half = Z95 * stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)
