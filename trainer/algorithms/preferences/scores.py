"""Losses of reward models: scores of answers against rankings and ratings of people."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..aggregation import Sum
from ..groups import group_index
from .pairs import over_pairs


def bradley_terry_loss(
    scores: Tensor, groups: Tensor, ranks: Tensor, margins: Tensor | None = None
) -> Sum:
    """Bradley and Terry: the better answer of every pair wins with `sigmoid(s_i - s_j)`.

    `-log sigmoid(s_i - s_j - m)`, mean over the pairs of a ranking, then over rankings.

    Args:
        scores: [N], a number for each answer.
        groups: [N] int, the ranking of each answer.
        ranks: [N], the least is the best; equal ranks are a tie and compare nothing.
        margins: [N], m of the answer's ranking, by which the better answer shall win; None is 0.

    Source: Bradley and Terry (1952); InstructGPT, arXiv 2203.02155, equation 1, whose mean over the
    pairs of a prompt this is; ImageReward, arXiv 2304.05977; margins: Llama 2, arXiv 2307.09288,
    equation 2.

    >>> scores, ranks = torch.tensor([1.0, 0.0]), torch.tensor([1, 2])
    >>> bradley_terry_loss(scores, torch.tensor([0, 0]), ranks)  # -log sigmoid(1)
    (tensor(0.3133), tensor(1.))
    """
    losses: list[Tensor] = []
    for rows in _members(groups):
        # The better and the worse answer of each pair that is no tie.
        ordered = ranks[rows].unsqueeze(1) < ranks[rows].unsqueeze(0)
        better, worse = ordered.nonzero(as_tuple=True)
        if not len(better):
            continue
        gaps = scores[rows][better] - scores[rows][worse]
        if margins is not None:
            gaps = gaps - margins[rows][better]
        losses.append(-logsigmoid(gaps).mean())
    return over_pairs(torch.stack(losses)) if losses else over_pairs(scores[:0])


def plackett_luce_loss(scores: Tensor, groups: Tensor, ranks: Tensor) -> Sum:
    """Plackett and Luce: the likelihood of a whole ranking, chosen best first from what is left.

    `-sum_k (s_k - log sum_{j ranked k or worse} exp s_j)` over all but the last place, mean over
    rankings. Answers that tie share the sum of all that are ranked as high or worse (Breslow).

    Args:
        scores: [N].
        groups: [N] int.
        ranks: [N], the least is the best.

    Source: Plackett (1975), Luce (1959); of two answers it is Bradley and Terry's.

    >>> scores, ranks = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([1, 2, 3])
    >>> plackett_luce_loss(scores, torch.tensor([0, 0, 0]), ranks)  # log(1 + 2 / e) + log 2
    (tensor(1.2446), tensor(1.))
    """
    losses: list[Tensor] = []
    for rows in _members(groups):
        strengths, place = scores[rows], ranks[rows]
        if not bool((place != place[0]).any()):
            continue
        beaten = place.unsqueeze(0) >= place.unsqueeze(1)
        remainder = torch.where(beaten, strengths.unsqueeze(0), -torch.inf).logsumexp(1)
        last = place == place.max()
        losses.append(torch.where(last, 0.0, remainder - strengths).sum())
    return over_pairs(torch.stack(losses)) if losses else over_pairs(scores[:0])


def rating_loss(scores: Tensor, ratings: Tensor) -> Sum:
    """Half the squared error of scores against ratings, mean over answers.

    Args:
        scores: [N].
        ratings: [N].

    Source: least squares.

    >>> rating_loss(torch.tensor([1.0]), torch.tensor([3.0]))
    (tensor(2.), tensor(1.))
    """
    return over_pairs((scores - ratings).square() / 2)


def _members(groups: Tensor) -> list[Tensor]:
    """The rows of each group."""
    index = group_index(groups)
    count = int(index.max()) + 1 if len(index) else 0
    return [(index == group).nonzero().flatten() for group in range(count)]
