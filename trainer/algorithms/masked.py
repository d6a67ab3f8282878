"""Sums, means and whitening over trained tokens only; values in masked slots never matter, not even
a NaN.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor


def blank(values: Tensor, mask: Tensor) -> Tensor:
    """`values` with every untrained slot set to 0, in value and in gradient.

    Args:
        values: [B, T], or [B] (one number per row, spread over its trained tokens).
        mask: [B, T] in {0, 1}.

    >>> blank(torch.tensor([[1.0, float("nan")]]), torch.tensor([[1, 0]]))
    tensor([[1., 0.]])
    """
    # `where` rather than a product: 0 * NaN is NaN, in the gradient as well.
    spread = values.unsqueeze(-1).expand(mask.shape) if values.dim() == mask.dim() - 1 else values
    return torch.where(
        mask.bool(), spread, torch.zeros((), dtype=values.dtype, device=values.device)
    )


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over trained tokens, 0 without any trained token.

    >>> masked_mean(torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[1, 1, 0]]))
    tensor(2.)
    """
    return blank(values, mask).sum() / mask.sum().clamp(min=1)


def row_means(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over each row's trained tokens: [B, T] to [B], 0 for a row without any.

    >>> row_means(torch.tensor([[1.0, 3.0], [5.0, 7.0]]), torch.tensor([[1, 1], [0, 0]]))
    tensor([2., 0.])
    """
    return blank(values, mask).sum(-1) / mask.sum(-1).clamp(min=1)


def whiten(
    values: Tensor,
    mask: Tensor,
    *,
    ddof: int = 1,
    eps: float = 1e-8,
    floor: Literal["add", "clamp"] = "add",
) -> Tensor:
    """Shift and scale to mean 0 and variance 1 over all trained tokens of the batch.

    `(x - mean) / sqrt(var + eps)`, or `/ sqrt(max(var, eps))` with `floor="clamp"`.

    Args:
        values: [B, T].
        mask: [B, T] in {0, 1}.
        ddof: 1 divides the variance by N - 1 (verl), 0 by N (OpenRLHF). A variance of one token is
            0.
        eps: added to, or the least value of, the variance.
        floor: "add" (verl) or "clamp" (OpenRLHF).

    Returns:
        [B, T], 0 in untrained slots, and everywhere where all values are equal; not finite where a
        trained value is not. It uses the tokens it is given: whiten the whole batch before
        splitting it.

    Source: verl `masked_whiten`, OpenRLHF's normalisation.

    >>> x = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    >>> whiten(x, torch.tensor([[1, 1], [1, 0]]), eps=0.0)
    tensor([[ 0.5774,  0.5774],
            [-1.1547,  0.0000]], dtype=torch.float64)
    """
    trained = values[mask.bool()]
    # The mean of equal values may be a rounding away from them, and a division by that spread would
    # make advantages of it.
    if bool((trained == trained[:1]).all()):
        return torch.zeros_like(values)
    centred = blank(values - masked_mean(values, mask), mask)
    variance = centred.square().sum() / (mask.sum() - ddof).clamp(min=1)
    scale = variance + eps if floor == "add" else variance.clamp(min=eps)
    # Squares of tiny values may add up to 0. What is not finite stays so, and is refused.
    return centred * torch.where(scale == 0, 1.0, scale).rsqrt()
