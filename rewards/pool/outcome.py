"""The outcome of a request sent to the pool, and who is to blame for a failure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ludus.verdict import Status, Verdict


class Fate(StrEnum):
    """How a request ended.

    Only `LIMIT` can be blamed on what was scored, because only then was a limit that ludus set
    and measured exceeded. Every other loss carries no reward (decision 0301).
    """

    DONE = "done"
    """The scorer returned a value."""
    LIMIT = "limit"
    """The item exceeded the CPU time, the memory or the recursion depth that was allowed."""
    RAISED = "raised"
    """The scorer raised an exception, or the request was not plain data: a bug."""
    CRASHED = "crashed"
    """Two fresh workers died of the item without exceeding a limit: a bug in the scorer or in a
    library.
    """
    KILLED = "killed"
    """Workers received a SIGKILL that ludus did not send, most likely from the operating system
    when memory ran out, or from an operator.
    """
    LATE = "late"
    """The machine was too busy to give the item its CPU time within the wall limit."""
    REFUSED = "refused"
    """The queue was full, the wait for a worker too long, no worker could be started, or the pool
    was closed.
    """


METRIC = "pool/"
"""Prefix of the metric that records the fate of a verdict's worker."""
STATUS = {
    Fate.LIMIT: Status.OK,
    Fate.RAISED: Status.ERROR,
    Fate.CRASHED: Status.ERROR,
    Fate.KILLED: Status.UNAVAILABLE,
    Fate.LATE: Status.UNAVAILABLE,
    Fate.REFUSED: Status.UNAVAILABLE,
}
"""The status of the verdict for a request that was not completed."""


def fates_of(verdict: Verdict) -> list[str]:
    """Return how the worker behind a verdict was lost or limited; an empty list for a normal
    verdict.

    >>> fates_of(PoolOutcome(Fate.KILLED, reason="signal 9").failure())
    ['killed']
    """
    return [name.removeprefix(METRIC) for name in verdict.metrics if name.startswith(METRIC)]


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """The result of a request: a fate with the scorer's value (when done) or the reason
    (otherwise).
    """

    fate: Fate
    value: object = None
    reason: str = ""

    def failure(self) -> Verdict:
        """Return the verdict for a request that was not completed.

        A limit that the answer exceeded is reward 0. Everything else has no reward: `error`
        where the scorer is at fault, `unavailable` (worth a retry) where the machine is. The
        metric `pool/<fate>` is 1, so that the mean over many verdicts is the rate of each fate.
        """
        metrics = {f"{METRIC}{self.fate}": 1.0, "pooled": 1.0}
        status = STATUS[self.fate]
        if status is Status.OK:
            return Verdict.of(0.0, f"limit: {self.reason}", metrics={"rule/limit": 1.0, **metrics})
        return Verdict(
            status=status,
            detail=self.reason,
            metrics=metrics,
            retryable=status is Status.UNAVAILABLE,
        )
