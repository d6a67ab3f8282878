"""Measured errors of the models that a verifier asks.

A verifier that asks language models has an attribute `judges`, a list of `KnownJudge`. A server
tells the list in the verifier's card, and the report of a run shows it beside the rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ludus.estimates import Estimate


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A measured rate of a judge, with its interval."""

    name: str
    rate: Estimate | None
    """None where nothing could be measured."""
    events: int
    trials: int
    ideal: float
    """The rate of a judge without error."""


class KnownJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A model that gives verdicts, with the measured error of the model."""

    model: str
    measures: list[Measure] | None = None
    """None where nobody has measured the model: `ludus check-judge` does."""


def judges_of(verifier: object) -> list[KnownJudge]:
    """Return the models that `verifier` asks; empty for a verifier that follows rules."""
    judges: Sequence[KnownJudge] = getattr(verifier, "judges", ())
    return list(judges)
