"""Log-probabilities of given texts, with many rows in a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ludus.agent.images import PlacedImage
from ludus.errors import ConfigError

from ..vision import ImageReader, last_hidden
from .models import CausalLM
from .requests import spans

POSITIONS = 512
"""Positions whose logits are computed together: a vocabulary is wide, and a text may be long."""


@dataclass(eq=False)
class Scoring:
    """A row that waits to be scored."""

    ids: list[int]
    images: tuple[PlacedImage, ...] = ()
    """The images that stand in `ids`."""
    logprobs: list[float] = field(default_factory=list[float])
    error: Exception | None = None

    def result(self) -> list[float]:
        """Return the log-probability of each id in nats; raises what went wrong with this row."""
        if self.error is not None:
            raise self.error
        return self.logprobs


def score_rows(
    model: CausalLM, rows: Sequence[Scoring], *, max_tokens: int, reader: ImageReader | None = None
) -> None:
    """Score rows, short rows together; each row holds the result or the error afterwards.

    Args:
        model: a causal language model.
        rows: to be scored.
        max_tokens: padded tokens in one pass; a longer row goes alone.
        reader: of images; None for a model that reads none.
    """
    usable = sorted((row for row in rows if _is_usable(row, model)), key=lambda row: len(row.ids))
    for part in spans([len(row.ids) for row in usable], max_tokens):
        try:
            _score(model, usable[part], reader)
        except Exception as error:  # such as memory: told to those of this pass
            for row in usable[part]:
                row.error = error


def _is_usable(row: Scoring, model: CausalLM) -> bool:
    """Say whether the model knows every id; a row with any other id fails alone."""
    size = model.get_input_embeddings().num_embeddings
    wrong = next((token for token in row.ids if not 0 <= token < size), None)
    if wrong is not None:
        row.error = ConfigError(f"cannot score token {wrong}: the model knows 0 to {size - 1}")
    elif not row.ids:
        row.error = ConfigError("cannot score an empty text")
    return row.error is None


def _score(model: CausalLM, rows: Sequence[Scoring], reader: ImageReader | None) -> None:
    """Score rows in a single pass; padding comes last, where no token of a row attends."""
    if not rows:
        return
    longest = max(len(row.ids) for row in rows)
    padded = [row.ids + [0] * (longest - len(row.ids)) for row in rows]
    ids_BT = torch.tensor(padded, device=model.device)
    hidden_BTD = last_hidden(model, ids_BT, [row.images for row in rows], reader)
    for row, ids_T, hidden_TD in zip(rows, ids_BT, hidden_BTD, strict=True):
        length = len(row.ids)
        row.logprobs = [0.0, *_next_logprobs(model, hidden_TD[: length - 1], ids_T[1:length])]


def _next_logprobs(model: CausalLM, hidden_TD: Tensor, targets_T: Tensor) -> list[float]:
    """Return the log-probability of each target, given the hidden state before the target."""
    found: list[float] = []
    for start in range(0, len(targets_T), POSITIONS):
        targets_P = targets_T[start : start + POSITIONS]
        logits_PV = model.lm_head(hidden_TD[start : start + POSITIONS]).float()
        picked_P1 = torch.log_softmax(logits_PV, dim=-1).gather(1, targets_P.unsqueeze(1))
        found += picked_P1.squeeze(1).tolist()
    return found
