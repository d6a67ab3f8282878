"""Entropy of the policy: from logits, as a bonus in the loss, and a controller that maintains a
target.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .aggregation import Agg, Sum, aggregate


def logp_from_logits(logits: Tensor, actions: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Log-probabilities of the sampled tokens: [..., V] and [...] int to [...], computed in float32
    at least.

    Half-precision heads make the engine's and the trainer's probabilities differ; the softmax is
    taken in float32 (MiniMax-M1, arXiv 2506.13585). `temperature` is the sampler's: ratios are
    wrong without it.

    Source: temperature scaling; the float32 head is MiniMax-M1's.

    >>> logp_from_logits(torch.tensor([0.0, 3.0]).log1p(), torch.tensor(1)).exp()
    tensor(0.8000)
    """
    scaled = _wide(logits) / temperature
    return torch.log_softmax(scaled, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def entropy_from_logits(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Entropy in nats: `logsumexp z - sum p z`, [..., V] to [...]; a logit of -inf adds nothing.

    Source: Shannon's, of softmax(z / temperature).

    >>> entropy_from_logits(torch.tensor([1.0, 3.0]).log())
    tensor(0.5623)
    """
    logp = torch.log_softmax(_wide(logits) / temperature, -1)
    return -torch.where(torch.isneginf(logp), 0.0, logp.exp() * logp).sum(-1)


def entropy_loss(
    entropy: Tensor, mask: Tensor, *, coefficient: float, agg: Agg = "token_mean"
) -> Sum:
    """The bonus as a term of the loss: `-coefficient * agg(H)`.

    Args:
        entropy: [B, T], nats, with its gradient.
        mask: [B, T] in {0, 1}.
        coefficient: loss per nat.
        agg: how token values become one number.

    Source: Williams and Peng 1991; arXiv 1602.01783.

    >>> entropy_loss(torch.tensor([[0.5, 9.0]]), torch.tensor([[1, 0]]), coefficient=0.1)
    (tensor(-0.0500), tensor(1.))
    """
    return aggregate(-coefficient * entropy, mask, agg)


def adaptive_entropy_coefficient(
    coefficient: float, entropy: float, *, target: float, step: float = 0.005, least: float = 0.0
) -> tuple[float, float]:
    """Skywork's controller: (the next coefficient, the coefficient to apply now).

    The coefficient moves up by `step` when the entropy is at or below `target`, else down, never
    below `least`; the bonus is applied only while the entropy is at or below `target`.

    Source: Skywork-OR1, arXiv 2505.22312.

    >>> adaptive_entropy_coefficient(0.01, 0.1, target=0.2)
    (0.015, 0.015)
    >>> adaptive_entropy_coefficient(0.01, 0.3, target=0.2)
    (0.005, 0.0)
    """
    low = entropy <= target
    moved = max(coefficient + step if low else coefficient - step, least)
    return moved, moved if low else 0.0


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()
