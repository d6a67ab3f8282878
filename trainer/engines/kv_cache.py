"""A key-value cache whose rows may join and leave a running batch.

transformers calls `update` once per layer. The rows of the batch lie at `plan.start` onwards;
each row writes new keys at its own positions, so rows of different lengths share a batch without
padding on the left, and a row can leave when the last row is moved into its place.

Axes: B rows, H key-value heads, T positions, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from .requests import spans

GROWTH = 64
"""Positions are allocated in multiples of this."""
AT_ONCE = 16_384
"""The most padded positions that are saved or loaded together. They pass through a temporary block
of that size, which this number bounds.
"""


@dataclass
class CachePlan:
    """The rows and positions of the next forward pass."""

    start: int = 0
    positions_BQ: torch.Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.long))
    length: int = 0
    """How many positions are read: the longest row, including the positions being written."""


class RowLayer(CacheLayerMixin):
    """The keys and values of a layer, [rows, H, T, D]."""

    def __init__(self, plan: CachePlan) -> None:
        super().__init__()
        self.plan = plan
        self.row_keys = torch.empty(0, 0, 0, 0)
        self.row_values = torch.empty(0, 0, 0, 0)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Learn the shapes from the first keys and values, without allocating yet."""
        _, heads, _, size = key_states.shape
        self.row_keys = key_states.new_zeros(0, heads, 0, size)
        self.row_values = value_states.new_zeros(0, value_states.shape[1], 0, value_states.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values, and return all keys and values of the batch's rows."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        plan = self.plan
        count = key_states.shape[0]
        self.reserve(plan.start + count, plan.length)
        rows_B1 = torch.arange(plan.start, plan.start + count, device=key_states.device).unsqueeze(
            1
        )
        # Index tensors around a slice put the indexed axes first, [B, Q, H, D]: hence the
        # transpose.
        self.row_keys[rows_B1, :, plan.positions_BQ] = key_states.transpose(1, 2)
        self.row_values[rows_B1, :, plan.positions_BQ] = value_states.transpose(1, 2)
        rows = slice(plan.start, plan.start + count)
        return self.row_keys[rows, :, : plan.length], self.row_values[rows, :, : plan.length]

    def reserve(self, rows: int, length: int) -> None:
        """Make room for `rows` rows of `length` positions."""
        have_rows, _, have_length, _ = self.row_keys.shape
        if rows <= have_rows and length <= have_length:
            return
        # Rows double, so that a growing batch is copied only a logarithmic number of times.
        new_rows = have_rows if rows <= have_rows else max(rows, 2 * have_rows, 16)
        new_length = max(have_length, -(-length // GROWTH) * GROWTH)
        self.row_keys = _grown(self.row_keys, new_rows, new_length)
        self.row_values = _grown(self.row_values, new_rows, new_length)

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


def _grown(old: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    # Zeros and not uninitialised memory: a row is read up to the longest row's length, and a masked
    # value that happens to be NaN would stay NaN when it is multiplied by an attention of 0.
    new = old.new_zeros(rows, old.shape[1], length, old.shape[3])
    new[: old.shape[0], :, : old.shape[2]] = old
    return new


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
            for stored in (layer.row_keys, layer.row_values):
                prefixes = stored[:, :, :length]
                prefixes[_index(targets, prefixes)] = prefixes[_index(sources, prefixes)]

    def save_rows(self, rows: Sequence[int], lengths: Sequence[int]) -> list[torch.Tensor]:
        """Return a copy of the first positions of each row, [layers, 2, H, length, D]."""
        saved: list[torch.Tensor] = []
        if not rows:
            return saved
        for part in spans(lengths, AT_ONCE):
            saved += self._save(rows[part], lengths[part])
        return saved

    def load_rows(
        self, first: int, saved: Sequence[torch.Tensor | None], lengths: Sequence[int]
    ) -> None:
        """Write saved positions to the rows from `first` onwards.

        Rows whose entry is None may be overwritten with zeros, so all of their positions have to be
        computed afterwards.
        """
        for part in spans(lengths, AT_ONCE):
            self._load(first + part.start, saved[part], lengths[part])

    def _save(self, rows: Sequence[int], lengths: Sequence[int]) -> list[torch.Tensor]:
        width, first = max(lengths), self.rows[0].row_keys
        _, heads, _, size = first.shape
        block = first.new_empty(len(self.rows), 2, len(rows), heads, width, size)
        for layer, (keys, values) in zip(self.rows, block, strict=True):
            keys[:] = layer.row_keys[:, :, :width][_index(rows, keys)]
            values[:] = layer.row_values[:, :, :width][_index(rows, values)]
        # Without a copy of its own, each saved row would keep the whole block in memory.
        return [block[:, :, row, :, :length].clone() for row, length in enumerate(lengths)]

    def _load(
        self, first: int, saved: Sequence[torch.Tensor | None], lengths: Sequence[int]
    ) -> None:
        example = next((tensor for tensor in saved if tensor is not None), None)
        if example is None:
            return
        layers, _, heads, _, size = example.shape
        width, stop = max(lengths), first + len(saved)
        # All rows are put into one block, so that each layer is written once and not once per row.
        block = example.new_zeros(layers, 2, len(saved), heads, width, size)
        for row, (tensor, length) in enumerate(zip(saved, lengths, strict=True)):
            if tensor is not None:
                block[:, :, row, :, :length] = tensor[:, :, :, :length]
        for layer, (keys, values) in zip(self.rows, block, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(keys, values)
            layer.reserve(stop, width)
            layer.row_keys[first:stop, :, :width] = keys
            layer.row_values[first:stop, :, :width] = values


def _index(rows: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(rows, device=like.device)
