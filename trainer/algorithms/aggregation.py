"""Aggregation of token losses to a scalar, as (sum, weight): the division happens once, by the
weight of the whole batch.

    total, weight = 0.0, 0.0
    for part in micro_batches:
        part_sum, part_weight = ppo_clip_loss(...)
        ...
    loss = divide(total, weight)

Adding sums and weights over micro-batches and ranks, then dividing, gives the gradient of the
undivided batch. The mean of per-part means is a different loss: [1, 1, 1] and [4] have token mean
1.75, mean of means 2.5.

Rows are storage: a rollout may be cut into several (context summaries, a template that rewrites the
past). Sequences, their lengths and their number are those of rollouts, which `Owners` names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .groups import group_index, group_size, group_sum
from .masked import blank

Sum = tuple[Tensor, Tensor]
"""(sum, weight): two scalars; their quotient is the loss."""
Aggregator = Callable[[Tensor, Tensor], Sum]
"""(losses [B, T], mask [B, T]) to (sum, weight)."""
Agg = str | Aggregator
"""The name of an aggregation without options, or an `Aggregator`
(`functools.partial(fixed_length, length=3000)`).
"""
Rows = Literal["live", "all"]
"""Which rollouts a denominator counts: those with a trained token, or every one."""


class Owners(NamedTuple):
    """The rollout that each row is a part of, with what the whole batch holds of the rollout.

    The rows that an aggregation is given may be a micro-batch, or the share of one rank. Counts of
    the whole batch make the sums and weights of the parts add up to those of the whole.
    """

    tokens: Tensor
    """[B], the trained tokens of the row's rollout in the whole batch."""
    rows: Tensor
    """[B], the rows of the row's rollout in the whole batch."""
    held: Tensor | None = None
    """[B], how many of these are joined in this row; None means one."""

    @classmethod
    def of(cls, rollouts: Tensor, mask: Tensor) -> Owners:
        """Count over the given rows, which hold every row of their rollouts.

        Args:
            rollouts: [B] int, the rollout of each row.
            mask: [B, T] in {0, 1}.

        >>> mask = torch.tensor([[1, 1], [1, 0], [0, 1]])
        >>> Owners.of(torch.tensor([7, 3, 7]), mask).tokens
        tensor([3, 1, 3])
        """
        return cls(group_sum(mask.sum(-1), rollouts), group_size(rollouts))

    def shares(self, lengths: Tensor, rows: Rows) -> Tensor:
        """Return the part of its rollout that each row holds, [B]: a rollout's parts add up to 1.

        A row's part is the share of the trained tokens. Where the whole rollout has none, its rows
        have equal parts, or 0 with `rows` "live".

        Args:
            lengths: [B], the trained tokens of each row.
            rows: which rollouts are counted.

        Raises:
            ValueError: `rows` is neither "live" nor "all".
        """
        if rows not in ("live", "all"):
            raise ValueError(f"rows is 'live' or 'all', got {rows!r}")
        of_tokens = lengths / self.tokens.clamp(min=1).to(lengths.dtype)
        if rows == "live":
            return of_tokens
        held = torch.ones_like(self.rows) if self.held is None else self.held
        return torch.where(self.tokens > 0, of_tokens, held / self.rows.to(lengths.dtype))


def token_mean(losses: Tensor, mask: Tensor) -> Sum:
    """Mean over all trained tokens: `sum l m / sum m`.

    Every token weighs the same, so a long answer weighs more (DAPO, CISPO; verl "token-mean").

    Args:
        losses: [B, T].
        mask: [B, T] in {0, 1}.

    Returns:
        Sum and weight; both 0 when nothing is trained.

    Source: DAPO, arXiv 2503.14476, section 3.3.

    >>> losses = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]])
    >>> mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    >>> divide(*token_mean(losses, mask))
    tensor(2.5000)
    """
    return blank(losses, mask).sum(), mask.sum().to(losses.dtype)


def sequence_mean(
    losses: Tensor, mask: Tensor, *, rows: Rows = "live", owners: Owners | None = None
) -> Sum:
    """Mean over sequences of the token mean: `mean_i (sum_t l m / n_i)` (GRPO, GSPO; verl
    "seq-mean-token-mean").

    Args:
        losses: [B, T].
        mask: [B, T] in {0, 1}.
        rows: a rollout without trained tokens adds 0 to the sum; "live" leaves it out of the count
            (verl), "all" counts it (TRL). Whoever pads a batch with empty rows wants "live".
        owners: the rollout of each row, a rollout being the sequence; None takes every row for a
            rollout of its own.

    Source: DeepSeekMath, arXiv 2402.03300, equation 3.

    >>> losses = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]])
    >>> mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    >>> divide(*sequence_mean(losses, mask))
    tensor(3.)
    >>> divide(*sequence_mean(losses, mask, owners=Owners.of(torch.tensor([0, 0]), mask)))
    tensor(2.5000)
    """
    tokens = mask.sum(-1) if owners is None else owners.tokens
    means = blank(losses, mask).sum(-1) / tokens.clamp(min=1).to(losses.dtype)
    return means.sum(), _sequences(mask, rows, owners, losses)


def sequence_sum(
    losses: Tensor, mask: Tensor, *, rows: Rows = "live", owners: Owners | None = None
) -> Sum:
    """Mean over sequences of the token sum: `mean_i (sum_t l m)` (verl
    "seq-mean-token-sum").

    Args:
        losses: [B, T].
        mask: [B, T] in {0, 1}.
        rows: as in `sequence_mean`.
        owners: as in `sequence_mean`.

    Source: verl; the log-probability of a whole answer, as in RLOO, arXiv 2402.14740.

    >>> losses = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]])
    >>> mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    >>> divide(*sequence_sum(losses, mask))
    tensor(5.)
    """
    return blank(losses, mask).sum(), _sequences(mask, rows, owners, losses)


def fixed_length(
    losses: Tensor,
    mask: Tensor,
    *,
    length: float,
    rows: Literal["live", "all", "one"] = "all",
    owners: Owners | None = None,
) -> Sum:
    """Every token weighs the same constant: `sum l m / (sequences * length)`, free of length bias
    (Dr. GRPO).

    Args:
        losses: [B, T].
        mask: [B, T] in {0, 1}.
        length: tokens; the longest answer allowed. Fixed for a run: the padded width of a batch
            would change the step size from batch to batch.
        rows: how many rollouts the denominator counts: "all" (TRL "dr_grpo", the authors' code),
            "live", or "one", which does not divide by their number at all (verl
            "seq-mean-token-sum-norm"): its gradient then grows with the batch, and the parts of a
            split batch must not add their weights but share one.
        owners: as in `sequence_mean`.

    Source: arXiv 2503.20783, the objective of Dr. GRPO.

    >>> losses = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]])
    >>> mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    >>> divide(*fixed_length(losses, mask, length=10))
    tensor(0.5000)

    Raises:
        ValueError: `length` is not positive.
    """
    if not length > 0:
        raise ValueError(f"length must be positive, got {length!r}")
    total = blank(losses, mask).sum()
    if rows == "one":
        return total, total.new_tensor(length)
    return total, _sequences(mask, rows, owners, losses) * length


def prompt_mean(
    losses: Tensor, mask: Tensor, *, groups: Tensor, prompt_tokens: Tensor | None = None
) -> Sum:
    """Mean over prompts of the token mean over all answers:
    `mean_g (sum_{i in g} sum_t l m / N_g)` (ScaleRL).

    Args:
        losses: [B, T].
        mask: [B, T] in {0, 1}.
        groups: [B] int, the prompt of each row.
        prompt_tokens: [B], the trained tokens of each row's prompt in the whole batch (N_g). Needed
            when a prompt's rows are spread over micro-batches; counted from `mask` otherwise. The
            weight of a part is the share of prompts it holds, so parts add up to the number of
            prompts with a trained token.

    Source: ScaleRL, arXiv 2510.13786, section 3.2.

    >>> losses, mask = torch.tensor([[1.0, 2.0], [6.0, 0.0]]), torch.tensor([[1, 1], [1, 0]])
    >>> divide(*prompt_mean(losses, mask, groups=torch.tensor([0, 0])))
    tensor(3.)
    >>> divide(*prompt_mean(losses, mask, groups=torch.tensor([0, 1])))
    tensor(3.7500)
    """
    lengths = mask.sum(-1).to(losses.dtype)
    tokens = (
        group_sum(lengths, group_index(groups))
        if prompt_tokens is None
        else prompt_tokens.to(losses.dtype)
    )
    share = 1 / tokens.clamp(min=1)
    return (blank(losses, mask).sum(-1) * share).sum(), (lengths * share).sum()


AGGREGATIONS: dict[str, Aggregator] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "sequence_sum": sequence_sum,
    "sequence_mean_all_rows": partial(sequence_mean, rows="all"),
    "sequence_sum_all_rows": partial(sequence_sum, rows="all"),
}
"""Aggregations without options, by name."""

_WITH_OPTIONS = {
    "fixed_length": "length: agg=partial(fixed_length, length=...)",
    "prompt_mean": "groups: agg=partial(prompt_mean, groups=...)",
}


def aggregator(agg: Agg) -> Aggregator:
    """Return the aggregation that `agg` names.

    >>> aggregator("token_mean") is token_mean
    True

    Raises:
        ValueError: no aggregation has this name, or it needs an option.
    """
    if callable(agg):
        return agg
    if agg in AGGREGATIONS:
        return AGGREGATIONS[agg]
    if agg in _WITH_OPTIONS:
        raise ValueError(f"agg={agg!r} needs {_WITH_OPTIONS[agg]}")
    raise ValueError(
        f"agg={agg!r} is not one of {', '.join([*AGGREGATIONS, *_WITH_OPTIONS])}, nor a function"
    )


def aggregate(
    losses: Tensor, mask: Tensor, agg: Agg = "token_mean", *, weights: Tensor | None = None
) -> Sum:
    """Multiply by the correction `weights` (detached), then aggregate.

    Args:
        losses: [B, T].
        mask: [B, T] in {0, 1}; also what the denominators count.
        agg: how token losses become one number.
        weights: [B, T] or [B]; a weight of 0 drops a token from the sum and keeps it in the
            denominator. To drop a token from both, multiply the mask.

    >>> losses, mask = torch.tensor([[1.0, 2.0]]), torch.tensor([[1, 1]])
    >>> aggregate(losses, mask, weights=torch.tensor([[2.0, 0.0]]))
    (tensor(2.), tensor(2.))
    """
    kept = blank(losses, mask)
    if weights is not None:
        kept = kept * blank(weights.detach().to(losses.dtype), mask)
    return aggregator(agg)(kept, mask)


def divide(total: Tensor, weight: Tensor) -> Tensor:
    """`total / weight`, and 0 when the weight is 0, since a batch that trains nothing must not give
    NaN.

    >>> divide(torch.tensor(0.0), torch.tensor(0.0))
    tensor(0.)
    """
    return total / torch.where(weight > 0, weight, torch.ones_like(weight))


def _sequences(mask: Tensor, rows: Rows, owners: Owners | None, losses: Tensor) -> Tensor:
    """How many sequences the rows hold, a part of a sequence counting as its share."""
    lengths = mask.sum(-1)
    counted = Owners(lengths, torch.ones_like(lengths)) if owners is None else owners
    return counted.shares(lengths.to(losses.dtype), rows).sum()
