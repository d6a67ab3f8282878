"""Sampling by inverse CDF from a uniform number per row.

A request draws uniforms from its own seed, so the sampled tokens do not depend on the other
requests that happen to share the batch.

Axes: B rows, V vocabulary.
"""

from __future__ import annotations

import torch


def sample(
    logits_BV: torch.Tensor,
    *,
    temperature_B: torch.Tensor,
    top_p_B: torch.Tensor,
    top_k_B: torch.Tensor,
    uniform_B: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a token for each row.

    Args:
        logits_BV: float32, any shape of finite values.
        temperature_B: 0 is greedy.
        top_p_B: 1 keeps all.
        top_k_B: -1 keeps all.
        uniform_B: in [0, 1).

    Returns:
        Token ids [B], and their log-probabilities [B] over all tokens at the temperature (1 where
        greedy). Truncation by top-p and top-k changes the distribution that is drawn from, not the
        reported log-probability.
    """
    greedy_B = temperature_B == 0
    scale_B = torch.where(greedy_B, torch.ones_like(temperature_B), temperature_B)
    logprobs_BV = torch.log_softmax(logits_BV / scale_B.unsqueeze(1), dim=-1)
    drawn_B = _draw(_truncated(logprobs_BV, top_p_B, top_k_B), uniform_B)
    ids_B = torch.where(greedy_B, logits_BV.argmax(dim=-1), drawn_B)
    return ids_B, logprobs_BV.gather(1, ids_B.unsqueeze(1)).squeeze(1)


def _draw(probabilities_BV: torch.Tensor, uniform_B: torch.Tensor) -> torch.Tensor:
    # In float64, since the rounding of a float32 sum over a large vocabulary is larger than the
    # probabilities of rare tokens. The uniform is scaled to the sum, which top-p and top-k make
    # smaller than 1.
    cumulative_BV = probabilities_BV.double().cumsum(dim=-1)
    target_B1 = uniform_B.double().unsqueeze(1) * cumulative_BV[:, -1:]
    ids_B = torch.searchsorted(cumulative_BV, target_B1, right=True).squeeze(1)
    # A uniform just below 1 can land past the last token with mass; step back onto it.
    last_B = (probabilities_BV > 0).long().cumsum(dim=-1).argmax(dim=-1)
    return torch.minimum(ids_B, last_B)


def _truncated(
    logprobs_BV: torch.Tensor, top_p_B: torch.Tensor, top_k_B: torch.Tensor
) -> torch.Tensor:
    """Return the probabilities with tokens outside the nucleus or the top k set to zero."""
    probabilities_BV = logprobs_BV.exp()
    if bool((top_p_B >= 1).all()) and bool((top_k_B < 0).all()):
        return probabilities_BV
    sorted_BV, order_BV = probabilities_BV.sort(dim=-1, descending=True)
    before_BV = sorted_BV.cumsum(dim=-1) - sorted_BV
    rank_V = torch.arange(sorted_BV.shape[1], device=sorted_BV.device)
    outside_k_BV = (top_k_B.unsqueeze(1) >= 0) & (rank_V >= top_k_B.clamp(min=1).unsqueeze(1))
    # The likeliest token stays in the nucleus also where top-p is 0.
    outside_BV = outside_k_BV | ((before_BV >= top_p_B.unsqueeze(1)) & (rank_V > 0))
    kept_BV = sorted_BV.masked_fill(outside_BV, 0.0)
    return torch.zeros_like(kept_BV).scatter(1, order_BV, kept_BV)
