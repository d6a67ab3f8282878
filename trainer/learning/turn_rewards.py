"""Places the rewards of turns on the tokens of a rollout's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ludus.agent import Segment, Trajectory, Turn, TurnKind

from .batch import Row, as_row

UNTRAINED = -1


@dataclass(frozen=True, slots=True)
class RewardedRow:
    """A row of a rollout with the rewards of the turns."""

    row: Row
    rewards: list[float]
    """Reward at each token: the reward of a turn is on the turn's last trained token."""
    turns: list[int]
    """Turn of each trained token, counted over all rows of the rollout; -1 elsewhere."""


def rewarded_rows(trajectory: Trajectory) -> list[RewardedRow]:
    """Return the rows of a rollout that train a token, with the rewards of the turns.

    A turn may have no trained token: an answer that left the window before its summary, a span that
    is not trained, an empty answer. Its reward goes to the last trained token before the turn, or
    else to the first one after the turn, so that the rewards of the rows sum up to those of the
    turns.
    """
    rows: list[RewardedRow] = []
    # `waiting` is the reward of turns before the first trained token; `last` is the row and the
    # position of the last trained token so far.
    number, waiting = -1, 0.0
    last: tuple[RewardedRow, int] | None = None
    for segment in trajectory.segments:
        row = as_row(segment)
        if row is not None:
            length = len(row.ids)
            rows.append(RewardedRow(row, [0.0] * length, [UNTRAINED] * length))
        for start, turn in _in_order(segment):
            places = [] if row is None else _trained(row, start, turn)
            if places:
                number += 1
                rewarded = rows[-1]
                for place in places:
                    rewarded.turns[place] = number
                rewarded.rewards[places[0]] += waiting
                waiting, last = 0.0, (rewarded, places[-1])
            if last is None:
                waiting += turn.reward
            else:
                last[0].rewards[last[1]] += turn.reward
    return rows


def _trained(row: Row, start: int | None, turn: Turn) -> list[int]:
    """Return the positions of the trained tokens of a turn whose first token is at `start`."""
    if start is None:
        return []
    return [place for place in range(start, start + len(turn.out_ids)) if row.mask[place]]


def _in_order(segment: Segment) -> Iterator[tuple[int | None, Turn]]:
    """Yield the turns of a window in the order of play, with None as the start of turns that left
    the window.
    """
    spans: list[tuple[int | None, Turn]] = list(segment.spans())
    gone: list[tuple[int | None, Turn]] = [(None, turn) for turn in segment.discarded]
    summary = spans[-1:] if spans and spans[-1][1].kind is TurnKind.SUMMARY else []
    yield from spans[: len(spans) - len(summary)]
    yield from gone
    yield from summary
