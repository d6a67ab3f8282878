"""Rows of a pass as one sequence without padding, in which a common beginning stands once.

Rows that begin alike, such as the rollouts of a prompt, form a tree: a node is a run of tokens, and
a row is the path from a root to a node. Each token attends to the nodes above its own and to
what stands before it in its own node, which are the tokens that it would see in its row; position
ids count from the row's beginning. What a node computes, and the gradient of it, is computed once
for all rows below it.

Nodes stand in the order of a walk that visits a node before its children, so that the tokens below
a node are contiguous.

Axes: B rows, T tokens, P tokens of the packed sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..rollout.batch import Batch, units

MIN_SHARED = 16
"""Fewest tokens that are shared: a shared node costs a call of the attention in each layer."""

Ids = np.ndarray[tuple[int], np.dtype[np.int64]]


class PackedSpan(NamedTuple):
    """A node of the tree as places in the packed sequence."""

    start: int
    end: int
    below: int
    """End of the tokens below the node; `end` where there are none."""
    above: tuple[tuple[int, int], ...]
    """Start and end of each node above, from the root."""


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows packed into a single sequence."""

    ids: Tensor
    """[P] int."""
    positions: Tensor
    """[P] int: the place of each token in its row."""
    places: Tensor
    """[B, T] int: where each token of a row stands in the sequence; 0 for padding."""
    spans: tuple[PackedSpan, ...]
    """The nodes, in order of `start`."""


@dataclass(slots=True)
class _Node:
    start: int
    depth: int
    """Number of tokens above the node."""
    size: int
    parent: _Node | None


@dataclass(slots=True)
class RowTree:
    """A tree that grows by rows in lexicographic order."""

    min_shared: int = MIN_SHARED
    size: int = 0
    """Number of tokens of the packed sequence so far."""
    nodes: list[_Node] = field(default_factory=list[_Node])
    _path: list[_Node] = field(default_factory=list[_Node])
    """The nodes of the row that was added last, from the root."""
    _last: Ids | None = None
    """The ids of the row that was added last."""

    def add(self, ids: Ids) -> tuple[_Node | None, int]:
        """Add a row.

        Returns:
            The node in which the row ends (None for an empty row), and how many of its tokens are
            new.
        """
        # In lexicographic order no earlier row shares more with this row than the last one does.
        shared = 0 if self._last is None else common(self._last, ids)
        self._last = ids
        while self._path and self._path[-1].depth >= shared:
            self._path.pop()
        # The common part ends inside of a node, which is cut in two there. A head that is too short
        # is not shared, and the new row computes its tokens once more.
        if self._path and shared < self._path[-1].depth + self._path[-1].size:
            node = self._path.pop()
            head = shared - node.depth
            if head >= self.min_shared:
                # The existing object becomes the tail, because rows end in it and children name it
                # as their parent.
                first = _Node(node.start, node.depth, head, node.parent)
                node.start, node.depth, node.size = node.start + head, shared, node.size - head
                node.parent = first
                self.nodes.append(first)
                self._path.append(first)
        parent = self._path[-1] if self._path else None
        depth = parent.depth + parent.size if parent else 0
        new = len(ids) - depth
        if new:
            leaf = _Node(self.size, depth, new, parent)
            self.nodes.append(leaf)
            self._path.append(leaf)
            self.size += new
        return (self._path[-1] if self._path else None), new


def common(row: Ids, other: Ids) -> int:
    """Return the length of the common beginning of two rows."""
    size = min(len(row), len(other))
    differ = np.flatnonzero(row[:size] != other[:size])
    return int(differ[0]) if len(differ) else size


def pack_rows(ids: Tensor, lengths: Tensor, *, min_shared: int = MIN_SHARED) -> PackedRows:
    """Pack rows into a single sequence.

    Args:
        ids: [B, T] int, padded on the right.
        lengths: [B] int: tokens of each row without padding.
        min_shared: fewest tokens that are shared; the width of a row or more shares nothing.
    """
    device, width = ids.device, ids.shape[1]
    rows = _arrays(ids, lengths)
    tree = RowTree(min_shared)
    ends: dict[int, _Node | None] = {}
    for row in in_order(rows):
        ends[row], _ = tree.add(rows[row])
    places = np.zeros((len(rows), width), dtype=np.int64)
    packed, positions = np.zeros((2, tree.size), dtype=np.int64)
    for row, node in ends.items():
        while node is not None:
            within = slice(node.depth, node.depth + node.size)
            here = slice(node.start, node.start + node.size)
            places[row, within] = np.arange(here.start, here.stop)
            packed[here] = rows[row][within]
            positions[here] = np.arange(within.start, within.stop)
            node = node.parent

    def moved(array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return PackedRows(moved(packed), moved(positions), moved(places), _spans(tree))


def packs(
    batch: Batch,
    rows: Tensor,
    tokens: int,
    together: Tensor | None = None,
    *,
    min_shared: int = MIN_SHARED,
) -> Iterator[Tensor]:
    """Split `rows` into forward passes of at most `tokens` tokens, counted after sharing; rows that
    begin alike follow each other.

    A row longer than `tokens` is alone in its pass. With `together` [B] int, rows that share a
    number are never split, however long their pass gets.
    """
    arrays, lengths = _arrays(batch.ids, batch.lengths), batch.lengths
    ordered = in_order(arrays, rows.tolist())
    parts = [[row] for row in ordered] if together is None else units(lengths, rows, together)
    part: list[int] = []
    tree = RowTree(min_shared)
    # How many tokens a unit adds is known only after it was added to the tree; where these are too
    # many, the unit begins the next pass with a tree of its own. Units that must stay together are
    # in order of length, not of ids, so that a pass may share more than is counted here.
    for unit in parts:
        inner = in_order(arrays, unit)
        for row in inner:
            tree.add(arrays[row])
        if part and tree.size > tokens:
            yield torch.tensor(part)
            part, tree = [], RowTree(min_shared)
            for row in inner:
                tree.add(arrays[row])
        part += inner
    if part:
        yield torch.tensor(part)


def packed_size(ids: Tensor, lengths: Tensor, rows: Tensor, *, min_shared: int = MIN_SHARED) -> int:
    """Return how many tokens a pass of `rows` computes."""
    arrays = _arrays(ids, lengths)
    tree = RowTree(min_shared)
    for row in in_order(arrays, rows.tolist()):
        tree.add(arrays[row])
    return tree.size


def in_order(rows: Sequence[Ids], some: Iterable[int] | None = None) -> list[int]:
    """Return the numbers of all rows, or of `some`, in lexicographic order of the rows' ids."""
    numbers = range(len(rows)) if some is None else some
    # With the highest byte of each id first, the order of the bytes is the order of the ids.
    return sorted(numbers, key=lambda row: rows[row].astype(">u8").tobytes())


def _arrays(ids: Tensor, lengths: Tensor) -> list[Ids]:
    every: np.ndarray[tuple[int, int], np.dtype[np.int64]] = ids.cpu().numpy()
    return [every[row, :length] for row, length in enumerate(lengths.tolist())]


def _spans(tree: RowTree) -> tuple[PackedSpan, ...]:
    """Return the nodes in order, each with the end of the tokens below."""
    nodes = sorted(tree.nodes, key=lambda node: node.start)
    below = {id(node): node.start + node.size for node in nodes}
    for node in reversed(nodes):  # children come after their parent
        if node.parent is not None:
            key = id(node.parent)
            below[key] = max(below[key], below[id(node)])
    above: dict[int, tuple[tuple[int, int], ...]] = {}
    spans: list[PackedSpan] = []
    for node in nodes:
        parent = node.parent
        over = (
            ()
            if parent is None
            else (*above[id(parent)], (parent.start, parent.start + parent.size))
        )
        above[id(node)] = over
        spans.append(PackedSpan(node.start, node.start + node.size, below[id(node)], over))
    return tuple(spans)
