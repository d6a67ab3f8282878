"""The criteria of one question, and which of them count now."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from ..rubric import Aggregation, Rubric, RubricItem


class State(StrEnum):
    """Whether a criterion counts."""

    PERSISTENT = "persistent"
    """Given by whoever owns the question; never set aside."""
    ACTIVE = "active"
    """Proposed, admitted, and still telling rollouts apart."""
    INACTIVE = "inactive"
    """Set aside; kept so that it is not proposed again."""


class TrackedCriterion(msgspec.Struct, frozen=True, kw_only=True):
    """A criterion with what is known of its use."""

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
        """The variance that is signal: what responses differ by, less what the judge differs by."""
        return self.spread**2 - self.noise**2


class RubricBuffer(msgspec.Struct, frozen=True, kw_only=True):
    """The criteria of one question at one version. A change makes a new version."""

    question: str
    version: int = 0
    criteria: tuple[TrackedCriterion, ...] = ()

    @property
    def counting(self) -> tuple[TrackedCriterion, ...]:
        """The criteria that give reward now."""
        return tuple(c for c in self.criteria if c.state is not State.INACTIVE)

    @property
    def texts(self) -> list[str]:
        """All texts, also of criteria set aside."""
        return [criterion.item.text for criterion in self.criteria]

    def rubric(self) -> Rubric | None:
        """The criteria that count as a rubric with DR Tulu's formula; None where there are none.

        As there, the reward is not clipped: where all criteria are flaws, a response that has them
        still stands below one that has none.
        """
        items = tuple(criterion.item for criterion in self.counting)
        return Rubric(items=items, aggregation=Aggregation.EVOLVING, clip=False) if items else None

    def admitted(self, proposals: Sequence[TrackedCriterion]) -> RubricBuffer:
        """The next version with new active criteria."""
        version = self.version + 1
        made = tuple(
            msgspec.structs.replace(
                proposal,
                item=msgspec.structs.replace(proposal.item, id=f"v{version}-{number}"),
                born=version,
            )
            for number, proposal in enumerate(proposals, start=1)
        )
        return msgspec.structs.replace(self, version=version, criteria=(*self.criteria, *made))

    def retained(self, scores: Mapping[str, Sequence[float]], *, max_active: int) -> RubricBuffer:
        """The next version after a group was scored: of the active criteria those stay that told
        the group apart by more than the judge's own noise, at most `max_active`, the most telling
        ones first. The same version where nothing changes.

        Args:
            scores: of each criterion over the group, by the item's id.
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
        kept = {c.item.id for c in sorted(telling, key=lambda c: -c.worth)[:max_active]}
        criteria = tuple(
            msgspec.structs.replace(c, state=State.INACTIVE)
            if c.state is State.ACTIVE and c.item.id not in kept
            else c
            for c in measured
        )
        states = [c.state for c in criteria]
        if states == [c.state for c in self.criteria]:
            return msgspec.structs.replace(self, criteria=criteria)
        return msgspec.structs.replace(self, version=self.version + 1, criteria=criteria)
