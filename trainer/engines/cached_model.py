"""The forward passes of the local engine: a causal LM with the key-value cache of a batch.

Axes: B rows, Q new tokens a row, T positions, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .kv_cache import RowCache
from .models import CausalLM
from .requests import spans


class CachedModel:
    """Runs a model on rows whose earlier keys and values are in the cache.

    Args:
        model: with full attention.
        prefill_tokens: the most padded prompt tokens in a forward pass; longer prompts are split.
    """

    def __init__(self, model: CausalLM, prefill_tokens: int) -> None:
        self.model = model
        self.prefill_tokens = prefill_tokens
        self.cache = RowCache(int(model.config.num_hidden_layers))

    def prompt_logits(
        self, news: Sequence[tuple[int, ...]], bases: Sequence[int], first: int
    ) -> torch.Tensor:
        """Run new tokens of the rows from `first` onwards; returns each row's last logits, [B, V].

        Args:
            news: the new ids of each row, at least one.
            bases: how many positions of each row are in the cache already.
            first: the first row.
        """
        parts = spans([len(new) for new in news], self.prefill_tokens)
        logits = [self._compute_rows(news[part], bases[part], first + part.start) for part in parts]
        return torch.cat(logits)

    def next_logits(self, tokens: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """Run a new token in each row from 0 onwards, at `positions`; returns the logits, [B,
        V].
        """
        tokens_B1 = torch.tensor(tokens).unsqueeze(1)
        positions_B1 = torch.tensor(positions).unsqueeze(1)
        return self._forward(tokens_B1, positions_B1, 0, torch.zeros(len(tokens), dtype=torch.long))

    def _compute_rows(
        self, news: Sequence[tuple[int, ...]], bases: Sequence[int], first: int
    ) -> torch.Tensor:
        """Run rows that fit in a single pass, or a long row in several passes; returns the last
        logits [B, V].
        """
        width = max(map(len, news))
        step = max(1, self.prefill_tokens) if len(news) == 1 else width
        starts = range(0, width, step)
        for start in starts[:-1]:
            self._compute(news, bases, first, start, start + step)
        return self._compute(news, bases, first, starts[-1], width)

    def _compute(
        self,
        news: Sequence[tuple[int, ...]],
        bases: Sequence[int],
        first: int,
        start: int,
        stop: int,
    ) -> torch.Tensor:
        """Run columns `start` to `stop` of the prompts in a single pass; returns the logits after
        each row, [B, V].
        """
        # Padding on the right writes keys past a row's end. Later tokens overwrite these before
        # any query may read them.
        padded = [[*new[start:stop], *([0] * (stop - start - len(new[start:])))] for new in news]
        positions_BQ = torch.tensor(bases).unsqueeze(1) + torch.arange(start, stop)
        last_B = torch.tensor([min(len(new), stop) - start - 1 for new in news])
        return self._forward(torch.tensor(padded), positions_BQ, first, last_B)

    def _forward(
        self, tokens_BQ: torch.Tensor, positions_BQ: torch.Tensor, first: int, last_B: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits at query `last_B` of each row, float32 [B, V]."""
        device = self.model.device
        length = int(positions_BQ.max()) + 1
        positions_BQ = positions_BQ.to(device)
        plan = self.cache.plan
        plan.start, plan.positions_BQ, plan.length = first, positions_BQ, length
        # Each query reads the keys up to its own position: causal, and blind to padding.
        mask_BQT = torch.arange(length, device=device) <= positions_BQ.unsqueeze(2)
        hidden_BQD = self.model.base_model(
            input_ids=tokens_BQ.to(device),
            position_ids=positions_BQ,
            attention_mask=mask_BQT.unsqueeze(1),
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        # The head runs on one position a row: logits of all positions would be [B, Q, V].
        rows = torch.arange(len(last_B), device=device)
        return self.model.lm_head(hidden_BQD[rows, last_B.to(device)]).float()
