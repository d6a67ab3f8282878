"""The loss that trains the value head."""

from __future__ import annotations

import torch
from torch import Tensor

from .aggregation import Agg, Sum, aggregate
from .masked import blank


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    value_clip: float | None = 0.2,
    agg: Agg = "token_mean",
) -> Sum:
    """Half the squared error, the worse of the plain and the clipped prediction.

    `0.5 max((v - ret)^2, (clip(v, v_old - c, v_old + c) - ret)^2)`.

    Args:
        values: [B, T].
        old_values: [B, T], when the batch was taken; detached.
        returns: [B, T], of `gae_advantages`; detached.
        mask: [B, T] in {0, 1}.
        value_clip: c: 0.2 in most trainers, 0.5 in verl; None is the plain error.
        agg: how token losses become one number.

    Source: the implementation of arXiv 1707.06347.

    >>> one = torch.ones(1, 1)
    >>> value_loss(one * 1.0, one * 0.0, one * 2.0, one)  # max(1, 1.8^2) / 2
    (tensor(1.6200), tensor(1.))
    """
    prediction, target = blank(values, mask), blank(returns.detach(), mask)
    errors = (prediction - target).square()
    if value_clip is not None:
        anchor = blank(old_values.detach(), mask)
        clipped = anchor + (prediction - anchor).clamp(-value_clip, value_clip)
        errors = torch.maximum(errors, (clipped - target).square())
    return aggregate(errors / 2, mask, agg)
