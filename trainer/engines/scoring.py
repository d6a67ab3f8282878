"""Log-probabilities of given texts, computed for many rows in a single forward pass.

Suffixes of tensors name their axes: B rows, T positions of the longest row, D the hidden size,
P positions whose logits are computed together, V the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ludus.agent.images import PlacedImage
from ludus.errors import ConfigError

from ..models.devices import LogitHead
from ..models.images import ImageReader, last_hidden
from ..models.loading import CausalLM
from .requests import spans

POSITIONS = 512
"""How many positions have their logits in memory at the same time. The logits of a long text over a
large vocabulary would need gigabytes.
"""


@dataclass(eq=False)
class Scoring:
    """A row of token ids to be scored, and the result once `score_rows` has run."""

    ids: list[int]
    """The token ids of one text, without padding."""
    images: tuple[PlacedImage, ...] = ()
    """The images that stand in `ids`."""
    logprobs: list[float] = field(default_factory=list[float])
    """One value for each id, in nats at temperature 1. The first is 0, because nothing comes before
    that id.
    """
    error: Exception | None = None
    """Why this row has no result."""

    def result(self) -> list[float]:
        """Return `logprobs`, or raise `error` if set."""
        if self.error is not None:
            raise self.error
        return self.logprobs


def score_rows(
    model: CausalLM,
    rows: Sequence[Scoring],
    *,
    head: LogitHead,
    max_tokens: int,
    reader: ImageReader | None = None,
) -> None:
    """Score rows; afterwards each row holds a result or an error.

    Rows of similar length share a pass, so that little of it is padding.

    Args:
        model: a causal language model.
        rows: the rows to be scored; they are changed in place.
        head: the model's head.
        max_tokens: the most tokens in one pass, with padding; a longer row has a pass to itself.
        reader: prepares images for the model; None for a model that reads no images.
    """
    usable = sorted((row for row in rows if _is_usable(row, model)), key=lambda row: len(row.ids))
    for part in spans([len(row.ids) for row in usable], max_tokens):
        try:
            _score(model, head, usable[part], reader)
        except Exception as error:  # out of memory, say: the rows of the other passes are unharmed
            for row in usable[part]:
                row.error = error


def _is_usable(row: Scoring, model: CausalLM) -> bool:
    """Say whether the row can be scored; if not, set its error.

    An id beyond the vocabulary would otherwise make the whole pass fail, with all of its rows.
    """
    size = model.get_input_embeddings().num_embeddings
    wrong = next((token for token in row.ids if not 0 <= token < size), None)
    if wrong is not None:
        row.error = ConfigError(f"cannot score token {wrong}: the model knows 0 to {size - 1}")
    elif not row.ids:
        row.error = ConfigError("cannot score an empty text")
    return row.error is None


def _score(
    model: CausalLM, head: LogitHead, rows: Sequence[Scoring], reader: ImageReader | None
) -> None:
    """Score rows in a single pass.

    Padding stands behind the ids, so a causal model needs no attention mask: no id of a row attends
    to a later position. Id 0 pads, since any valid id will do.
    """
    if not rows:
        return
    longest = max(len(row.ids) for row in rows)
    padded = [row.ids + [0] * (longest - len(row.ids)) for row in rows]
    ids_BT = torch.tensor(padded, device=model.device)
    hidden_BTD = last_hidden(model, ids_BT, [row.images for row in rows], reader)
    for row, ids_T, hidden_TD in zip(rows, ids_BT, hidden_BTD, strict=True):
        length = len(row.ids)
        row.logprobs = [0.0, *_next_logprobs(head, hidden_TD[: length - 1], ids_T[1:length])]


def _next_logprobs(head: LogitHead, hidden_TD: Tensor, targets_T: Tensor) -> list[float]:
    """Return the log-probability of each target, given the hidden state of the position before."""
    logps: list[float] = []
    for start in range(0, len(targets_T), POSITIONS):
        targets_P = targets_T[start : start + POSITIONS]
        logits_PV = head(hidden_TD[start : start + POSITIONS])
        picked_P1 = torch.log_softmax(logits_PV, dim=-1).gather(1, targets_P.unsqueeze(1))
        logps += picked_P1.squeeze(1).tolist()
    return logps
