"""What became of a request sent to the pool, and whose fault that is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ludus.verdict import Status, Verdict


class Fate(StrEnum):
    """How a request ended.

    Only `LIMIT` can be laid on what was scored, because only there a limit that ludus set and
    measured was met. Every other loss carries no reward (decision 0301).
    """

    DONE = "done"
    """The scorer answered."""
    LIMIT = "limit"
    """The item used up the CPU time, the memory or the recursion depth that it was given."""
    RAISED = "raised"
    """The scorer raised an exception, or its request was not plain data: a bug."""
    CRASHED = "crashed"
    """Two fresh workers died of the item without having met a limit: a bug in the scorer or in a
    library below it.
    """
    KILLED = "killed"
    """Workers got a SIGKILL that ludus did not send, most likely from the operating system for
    want of memory, or from an operator.
    """
    LATE = "late"
    """The machine was too busy to give the item its CPU time within the wall limit."""
    REFUSED = "refused"
    """The queue was full, the wait for a worker too long, no worker could be started, or the pool
    was closed.
    """


METRIC = "pool/"
"""Prefix of the metric that tells the fate of a verdict's worker."""
STATUS = {
    Fate.LIMIT: Status.OK,
    Fate.RAISED: Status.ERROR,
    Fate.CRASHED: Status.ERROR,
    Fate.KILLED: Status.UNAVAILABLE,
    Fate.LATE: Status.UNAVAILABLE,
    Fate.REFUSED: Status.UNAVAILABLE,
}
"""The status of the verdict for a request that is not done."""


def fates_of(verdict: Verdict) -> list[str]:
    """How the worker that judged an answer was lost or limited; empty where none was.

    >>> fates_of(Outcome(Fate.KILLED, reason="signal 9").failure())
    ['killed']
    """
    return [name.removeprefix(METRIC) for name in verdict.metrics if name.startswith(METRIC)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A fate with the scorer's value (when done) or the reason (otherwise)."""

    fate: Fate
    value: object = None
    reason: str = ""

    def failure(self) -> Verdict:
        """The verdict for a request that is not done.

        A limit that the answer met is reward 0. Everything else has no reward: `error` where the
        scorer is at fault, `unavailable` (worth a retry) where the machine is. The metric
        `pool/<fate>` is 1, so that the mean over many verdicts is the rate of each fate.
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
