"""A rule: a quantity over a window of steps, the threshold from which it holds, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ludus.findings import Severity, State

from .history import RunHistory

Quantity = Callable[[RunHistory], float | None]
"""A number after the newest step; None where it is unknown or the rule does not apply."""


@dataclass(frozen=True, kw_only=True)
class FindingRule:
    """A rule for findings."""

    name: str
    quantity: Quantity
    threshold: float
    source: str
    """Where the threshold comes from; "house" is ours, from `benchmarks/planted_runs.py`."""
    sentence: Callable[[RunHistory, float], str]
    """Says in words what was found, with the numbers."""
    remedy: Callable[[RunHistory], str]
    """A command, or options of `ludus train`; empty where nothing is to be done."""
    evidence: tuple[str, ...]
    """Columns of `metrics.jsonl`."""
    severity: Severity = "warning"
    state: State | None = None
    causes: tuple[str, ...] = ()
    """Findings that explain this one where they hold, the deepest first."""
    after: int = 3
    """The number of steps that a run has made before the rule is asked."""
    times: tuple[int, int] = (1, 1)
    """It opens if it holds in so many of the last so many steps."""
    below: bool = False
    """Whether it holds below the threshold instead of from it on."""
    clears: float | None = None
    """The quantity at which it closes; by default half the threshold, or twice where `below`."""

    def holds(self, number: float) -> bool:
        """Whether the quantity has reached the threshold."""
        return number < self.threshold if self.below else number >= self.threshold

    def is_over(self, number: float) -> bool:
        """Whether the quantity is so far back that an open finding closes."""
        if self.below:
            return number >= (2 * self.threshold if self.clears is None else self.clears)
        return number < (self.threshold / 2 if self.clears is None else self.clears)
