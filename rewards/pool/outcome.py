"""What became of a request sent to the pool."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ludus.verdict import Verdict


class Fate(StrEnum):
    """How a request ended; the value says whose fault it is."""

    DONE = "done"
    """The scorer answered."""
    LIMIT = "limit"
    """The item used up its CPU or memory, or lost two fresh workers: the fault of what was
    scored.
    """
    ERROR = "error"
    """The scorer raised: a bug in it."""
    UNAVAILABLE = "unavailable"
    """Lost through no fault of the item: late on a busy machine, overloaded, shut down."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A fate with the scorer's value (when done) or the reason (otherwise)."""

    fate: Fate
    value: object = None
    reason: str = ""

    def failure(self) -> Verdict:
        """The verdict for a request that is not done: a limit is reward 0, the others carry no
        reward.
        """
        match self.fate:
            case Fate.LIMIT:
                return Verdict.of(
                    0.0, f"limit: {self.reason}", metrics={"rule/limit": 1.0, "pooled": 1.0}
                )
            case Fate.UNAVAILABLE:
                return Verdict.unavailable(self.reason)
            case _:
                return Verdict.error(self.reason)
