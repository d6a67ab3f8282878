"""Trajectories as rows of tensors: one row a segment.

Axes: B rows, T tokens. `logp[b, t]` belongs to token t given those before it, so column 0 is never
    trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ludus.agent import Segment


@dataclass(frozen=True, slots=True)
class Row:
    """One segment as flat lists of equal length."""

    ids: list[int]
    mask: list[int]
    """1 where the policy sampled the token."""
    logprobs: list[float]
    """The sampler's; 0 elsewhere."""

    @property
    def trained(self) -> int:
        """How many tokens it trains."""
        return sum(self.mask)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows padded on the right to one length."""

    ids: Tensor
    """[B, T] int."""
    mask: Tensor
    """[B, T] in {0, 1}: the tokens that are trained."""
    sampler_logp: Tensor
    """[B, T]."""
    lengths: Tensor
    """[B] int: tokens of each row without padding."""
    extra: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Anything else a loss reads: [B] a row, or [B, T] a token."""

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Tensor) -> Batch:
        """Some rows, with the padding they do not need cut off."""
        width = int(self.lengths[rows].max())

        def cut(tensor: Tensor) -> Tensor:
            return tensor[rows, :width] if tensor.dim() == 2 else tensor[rows]

        extra = {name: cut(tensor) for name, tensor in self.extra.items()}
        tensors = (cut(self.ids), cut(self.mask), cut(self.sampler_logp), self.lengths[rows])
        return Batch(*tensors, extra)

    def with_extra(self, **tensors: Tensor | None) -> Batch:
        """The same rows with more tensors; None is left out."""
        given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        return Batch(self.ids, self.mask, self.sampler_logp, self.lengths, {**self.extra, **given})

    def to(self, device: torch.device | str) -> Batch:
        """The same on another device."""
        extra = {name: tensor.to(device) for name, tensor in self.extra.items()}
        return Batch(
            ids=self.ids.to(device),
            mask=self.mask.to(device),
            sampler_logp=self.sampler_logp.to(device),
            lengths=self.lengths.to(device),
            extra=extra,
        )


def as_row(segment: Segment) -> Row | None:
    """Flatten a segment; None if it trains no token."""
    ids = segment.ids()
    mask, logprobs = [0] * len(ids), [0.0] * len(ids)
    for start, turn in segment.spans():
        end = start + len(turn.out_ids)
        mask[start:end] = [int(turn.trained)] * len(turn.out_ids)
        logprobs[start:end] = turn.logprobs or [0.0] * len(turn.out_ids)
    if mask:
        mask[0] = 0
    return Row(ids, mask, logprobs) if any(mask) else None


def pad(rows: Sequence[Row]) -> Batch:
    """Stack rows, padded with id 0 and mask 0."""
    width = max(len(row.ids) for row in rows)

    def stack(lists: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
        return torch.tensor([[*one, *([0] * (width - len(one)))] for one in lists], dtype=dtype)

    return Batch(
        ids=stack([row.ids for row in rows], torch.long),
        mask=stack([row.mask for row in rows], torch.float32),
        sampler_logp=stack([row.logprobs for row in rows], torch.float32),
        lengths=torch.tensor([len(row.ids) for row in rows]),
    )


def passes(
    lengths: Tensor, rows: Tensor, tokens: int, together: Tensor | None = None
) -> Iterator[Tensor]:
    """Split `rows` into forward passes: like lengths together, at most `tokens` padded tokens each.

    A row longer than `tokens` goes alone. With `together` [B] int, so does a set of rows that share
    a number; they are never split.
    """
    part: list[int] = []
    for unit in units(lengths, rows, together):
        if part and (len(part) + len(unit)) * int(lengths[unit].max()) > tokens:
            yield torch.tensor(part)
            part = []
        part += unit
    if part:
        yield torch.tensor(part)


def units(lengths: Tensor, rows: Tensor, together: Tensor | None) -> list[list[int]]:
    """The rows that are not split from each other, by the longest of them; see `passes`."""
    ordered: list[int] = rows[lengths[rows].argsort()].tolist()
    if together is None:
        return [[row] for row in ordered]
    units: dict[int, list[int]] = {}
    for row in reversed(ordered):
        units.setdefault(int(together[row]), []).append(row)
    return list(reversed(units.values()))
