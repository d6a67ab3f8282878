"""Numbers that are read off the hidden states of the trained tokens, without holding all logits at
once.

Logits are the largest tensor in training: 16,384 tokens of a vocabulary of 150,000 are 10 GB, twice
that with their gradient. Logits are computed a slice of tokens at a time and, where a gradient is
wanted, once more in the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..models.devices import at_least_float32
from ..models.loading import CausalLM
from ..rollout.batch import Batch

DROPPED = -1e4
"""The log-probability of a token that was left out."""
LOGITS_AT_ONCE = 1 << 26
"""Number of logits in a slice: 256 MB in float32."""

Reading = Callable[[Tensor, Tensor], Tensor]
"""A function from (log-probabilities [n, V], log-probability of the token [n]) to numbers [n, K].
"""


def read_logits(
    head: Callable[[Tensor], Tensor],
    hidden_ND: Tensor,
    tokens_N: Tensor,
    reading: Reading,
    *,
    at_once: int = LOGITS_AT_ONCE,
    restrict: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Apply `reading` to the log-probabilities after each hidden state.

    Args:
        head: maps hidden states [n, D] to logits [n, V].
        hidden_ND: hidden states.
        tokens_N: the token chosen after each hidden state; [N, K] for several of each.
        reading: works row by row, so slicing changes nothing.
        at_once: largest number of logits in a slice.
        restrict: changes logits [n, V], given the hidden states and the tokens of their places.

    Returns:
        [N, K], the results of `reading`.
    """

    def read(hidden: Tensor, tokens: Tensor) -> Tensor:
        logits = at_least_float32(head(hidden))
        if restrict is not None:
            logits = restrict(logits, hidden, tokens)
        logp = torch.log_softmax(logits, dim=-1)
        chosen = tokens.unsqueeze(1) if tokens.dim() == 1 else tokens
        return reading(logp, logp.gather(1, chosen).squeeze(1))

    with torch.no_grad():
        width = int(head(hidden_ND[:1]).shape[-1])  # the size of the vocabulary
    rows = max(1, at_once // width)
    if len(tokens_N) <= rows:
        return read(hidden_ND, tokens_N)
    slices = zip(hidden_ND.split(rows), tokens_N.split(rows), strict=True)
    again = torch.is_grad_enabled() and hidden_ND.requires_grad
    results: list[Any] = [
        checkpoint(read, *part, use_reentrant=False) if again else read(*part) for part in slices
    ]
    return torch.cat(results)


def logp(every: Tensor, chosen: Tensor) -> Tensor:
    """Return the log-probability of each token, [n, 1]."""
    return chosen.unsqueeze(1)


def logp_and_entropy(every: Tensor, chosen: Tensor) -> Tensor:
    """Return log-probability and entropy at each token, [n, 2]."""
    return torch.stack([chosen, -(every.exp() * every).sum(-1)], dim=1)


def score_norm(every: Tensor, chosen: Tensor) -> Tensor:
    """Return the squared norm of the score with respect to the logits, [n, 1]."""
    return (1 - 2 * chosen.exp() + (2 * every).exp().sum(-1)).unsqueeze(1)


def proxy_logp(every: Tensor, chosen: Tensor, *, ratio: float) -> Tensor:
    """Return the log-probability of each token under the distribution without its unlikely tokens,
    [n, 1].
    """
    # the sampled token is known here by its log-probability alone
    kept = every >= every.amax(-1, keepdim=True) + math.log(ratio)
    mass = torch.where(kept, every, -torch.inf).logsumexp(-1)
    survives = chosen >= every.amax(-1) + math.log(ratio)
    return torch.where(survives, chosen - mass, DROPPED).unsqueeze(1)


def new_value_head(model: CausalLM) -> torch.nn.Linear:
    """Make a linear map from a hidden state to a value, which is 0 everywhere at first."""
    width = model.config.get_text_config().hidden_size
    dtype = torch.promote_types(model.dtype, torch.float32)
    head = torch.nn.Linear(width, 1, device=model.device, dtype=dtype)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    return head


def scatter(values: Tensor, batch: Batch) -> Tensor:
    """Put values of the trained tokens back into [B, T]."""
    trained = batch.mask[:, 1:].bool()
    spread = values.new_zeros(trained.shape).masked_scatter(trained, values)
    return torch.nn.functional.pad(spread, (1, 0))
