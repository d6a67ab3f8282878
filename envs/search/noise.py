"""How often a search should be of no use, as training goes on."""

from __future__ import annotations

import math

from ludus.errors import ConfigError


def noise_at(
    step: int, steps: int, *, start: float = 0.0, end: float = 0.5, base: float = 4.0
) -> float:
    """ZeroSearch's curriculum (arXiv 2505.04588, section 3.4): p = start + (base^(step/steps) - 1)
    / (base - 1) * (end - start), with base 4, for the reset option `noise`. Start and end are set
    for each model; the commands the authors publish go from 0.25 to 0.5.

    >>> noise_at(50, 100)  # (4^0.5 - 1) / 3 * 0.5 = 1/6
    0.16666666666666666

    Args:
        step: from 0 to `steps`; past it the value stays at `end`.
        steps: of the whole training.
        start: the first probability.
        end: the last one.
        base: above 1 it rises late.

    Raises:
        ConfigError: no steps, or a base that is not above 1.
    """
    if steps < 1 or base <= 1:
        raise ConfigError(f"need steps >= 1 and base > 1, got steps={steps}, base={base:g}")
    share = min(max(step / steps, 0.0), 1.0)
    return start + (math.pow(base, share) - 1) / (base - 1) * (end - start)
