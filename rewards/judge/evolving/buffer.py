"""Rubric buffers, which hold the criteria of a question and the state of each criterion."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from ..rubric import Aggregation, Rubric, RubricItem


class State(StrEnum):
    """The state of a criterion: persistent and active criteria count, inactive do not."""

    PERSISTENT = "persistent"
    """Given by whoever owns the question; never set aside."""
    ACTIVE = "active"
    """Proposed, admitted, and still telling rollouts apart."""
    INACTIVE = "inactive"
    """Set aside; kept so that it is not proposed again."""


class TrackedCriterion(msgspec.Struct, frozen=True, kw_only=True):
    """A criterion with a state and with the measured spread and noise of the scores."""

    item: RubricItem
    state: State = State.ACTIVE
    born: int = 0
    """Version of the buffer that admitted the criterion; 0 for persistent ones."""
    spread: float = 0.0
    """Standard deviation of the scores over the last group that was judged by the criterion."""
    noise: float = 0.0
    """Standard deviation of the scores of one response that was judged again, at admission."""

    @property
    def worth(self) -> float:
        """The variance of the scores between responses less the variance of the judge's noise."""
        return self.spread**2 - self.noise**2


class RubricBuffer(msgspec.Struct, frozen=True, kw_only=True):
    """The criteria of a question at a version. A change of the criteria makes a new version."""

    question: str
    version: int = 0
    criteria: tuple[TrackedCriterion, ...] = ()

    @property
    def counting(self) -> tuple[TrackedCriterion, ...]:
        """The criteria that give reward now."""
        return tuple(c for c in self.criteria if c.state is not State.INACTIVE)

    @property
    def texts(self) -> list[str]:
        """The texts of all criteria, also of inactive criteria."""
        return [criterion.item.text for criterion in self.criteria]

    def rubric(self) -> Rubric | None:
        """Return a rubric of the criteria that count, with DR Tulu's formula; None if none counts.

        As in DR Tulu, the reward is not clipped. So where all criteria are flaws, a response with
        flaws still gets less than a response without.
        """
        items = tuple(criterion.item for criterion in self.counting)
        return Rubric(items=items, aggregation=Aggregation.EVOLVING, clip=False) if items else None

    def admitted(self, proposals: Sequence[TrackedCriterion]) -> RubricBuffer:
        """Return the next version, which has the proposals as new active criteria."""
        version = self.version + 1
        new_criteria = tuple(
            msgspec.structs.replace(
                proposal,
                item=msgspec.structs.replace(proposal.item, id=f"v{version}-{number}"),
                born=version,
            )
            for number, proposal in enumerate(proposals, start=1)
        )
        return msgspec.structs.replace(
            self, version=version, criteria=(*self.criteria, *new_criteria)
        )

    def retained(self, scores: Mapping[str, Sequence[float]], *, max_active: int) -> RubricBuffer:
        """Return the buffer after a group was scored.

        An active criterion stays active if the spread of its scores over the group exceeds the
        judge's noise, and only the `max_active` criteria with the largest margin stay; the others
        become inactive. The version is the same where no state changes.

        Args:
            scores: the scores of each criterion over the group, by the item's id.
            max_active: most active criteria.
        """
        measured = [
            msgspec.structs.replace(c, spread=statistics.pstdev(scores[c.item.id]))
            if c.item.id in scores and len(scores[c.item.id]) > 1
            else c
            for c in self.criteria
        ]
        active = [c for c in measured if c.state is State.ACTIVE]
        telling = [c for c in active if c.worth > 0]
        kept_ids = {c.item.id for c in sorted(telling, key=lambda c: -c.worth)[:max_active]}
        criteria = tuple(
            msgspec.structs.replace(c, state=State.INACTIVE)
            if c.state is State.ACTIVE and c.item.id not in kept_ids
            else c
            for c in measured
        )
        states = [c.state for c in criteria]
        if states == [c.state for c in self.criteria]:
            return msgspec.structs.replace(self, criteria=criteria)
        return msgspec.structs.replace(self, version=self.version + 1, criteria=criteria)
