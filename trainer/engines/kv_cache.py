"""A key-value cache whose rows may join and leave a running batch.

transformers calls `update` once per layer. The rows of the batch lie at `plan.start` onwards;
each row writes new keys at its own positions, so rows of different lengths share a batch without
padding on the left, and a row can leave when the last row is moved into its place.

A row that leaves is kept in a buffer of its own. The next turn of the episode appends to that
buffer what is new: beginnings of a row share their keys, and a turn copies its own tokens alone.

Axes: B rows, H key-value heads, T positions, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass
class CachePlan:
    """The rows and positions of the next forward pass."""

    start: int = 0
    positions_BQ: torch.Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.long))
    length: int = 0
    """How many positions are read: the longest row, including the positions being written."""


class RowLayer(CacheLayerMixin):
    """The keys and values of a layer, [2, rows, H, T, D]."""

    def __init__(self, plan: CachePlan) -> None:
        super().__init__()
        self.plan = plan
        self.stored = torch.empty(2, 0, 0, 0, 0)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Learn the shape from the first keys and values, without allocating yet."""
        _, heads, _, size = key_states.shape
        self.stored = key_states.new_zeros(2, 0, heads, 0, size)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values, and return all keys and values of the batch's rows."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        plan = self.plan
        count, _, new, _ = key_states.shape
        self.reserve(plan.start + count, plan.length)
        keys, values = self.stored[:, plan.start : plan.start + count, :, : plan.length]
        if count == 1:
            keys[:, :, -new:], values[:, :, -new:] = key_states, value_states
            return keys, values
        rows_B1 = torch.arange(count, device=key_states.device).unsqueeze(1)
        # Index tensors around a slice put the indexed axes first, [B, Q, H, D]: hence the
        # transpose.
        keys[rows_B1, :, plan.positions_BQ] = key_states.transpose(1, 2)
        values[rows_B1, :, plan.positions_BQ] = value_states.transpose(1, 2)
        return keys, values

    def reserve(self, rows: int, length: int) -> None:
        """Make room for `rows` rows of `length` positions."""
        _, have_rows, heads, have_length, size = self.stored.shape
        if rows <= have_rows and length <= have_length:
            return
        # Zeros and not uninitialised memory: a row is read up to the longest row's length, and a
        # masked value that happens to be NaN would stay NaN when it is multiplied by an attention
        # of 0.
        room = self.stored.new_zeros(
            2, grown(have_rows, rows), heads, grown(have_length, length), size
        )
        room[:, :have_rows, :, :have_length] = self.stored
        self.stored = room

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the sizes that transformers asks for; unused, since the caller passes a complete
        mask.
        """
        return self.plan.length, 0

    def get_seq_length(self) -> int:
        """Return the length of the longest row."""
        return self.plan.length

    def get_max_length(self) -> int:
        """Return -1: the cache has no maximum length."""
        return -1


def grown(have: int, wanted: int) -> int:
    """Return the room for `wanted` rows or positions: half as much again as before where it has to
    grow, so that what grows by one is copied a logarithmic number of times.

    >>> [grown(0, 1), grown(64, 60), grown(64, 65), grown(64, 200)]
    [1, 64, 96, 200]
    """
    return have if wanted <= have else max(wanted, have * 3 // 2)


class KeptRow:
    """The keys and values of a row that has left the batch, [layers, 2, H, T, D], of which `used`
    positions are written. Beginnings of different lengths share it.
    """

    def __init__(self, stored: torch.Tensor) -> None:
        self.stored = stored
        self.used = stored.shape[3]

    @property
    def room(self) -> int:
        """How many positions are allocated."""
        return self.stored.shape[3]


@dataclass(frozen=True, slots=True, eq=False)
class KeptPrefix:
    """The first positions of a kept row."""

    row: KeptRow
    length: int


class RowCache(Cache):
    """The keys and values of all layers and rows."""

    def __init__(self, layer_count: int) -> None:
        self.plan = CachePlan()
        self.rows: list[RowLayer] = [RowLayer(self.plan) for _ in range(layer_count)]
        """The same objects as `Cache.layers`, one per layer of the model, with their own type."""
        super().__init__(layers=list(self.rows))

    def copy_rows(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first `length` positions of rows over other rows; no row may be both source and
        target.
        """
        if not targets:
            return
        for layer in self.rows:
            layer.reserve(max(*sources, *targets) + 1, length)
            prefixes = layer.stored[:, :, :, :length]
            of, to = (torch.tensor(rows, device=prefixes.device) for rows in (sources, targets))
            prefixes[:, to] = prefixes[:, of]

    def keep(self, row: int, length: int, begun: KeptPrefix | None) -> KeptPrefix:
        """Keep the first positions of a row.

        Args:
            row: its place in the batch.
            length: the number of positions.
            begun: what the row was loaded from. The rest is appended there, unless another row has
                appended to the same beginning; then the whole is copied.
        """
        if begun is None or begun.row.used != begun.length:
            layers = [layer.stored[:, row, :, :length] for layer in self.rows]
            return KeptPrefix(KeptRow(torch.stack(layers)), length)
        kept, first = begun.row, begun.length
        if length > kept.room:
            depth, _, heads, room, size = kept.stored.shape
            wider = kept.stored.new_empty(depth, 2, heads, grown(room, length), size)
            wider[:, :, :, :first] = kept.stored[:, :, :, :first]
            kept.stored = wider
        for layer, stored in zip(self.rows, kept.stored, strict=True):
            stored[:, :, first:length] = layer.stored[:, row, :, first:length]
        kept.used = length
        return KeptPrefix(kept, length)

    def load(self, first: int, begun: Sequence[KeptPrefix | None]) -> None:
        """Write kept prefixes to the rows from `first` onwards; other rows stay as they are."""
        width = max((prefix.length for prefix in begun if prefix is not None), default=0)
        for number, layer in enumerate(self.rows if width else ()):
            for row, prefix in enumerate(begun, first):
                if prefix is None:
                    continue
                stored = prefix.row.stored[number, :, :, : prefix.length]
                if not layer.is_initialized:
                    layer.lazy_initialization(stored[:1], stored[1:])
                layer.reserve(first + len(begun), width)
                layer.stored[:, row, :, : prefix.length] = stored


class TwinCache(RowCache):
    """The cache of a model beside which another computes the same rows.

    Args:
        layer_count: as of `RowCache`.
        twin: the other model's cache, whose rows go where these go.
    """

    def __init__(self, layer_count: int, twin: RowCache) -> None:
        super().__init__(layer_count)
        self.twin = twin

    def copy_rows(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy rows in both caches; see `RowCache.copy_rows`."""
        super().copy_rows(sources, targets, length)
        self.twin.copy_rows(sources, targets, length)
