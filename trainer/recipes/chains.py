"""Chains: the rows of a rollout joined in time, and grouped into turns.

A rollout that was cut into segments is several rows. Returns and values run across these: the
step after the last trained token of a row is the first trained token of the next row.

Axes: B rows, T tokens; N rollouts, L slots of the longest chain; K turns of the longest rollout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .calls import Bound
from .inputs import Axis, Inputs


@dataclass(frozen=True, slots=True)
class Chains:
    """The position of each row's slots in the chain of the rollout.

    A chain contains for each row the slots between the first and the last trained token. The
    prompt that opens a row (which repeats earlier text) is in no chain.
    """

    rows: Tensor
    """[S] int: the row of each slot that is in a chain."""
    columns: Tensor
    """[S] int: the column of the slot in that row."""
    owners: Tensor
    """[S] int: the rollout of the slot."""
    places: Tensor
    """[S] int: the place of the slot in the chain."""
    count: int
    """N, including rollouts without a row."""
    held: Tensor | None = None
    """[N] int: the rows of each rollout that are joined, where every rollout has one."""

    @classmethod
    def of(cls, mask: Tensor, owners: Tensor, count: int) -> Chains:
        """Build chains from rows, in row order.

        Args:
            mask: [B, T] in {0, 1}.
            owners: [B] int, the rollout of each row; rows of one rollout come in order of time.
            count: N.
        """
        trained = mask.bool()
        before, after = trained.cumsum(1), trained.flip(1).cumsum(1).flip(1)
        inside = (before > 0) & (after > 0)
        lengths = inside.sum(1)
        starts = earlier(lengths, owners)  # where each row begins in its chain
        rows, columns = inside.nonzero(as_tuple=True)
        places = starts[rows] + (inside.cumsum(1) - 1)[rows, columns]
        return cls(rows, columns, owners[rows], places, count)

    @property
    def length(self) -> int:
        """L, the slots of the longest chain."""
        return int(self.places.max()) + 1 if len(self.places) else 0

    def join(self, values: Tensor) -> Tensor:
        """Convert [B, T] to [N, L], with 0 past the end of a chain."""
        joined = values.new_zeros(self.count, self.length)
        joined[self.owners, self.places] = values[self.rows, self.columns]
        return joined

    def split(self, values: Tensor, mask: Tensor) -> Tensor:
        """Convert [N, L] back to the shape of `mask` [B, T], with 0 in untrained slots; a number
        for each rollout, [N], stands at each of its trained tokens.
        """
        if values.dim() == 1:
            values = values.unsqueeze(1).expand(-1, self.length)
        by_row = values.new_zeros(mask.shape)
        by_row[self.rows, self.columns] = values[self.owners, self.places]
        return by_row.masked_fill(mask == 0, 0)


def joined(rows: Inputs, *functions: Bound) -> tuple[Inputs, Chains | None]:
    """Return what functions are given of rows: whole rollouts, one row each, in the order of their
    numbers; and the chains, None where the rows are given as they are.

    Rows are given as they are where each is a rollout already, and to a function that asks for
    `rollouts`: it counts segments on purpose, and is told whose they are.

    Args:
        rows: mask, and rollouts [B]; every other tensor has a value for each row or token.
        functions: who is given the result.
    """
    asks = any("rollouts" in (*each.required, *each.optional) for each in functions)
    if asks or rows.rollouts is None or rows.mask is None:
        return rows, None
    numbers, owners, held = rows.rollouts.unique(return_inverse=True, return_counts=True)
    if len(numbers) == len(owners):
        return rows, None
    first = owners.argsort(stable=True)[held.cumsum(0) - held]
    chains = replace(Chains.of(rows.mask, owners, len(numbers)), held=held)
    of_rows = rows.each(lambda value: value[first], Axis.ROLLOUT, Axis.ROW)
    return of_rows.each(chains.join, Axis.TOKEN), chains


def earlier(counts: Tensor, owners: Tensor) -> Tensor:
    """Return for each row the sum of `counts` over the earlier rows of the same rollout.

    >>> earlier(torch.tensor([3, 5, 2, 4]), torch.tensor([0, 1, 0, 0]))
    tensor([0, 0, 3, 5])
    """
    # Sorted by owner, the sum over an owner's earlier rows is the sum over all rows before, less
    # the sum before the owner's first row, which `searchsorted` finds.
    order = owners.argsort(stable=True)
    grouped, sums = owners[order], counts[order].cumsum(0) - counts[order]
    before = torch.empty_like(sums)
    before[order] = sums - sums[torch.searchsorted(grouped, grouped)]
    return before


@dataclass(frozen=True, slots=True)
class Turns:
    """Chains whose steps are turns instead of tokens."""

    turns: Tensor
    """[N, L] int: the turn of each token. Values in untrained slots do not matter."""
    mask: Tensor
    """[N, L] in {0, 1}."""

    @property
    def steps(self) -> Tensor:
        """[N, K] in {0, 1}: the turns with a trained token."""
        return self.sums(self.mask).clamp(max=1)

    @property
    def starts(self) -> Tensor:
        """[N, L] bool: the first trained token of each turn, at which the state's value is read."""
        # A turn starts where its number is greater than that of every trained token before.
        trained = self.mask.bool()
        latest = torch.where(trained, self._numbers, -1).cummax(1).values
        earlier = torch.nn.functional.pad(latest[:, :-1], (1, 0), value=-1)
        return trained & (self._numbers > earlier)

    def sums(self, values: Tensor) -> Tensor:
        """Convert [N, L] to [N, K]: the sum over the trained tokens of each turn."""
        count = int(self._numbers.max()) + 1 if self._numbers.numel() else 0
        trained = torch.where(self.mask.bool(), values, values.new_zeros(()))
        return values.new_zeros(len(values), count).scatter_add(1, self._numbers, trained)

    def at_starts(self, values: Tensor) -> Tensor:
        """Convert [N, L] to [N, K]: the value at the first trained token of each turn."""
        return self.sums(torch.where(self.starts, values, values.new_zeros(())))

    def spread(self, values: Tensor) -> Tensor:
        """Convert [N, K] to [N, L]: each turn's value on all trained tokens of the turn."""
        return torch.where(self.mask.bool(), values.gather(1, self._numbers), values.new_zeros(()))

    @property
    def _numbers(self) -> Tensor:
        """[N, L] int: the turn of each trained token, and 0, which is a valid index, elsewhere."""
        return torch.where(self.mask.bool(), self.turns, 0)
