"""Trajectories as rows of tensors: one row a segment.

Axes: B rows, T tokens. `logp[b, t]` belongs to token t given those before it, so column 0 is never
    trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ludus.agent import Segment


@dataclass(frozen=True, slots=True)
class Row:
    """One segment as flat lists of equal length."""

    ids: list[int]
    mask: list[int]
    """1 where the policy sampled the token."""
    logprobs: list[float]
    """The sampler's; 0 elsewhere."""
    trajectory: int
    """Index of the trajectory it belongs to."""

    @property
    def trained(self) -> int:
        """How many tokens it trains."""
        return sum(self.mask)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows padded to one length."""

    ids: torch.Tensor
    mask: torch.Tensor
    sampler_logp: torch.Tensor
    trajectory: torch.Tensor
    """[B], which trajectory each row belongs to."""

    def to(self, device: torch.device | str) -> Batch:
        """The same on another device."""
        moved = (self.ids, self.mask, self.sampler_logp, self.trajectory)
        return Batch(*(tensor.to(device) for tensor in moved))


def as_row(segment: Segment, trajectory: int) -> Row | None:
    """Flatten a segment; None if it trains no token."""
    ids = segment.ids()
    mask, logprobs = [0] * len(ids), [0.0] * len(ids)
    for start, turn in segment.spans():
        end = start + len(turn.out_ids)
        mask[start:end] = [1] * len(turn.out_ids)
        logprobs[start:end] = turn.logprobs or [0.0] * len(turn.out_ids)
    if mask:
        mask[0] = 0
    return Row(ids, mask, logprobs, trajectory) if any(mask) else None


def pad(rows: Sequence[Row]) -> Batch:
    """Stack rows, padded on the right with id 0 and mask 0."""
    width = max(len(row.ids) for row in rows)

    def stack(lists: Sequence[Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([[*one, *([0] * (width - len(one)))] for one in lists], dtype=dtype)

    return Batch(
        ids=stack([row.ids for row in rows], torch.long),
        mask=stack([row.mask for row in rows], torch.float32),
        sampler_logp=stack([row.logprobs for row in rows], torch.float32),
        trajectory=torch.tensor([row.trajectory for row in rows]),
    )


def micro_batches(rows: Sequence[Row], tokens: int) -> Iterator[list[Row]]:
    """Rows of like length together, at most `tokens` padded tokens each (one row may exceed it)."""
    part: list[Row] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if part and (len(part) + 1) * len(row.ids) > tokens:
            yield part
            part = []
        part.append(row)
    if part:
        yield part
