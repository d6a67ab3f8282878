"""The forward passes of the local engine, and keys and values that are kept for reuse.

The next turn of an episode extends the ids of the previous turn exactly, so the kept keys are
found here and only the new tokens are computed. A change of weights drops everything.

Axes: B rows, Q new tokens per row, T positions, D hidden size, V vocabulary.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature

import torch

from ludus.agent.images import PlacedImage
from ludus.errors import ConfigError

from ..models.devices import LogitHead
from ..models.images import ImageReader, RowImages, decode_rows, see
from ..models.loading import CausalLM
from ..models.mask_policy import MaskPolicy
from .kv_cache import KeptPrefix, KeptRow, RowCache, TwinCache
from .requests import spans


class PrefixStore:
    """Kept prefixes by ids, bounded in tokens; the least recently used is dropped first.

    Args:
        max_tokens: the most positions of all kept rows together.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.tokens = 0
        """Positions that are allocated for kept rows. A row is freed with its last prefix."""
        self._saved: OrderedDict[tuple[int, ...], KeptPrefix] = OrderedDict()
        self._rows: dict[KeptRow, tuple[int, int]] = {}
        """How many prefixes each kept row has, and how many tokens are counted for it."""
        self._lengths: dict[int, int] = {}
        """How many prefixes have each length."""
        self._sorted: list[int] = []
        """The lengths in ascending order, each once: `longest` tries one prefix of each length."""

    def put(self, ids: Sequence[int], saved: KeptPrefix) -> None:
        """Keep the keys and values of `ids`, and drop old prefixes to stay within the bound.

        Args:
            ids: ids that `wants` has asked for: they are not kept yet.
            saved: their keys and values.
        """
        self._saved[tuple(ids)] = saved
        self._count(saved, 1)
        while self.tokens > self.max_tokens:
            self._count(self._saved.popitem(last=False)[1], -1)

    def wants(self, ids: tuple[int, ...]) -> bool:
        """Return whether ids shall be kept: they fit within the bound, and are not kept yet."""
        return ids not in self._saved and len(ids) <= self.max_tokens

    def longest(self, ids: Sequence[int]) -> KeptPrefix | None:
        """Return the longest kept prefix that is shorter than `ids`; None without a match.

        At least one id is left to compute: the next token is sampled from the logits after the last
        id, and only keys and values are kept.
        """
        for index in range(bisect_left(self._sorted, len(ids)) - 1, -1, -1):
            key = tuple(ids[: self._sorted[index]])
            if (saved := self._saved.get(key)) is not None:
                self._saved.move_to_end(key)
                return saved
        return None

    def clear(self) -> None:
        """Drop all kept rows, as new weights require."""
        self._saved.clear()
        self._rows.clear()
        self._lengths.clear()
        self._sorted.clear()
        self.tokens = 0

    def _count(self, saved: KeptPrefix, more: int) -> None:
        """Add `more` prefixes, 1 or -1, to the counts of a row and of a length."""
        prefixes, counted = self._rows.pop(saved.row, (0, 0))
        remaining = prefixes + more
        if remaining:
            self._rows[saved.row] = remaining, saved.row.room
        self.tokens += (saved.row.room if remaining else 0) - counted
        before = self._lengths.get(saved.length, 0)
        if before == 0:
            insort(self._sorted, saved.length)
        self._lengths[saved.length] = before + more
        if before + more == 0:
            del self._lengths[saved.length]
            self._sorted.remove(saved.length)


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt to compute, of which the first `base` ids are in the cache already."""

    ids: tuple[int, ...]
    base: int = 0
    images: tuple[PlacedImage, ...] = ()
    """The images that stand in `ids`."""

    @property
    def new(self) -> tuple[int, ...]:
        """The ids to compute; never empty."""
        return self.ids[self.base :]


class CachedModel:
    """Runs a model on rows whose earlier keys and values are in the cache.

    Args:
        model: a causal LM with full attention.
        prefill_tokens: the most padded prompt tokens in a forward pass; longer prompts are split.
        reader: prepares images for the model; None for a model that reads no images.
        float32_head: whether the head's product is computed in float32.
    """

    def __init__(
        self,
        model: CausalLM,
        prefill_tokens: int,
        reader: ImageReader | None = None,
        *,
        float32_head: bool = False,
    ) -> None:
        self.model = model
        self.head = LogitHead(model, exact=float32_head, fixed=True)
        self.prefill_tokens = prefill_tokens
        self.reader = reader
        self.passes = 0
        """How many forward passes were made so far."""
        # transformers 5.24 renames the argument, and 5.40 drops the old name.
        names = signature(model.base_model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self.cache = RowCache(int(model.config.get_text_config().num_hidden_layers))

    def renew(self) -> None:
        """Note that the weights have changed."""
        self.head.renew()

    def prompt_logits(
        self, rows: Sequence[PromptRow], first: int
    ) -> tuple[torch.Tensor, list[int]]:
        """Run the new ids of the rows from `first` onwards.

        Returns:
            Each row's last logits, [B, V]; and for each row what must be added to the index of a
            later token to get its rotary position, which is not 0 after images.
        """
        passes = [
            self._compute_rows(rows[part], first + part.start)
            for part in spans([len(row.new) for row in rows], self.prefill_tokens)
        ]
        deltas = [delta for _, of_pass in passes for delta in of_pass]
        return torch.cat([logits for logits, _ in passes]), deltas

    def next_logits(
        self, tokens: Sequence[int], positions: Sequence[int], deltas: Sequence[int]
    ) -> torch.Tensor:
        """Run a new token in each row from 0 onwards; returns the logits, [B, V].

        Args:
            tokens: the ids.
            positions: the index of each id in its row.
            deltas: what is added to the index to get the rotary position, for each row.
        """
        tokens_B1 = torch.tensor(tokens).unsqueeze(1)
        positions_B1 = torch.tensor(positions).unsqueeze(1)
        rotary = None
        if any(deltas):
            rotary = (positions_B1 + torch.tensor(deltas).unsqueeze(1)).expand(3, -1, -1)
        last_B = torch.zeros(len(tokens), dtype=torch.long)
        return self._forward(tokens_B1, positions_B1, 0, last_B, rotary)

    def _compute_rows(
        self, rows: Sequence[PromptRow], first: int
    ) -> tuple[torch.Tensor, list[int]]:
        """Run rows that fit in a single pass, or a long row in several passes; returns the last
        logits [B, V], and the deltas.
        """
        shown, deltas = None, [0] * len(rows)
        if any(row.images for row in rows):
            shown = self._see(rows)
            deltas = shown.deltas_B.tolist()
        width = max(len(row.new) for row in rows)
        step = max(1, self.prefill_tokens) if len(rows) == 1 else width
        starts = range(0, width, step)
        # Only a single long row has several passes. The logits of all but the last are not needed.
        for start in starts[:-1]:
            self._compute(rows, first, start, start + step, shown)
        return self._compute(rows, first, starts[-1], width, shown), deltas

    def _see(self, rows: Sequence[PromptRow]) -> RowImages:
        if self.reader is None:
            raise ConfigError("a prompt shows images, and this engine's model reads none")
        width = max(len(row.ids) for row in rows)
        padded = [[*row.ids, *([0] * (width - len(row.ids)))] for row in rows]
        ids_BT = torch.tensor(padded, device=self.model.device)
        bases = [row.base for row in rows]
        return see(self.model, ids_BT, [row.images for row in rows], self.reader, computed=bases)

    def _compute(
        self, rows: Sequence[PromptRow], first: int, start: int, stop: int, shown: RowImages | None
    ) -> torch.Tensor:
        """Run columns `start` to `stop` of the prompts in a single pass; returns the logits after
        each row, [B, V].
        """
        # Padding on the right writes keys past a row's end. Later tokens overwrite these before
        # any query may read them.
        news = [row.new for row in rows]
        padded = [[*new[start:stop], *([0] * (stop - start - len(new[start:])))] for new in news]
        bases = torch.tensor([row.base for row in rows])
        positions_BQ = bases.unsqueeze(1) + torch.arange(start, stop)
        # The column of each row's last new id; padded columns stand behind it.
        last_B = torch.tensor([min(len(new), stop) - start - 1 for new in news])
        return self._forward(torch.tensor(padded), positions_BQ, first, last_B, shown)

    def _forward(
        self,
        tokens_BQ: torch.Tensor,
        positions_BQ: torch.Tensor,
        first: int,
        last_B: torch.Tensor,
        images: RowImages | torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the logits at query `last_B` of each row, float32 [B, V].

        `images` holds the images of whole rows; or, after images that are computed already, the
        rotary positions [3, B, Q], which differ from `positions_BQ` there.
        """
        device = self.model.device
        length = int(positions_BQ.max()) + 1
        positions_BQ = positions_BQ.to(device)
        plan = self.cache.plan
        plan.start, plan.positions_BQ, plan.length = first, positions_BQ, length
        # Each query reads the keys up to its own position: causal, and blind to padding.
        mask_BQT = torch.arange(length, device=device) <= positions_BQ.unsqueeze(2)
        inputs = {
            "attention_mask": mask_BQT.unsqueeze(1),
            self._cache_name: self.cache,
            "use_cache": True,
        }
        tokens_BQ = tokens_BQ.to(device)
        if isinstance(images, RowImages):
            hidden_BQD = decode_rows(self.model, tokens_BQ, images.at(positions_BQ), **inputs)
        else:
            hidden_BQD = self.model.base_model(
                input_ids=tokens_BQ,
                position_ids=positions_BQ if images is None else images.to(device),
                **inputs,
            ).last_hidden_state
        # The head runs on one position a row: logits of all positions would be [B, Q, V].
        self.passes += 1
        rows = torch.arange(len(last_B), device=device)
        return self.head(hidden_BQD[rows, last_B.to(device)])


class MaskedModel(CachedModel):
    """A policy that may sample the likeliest tokens of a masking policy alone.

    Both models compute every token, and a kept prefix would have the keys of one model only: rows
    are computed from their beginning, and the engine keeps no prefixes.

    Args:
        model: the policy, as of `CachedModel`.
        prefill_tokens: as of `CachedModel`.
        mask: the masking policy.
        reader: as of `CachedModel`; both models see the images.
        float32_head: as of `CachedModel`.
    """

    def __init__(
        self,
        model: CausalLM,
        prefill_tokens: int,
        mask: MaskPolicy,
        reader: ImageReader | None = None,
        *,
        float32_head: bool = False,
    ) -> None:
        super().__init__(model, prefill_tokens, reader, float32_head=float32_head)
        self.mask = mask
        self.beside = CachedModel(mask.model, prefill_tokens, reader, float32_head=float32_head)
        self.cache = TwinCache(len(self.cache.rows), self.beside.cache)

    def renew(self) -> None:
        """Note that the weights have changed."""
        super().renew()
        self.beside.renew()

    def prompt_logits(
        self, rows: Sequence[PromptRow], first: int
    ) -> tuple[torch.Tensor, list[int]]:
        """Run the new ids of the rows from `first` onwards; see `CachedModel.prompt_logits`."""
        logits, deltas = super().prompt_logits(rows, first)
        return self.mask.masked(logits, self.beside.prompt_logits(rows, first)[0]), deltas

    def next_logits(
        self, tokens: Sequence[int], positions: Sequence[int], deltas: Sequence[int]
    ) -> torch.Tensor:
        """Run a new token in each row from 0 onwards; see `CachedModel.next_logits`."""
        logits = super().next_logits(tokens, positions, deltas)
        return self.mask.masked(logits, self.beside.next_logits(tokens, positions, deltas))
