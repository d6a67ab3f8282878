"""A curriculum for search noise: how often a search should be useless as training goes on."""

from __future__ import annotations

import math

from ludus.errors import ConfigError


def noise_at(
    step: int, steps: int, *, start: float = 0.0, end: float = 0.5, base: float = 4.0
) -> float:
    """Return the noise of ZeroSearch's curriculum (arXiv 2505.04588, section 3.4) at a step.

    p = start + (base^(step/steps) - 1) / (base - 1) * (end - start), with base 4, for the reset
    option `noise`. Start and end are chosen for each model; the commands that the authors publish
    go from 0.25 to 0.5.

    >>> noise_at(50, 100)  # (4^0.5 - 1) / 3 * 0.5 = 1/6
    0.16666666666666666

    Args:
        step: the step, from 0 to `steps`; beyond, the value stays at `end`.
        steps: the steps of the whole training.
        start: the probability at step 0.
        end: the probability at step `steps`.
        base: the base of the exponential; the higher, the later the noise rises.

    Raises:
        ConfigError: `steps` is below 1, or `base` is not above 1.
    """
    if steps < 1 or base <= 1:
        raise ConfigError(f"need steps >= 1 and base > 1, got steps={steps}, base={base:g}")
    share = min(max(step / steps, 0.0), 1.0)
    return start + (math.pow(base, share) - 1) / (base - 1) * (end - start)
