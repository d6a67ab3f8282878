"""Numbers that are read off the hidden states of the trained tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from ..models.loading import CausalLM
from ..rollout.batch import Batch


def logp(every: Tensor, chosen: Tensor) -> Tensor:
    """Return the log-probability of each token, [n, 1]."""
    return chosen.unsqueeze(1)


def logp_and_entropy(every: Tensor, chosen: Tensor) -> Tensor:
    """Return log-probability and entropy at each token, [n, 2]."""
    return torch.stack([chosen, -(every.exp() * every).sum(-1)], dim=1)


def score_norm(every: Tensor, chosen: Tensor) -> Tensor:
    """Return the squared norm of the score with respect to the logits, [n, 1]."""
    return (1 - 2 * chosen.exp() + (2 * every).exp().sum(-1)).unsqueeze(1)


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
