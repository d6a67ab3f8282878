"""Trajectories as rows of tensors, with a row for each segment.

Axes: B rows, T tokens. `logp[b, t]` is the log-probability of token t given the tokens before it,
so column 0 is never trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ludus.agent import Segment
from ludus.agent.images import PlacedImage

from ..recipes.inputs import Inputs


@dataclass(frozen=True, slots=True)
class Row:
    """A segment as flat lists of equal length."""

    ids: list[int]
    mask: list[int]
    """1 where the policy sampled the token."""
    logprobs: list[float]
    """The sampler's log-probabilities; 0 elsewhere."""
    images: tuple[PlacedImage, ...] = ()
    """The images that the row shows, with positions in `ids`."""
    versions: tuple[int, ...] = ()
    """The version of the weights that sampled each token, -1 elsewhere; empty where not known."""

    @property
    def trained(self) -> int:
        """Number of tokens that the row trains."""
        return sum(self.mask)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows padded on the right to equal length."""

    ids: Tensor
    """Token ids, [B, T] int."""
    mask: Tensor
    """[B, T] in {0, 1}: the tokens that are trained."""
    sampler_logp: Tensor
    """Log-probabilities of the engine that sampled, [B, T]."""
    lengths: Tensor
    """[B] int: tokens of each row without padding."""
    inputs: Inputs = field(default_factory=Inputs)
    """Anything else that a loss reads, with the values of rollouts repeated for each row."""
    images: tuple[tuple[PlacedImage, ...], ...] = ()
    """The images of each row, B tuples; () where no row shows any."""
    versions: Tensor | None = None
    """[B, T] int: the version of the weights that sampled each token, -1 elsewhere; None where not
    known.
    """

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Tensor, device: torch.device | str = "cpu") -> Batch:
        """Return the rows with the given numbers, padded to a common length, on a device."""
        width = int(self.lengths[rows].max())

        def cut(tensor: Tensor) -> Tensor:
            return (tensor[rows, :width] if tensor.dim() == 2 else tensor[rows]).to(device)

        tensors = (cut(self.ids), cut(self.mask), cut(self.sampler_logp), cut(self.lengths))
        images = tuple(self.images[row] for row in rows.tolist()) if self.images else ()
        versions = None if self.versions is None else cut(self.versions)
        return Batch(*tensors, self.inputs.each(cut), images, versions)


def as_row(segment: Segment) -> Row | None:
    """Flatten a segment; None if the segment trains no token."""
    ids = segment.ids()
    mask, logprobs, versions = [0] * len(ids), [0.0] * len(ids), [-1] * len(ids)
    for start, turn in segment.spans():
        end = start + len(turn.out_ids)
        mask[start:end] = [int(turn.trained)] * len(turn.out_ids)
        logprobs[start:end] = turn.logprobs or [0.0] * len(turn.out_ids)
        versions[start:end] = turn.versions or [-1] * len(turn.out_ids)
    if mask:
        mask[0] = 0  # no token stands before the first, so nothing has predicted it
    if not any(mask):
        return None
    return Row(ids, mask, logprobs, tuple(segment.images()), tuple(versions))


def pad(rows: Sequence[Row]) -> Batch:
    """Stack rows, padded with id 0 and mask 0."""
    width = max(len(row.ids) for row in rows)

    def stack(lists: Sequence[Sequence[float]], dtype: torch.dtype, filler: int = 0) -> Tensor:
        return torch.tensor(
            [[*values, *([filler] * (width - len(values)))] for values in lists], dtype=dtype
        )

    return Batch(
        ids=stack([row.ids for row in rows], torch.long),
        mask=stack([row.mask for row in rows], torch.float32),
        sampler_logp=stack([row.logprobs for row in rows], torch.float32),
        lengths=torch.tensor([len(row.ids) for row in rows]),
        images=tuple(row.images for row in rows) if any(row.images for row in rows) else (),
        versions=stack([row.versions for row in rows], torch.long, -1)
        if any(row.versions for row in rows)
        else None,
    )


def passes(
    lengths: Tensor, rows: Tensor, tokens: int, together: Tensor | None = None
) -> Iterator[Tensor]:
    """Split `rows` into forward passes of rows with similar lengths, at most `tokens` padded tokens
    each.

    A row longer than `tokens` is alone in its pass. With `together` [B] int, rows that share a
    number are never split, however long their pass gets.
    """
    part: list[int] = []
    # Units come in order of their longest row, so the last unit has the longest row of the pass.
    for unit in units(lengths, rows, together):
        if part and (len(part) + len(unit)) * int(lengths[unit].max()) > tokens:
            yield torch.tensor(part)
            part = []
        part += unit
    if part:
        yield torch.tensor(part)


def units(lengths: Tensor, rows: Tensor, together: Tensor | None) -> list[list[int]]:
    """Return the rows in units that are not split, in order of each unit's longest row; see
    `passes`.
    """
    ordered: list[int] = rows[lengths[rows].argsort()].tolist()
    if together is None:
        return [[row] for row in ordered]
    # From the longest row down, a unit enters the dictionary with its longest row; reversed, the
    # dictionary's order is that of `passes`.
    units: dict[int, list[int]] = {}
    for row in reversed(ordered):
        units.setdefault(int(together[row]), []).append(row)
    return list(reversed(units.values()))
