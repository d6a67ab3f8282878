"""Losses over pairs of a chosen and a rejected answer, and over answers that are good or bad: DPO
and its relatives.

`x` is the log-ratio of an answer, `sum_t (logp - ref_logp)` over its trained tokens; `w` is the
chosen answer of a pair and `l` the rejected one. An answer may be several rows: the sums are over
the answer. All rows of a pair must be in the same call.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..aggregation import Sum
from ..groups import group_index
from ..masked import blank


def pair_sums(values: Tensor, pairs: Tensor, chosen: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over the trained tokens of both answers of each pair.

    Args:
        values: [B, T].
        pairs: [B] int, the pair of each row.
        chosen: [B], 1 for rows of the chosen answer and 0 for rows of the rejected one.
        mask: [B, T] in {0, 1}.

    Returns:
        The sums of the chosen and of the rejected answers, [P] each, in ascending order of pairs.

    Raises:
        ValueError: a pair lacks one of its answers.

    >>> values, mask = torch.tensor([[1.0, 2.0], [5.0, 7.0]]), torch.tensor([[1, 1], [1, 0]])
    >>> pair_sums(values, torch.tensor([4, 4]), torch.tensor([0, 1]), mask)
    (tensor([5.]), tensor([3.]))
    """
    index, good = group_index(pairs), chosen.bool()
    count = int(index.max()) + 1 if len(index) else 0
    sides = 2 * index + good
    rows = torch.bincount(sides, minlength=2 * count)
    if len(index) and int(rows.min()) == 0:
        raise ValueError(f"{int((rows == 0).sum())} of {count} pairs lack an answer in this call")
    per_row = blank(values, mask).sum(-1)
    sums = per_row.new_zeros(2 * count).index_add(0, sides, per_row).view(count, 2)
    return sums[:, 1], sums[:, 0]


def log_ratio_sums(
    logp: Tensor, ref_logp: Tensor, pairs: Tensor, chosen: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The log-ratios `x_w` and `x_l` of each pair, [P] each; see `pair_sums`.

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> pairs, chosen = torch.tensor([0, 0]), torch.tensor([1, 0])
    >>> log_ratio_sums(logp, ref, pairs, chosen, torch.ones(2, 1))
    (tensor([1.]), tensor([-1.]))
    """
    return pair_sums(logp - ref_logp.detach(), pairs, chosen, mask)


def pair_means(
    values: Tensor, pairs: Tensor, chosen: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The mean over the trained tokens of both answers of each pair, [P] each; 0 for an answer
    without any.

    >>> values, mask = torch.tensor([[1.0, 2.0], [5.0, 7.0]]), torch.tensor([[1, 1], [1, 0]])
    >>> pair_means(values, torch.tensor([0, 0]), torch.tensor([0, 1]), mask)
    (tensor([5.]), tensor([1.5000]))
    """
    sums = pair_sums(values, pairs, chosen, mask)
    tokens = pair_sums(torch.ones_like(values), pairs, chosen, mask)
    return sums[0] / tokens[0].clamp(min=1), sums[1] / tokens[1].clamp(min=1)


def dpo_loss(
    logp: Tensor,
    ref_logp: Tensor,
    pairs: Tensor,
    chosen: Tensor,
    mask: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
) -> Sum:
    """DPO: classify which answer was chosen by the log-ratios; with `label_smoothing` it is cDPO.

    `-(1 - e) log sigmoid(h) - e log sigmoid(-h)`, `h = beta (x_w - x_l)`, mean over pairs. Under
    Bradley and Terry its optimum is `ref exp(r / beta)`.

    Args:
        logp: [B, T].
        ref_logp: [B, T], of the reference policy; detached.
        pairs: [B] int.
        chosen: [B] in {0, 1}.
        mask: [B, T] in {0, 1}.
        beta: strength of the pull towards the reference; 0.1 in the paper and in TRL.
        label_smoothing: e, the share of labels that are taken to be wrong (cDPO); 0 is DPO.

    Source: arXiv 2305.18290, equation 7. cDPO: E. Mitchell, "A note on DPO with noisy preferences"
    (2023); TRL smooths labels only in its "robust" loss, which is `rdpo_loss`.

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> pairs, chosen = torch.tensor([0, 0]), torch.tensor([1, 0])
    >>> dpo_loss(logp, ref, pairs, chosen, torch.ones(2, 1), beta=0.5)  # -log sigmoid(1)
    (tensor(0.3133), tensor(1.))
    """
    good, bad = log_ratio_sums(logp, ref_logp, pairs, chosen, mask)
    logits = beta * (good - bad)
    losses = -(1 - label_smoothing) * logsigmoid(logits) - label_smoothing * logsigmoid(-logits)
    return over_pairs(losses)


def rdpo_loss(
    logp: Tensor,
    ref_logp: Tensor,
    pairs: Tensor,
    chosen: Tensor,
    mask: Tensor,
    *,
    beta: float = 0.1,
    flip_rate: float = 0.1,
) -> Sum:
    """rDPO: DPO whose mean over labels flipped at a known rate is DPO on the true labels.

    `[-(1 - e) log sigmoid(h) + e log sigmoid(-h)] / (1 - 2 e)`, `h = beta (x_w - x_l)`, mean over
    pairs. It is unbounded below: too large a rate lets the margin grow for ever.

    Args:
        logp: [B, T].
        ref_logp: [B, T]; detached.
        pairs: [B] int.
        chosen: [B] in {0, 1}.
        mask: [B, T] in {0, 1}.
        beta: as in DPO.
        flip_rate: e, the share of flipped labels, below one half.

    Raises:
        ValueError: a rate outside of [0, 0.5).

    Source: arXiv 2403.00409; TRL's "robust".

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> pairs, chosen = torch.tensor([0, 0]), torch.tensor([1, 0])
    >>> rdpo_loss(logp, ref, pairs, chosen, torch.ones(2, 1), beta=0.5, flip_rate=0.25)
    (tensor(-0.1867), tensor(1.))
    """
    if not 0 <= flip_rate < 0.5:
        raise ValueError(f"flip_rate must be in [0, 0.5), got {flip_rate}")
    good, bad = log_ratio_sums(logp, ref_logp, pairs, chosen, mask)
    logits = beta * (good - bad)
    kept = (1 - flip_rate) * logsigmoid(logits) - flip_rate * logsigmoid(-logits)
    return over_pairs(-kept / (1 - 2 * flip_rate))


def ipo_loss(
    logp: Tensor,
    ref_logp: Tensor,
    pairs: Tensor,
    chosen: Tensor,
    mask: Tensor,
    *,
    tau: float = 0.1,
    average: bool = True,
) -> Sum:
    """IPO: regress the margin of the log-ratios on `1 / (2 tau)`, so that labels without doubt do
    not push it to infinity.

    `(x_w - x_l - 1 / (2 tau))^2`, mean over pairs.

    Args:
        logp: [B, T].
        ref_logp: [B, T]; detached.
        pairs: [B] int.
        chosen: [B] in {0, 1}.
        mask: [B, T] in {0, 1}.
        tau: strength of the pull towards the reference (TRL's beta).
        average: whether x is the mean over an answer's tokens, as in TRL, whose authors report that
            the paper's results were made so; False is the paper's formula, the sum.

    Source: arXiv 2310.12036, equation 17.

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> pairs, chosen = torch.tensor([0, 0]), torch.tensor([1, 0])
    >>> ipo_loss(logp, ref, pairs, chosen, torch.ones(2, 1), tau=0.5)  # (2 - 1)^2
    (tensor(1.), tensor(1.))
    """
    reduce = pair_means if average else pair_sums
    good, bad = reduce(logp - ref_logp.detach(), pairs, chosen, mask)
    return over_pairs((good - bad - 1 / (2 * tau)).square())


def slic_loss(
    logp: Tensor,
    ref_logp: Tensor,
    pairs: Tensor,
    chosen: Tensor,
    mask: Tensor,
    *,
    beta: float = 0.1,
) -> Sum:
    """SLiC as a hinge on the log-ratios: `max(0, 1 - beta (x_w - x_l))`, mean over pairs.

    Args:
        logp: [B, T].
        ref_logp: [B, T]; detached.
        pairs: [B] int.
        chosen: [B] in {0, 1}.
        mask: [B, T] in {0, 1}.
        beta: inverse of the margin that is asked for.

    Source: arXiv 2305.10425, in the form of arXiv 2309.06657; TRL's "hinge".

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> pairs, chosen = torch.tensor([0, 0]), torch.tensor([1, 0])
    >>> slic_loss(logp, ref, pairs, chosen, torch.ones(2, 1))  # 1 - 0.1 * 2
    (tensor(0.8000), tensor(1.))
    """
    good, bad = log_ratio_sums(logp, ref_logp, pairs, chosen, mask)
    return over_pairs(torch.relu(1 - beta * (good - bad)))


def simpo_loss(
    logp: Tensor,
    pairs: Tensor,
    chosen: Tensor,
    mask: Tensor,
    *,
    beta: float = 2.0,
    gamma: float = 0.5,
) -> Sum:
    """SimPO: DPO on mean log-probabilities, with a margin and without a reference.

    `-log sigmoid(beta (m_w - m_l) - gamma)`, m the mean of an answer's log-probabilities, mean over
    pairs.

    Args:
        logp: [B, T].
        pairs: [B] int.
        chosen: [B] in {0, 1}.
        mask: [B, T] in {0, 1}.
        beta: scale of the mean log-probability; 2 to 10 in the paper.
        gamma: the margin; 0.5 in TRL.

    Source: arXiv 2405.14734, equation 6.

    >>> logp, pairs = torch.tensor([[-1.0], [-2.0]]), torch.tensor([0, 0])
    >>> chosen = torch.tensor([1, 0])
    >>> simpo_loss(logp, pairs, chosen, torch.ones(2, 1), beta=1.5)  # -log sigmoid(1)
    (tensor(0.3133), tensor(1.))
    """
    good, bad = pair_means(logp, pairs, chosen, mask)
    return over_pairs(-logsigmoid(beta * (good - bad) - gamma))


def orpo_loss(
    logp: Tensor, pairs: Tensor, chosen: Tensor, mask: Tensor, *, lam: float = 0.1
) -> Sum:
    """ORPO: the likelihood of the chosen answer, and its odds against those of the rejected one.

    `-m_w - lam log sigmoid(odds(m_w) - odds(m_l))`, `odds(m) = m - log(1 - e^m)`, m the mean of an
    answer's log-probabilities, mean over pairs. There is no reference.

    Args:
        logp: [B, T].
        pairs: [B] int.
        chosen: [B] in {0, 1}.
        mask: [B, T] in {0, 1}.
        lam: weight of the odds (TRL's beta).

    Source: arXiv 2403.07691, equations 6 and 7. The first part is over the answer's tokens and a
    mean of pairs; TRL's is over the tokens of prompt and answer, and a mean over all of the batch.

    >>> logp, pairs = torch.tensor([[0.5], [0.25]]).log(), torch.tensor([0, 0])
    >>> orpo_loss(logp, pairs, torch.tensor([1, 0]), torch.ones(2, 1), lam=1.0)  # ln 2 + ln(4 / 3)
    (tensor(0.9808), tensor(1.))
    """
    good, bad = pair_means(logp, pairs, chosen, mask)
    return over_pairs(-good - lam * logsigmoid(log_odds(good) - log_odds(bad)))


def log_odds(logp: Tensor) -> Tensor:
    """The log-odds `m - log(1 - e^m)` of a log-probability, exact near 0 and far below.

    >>> log_odds(torch.tensor([0.5, 0.25]).log())
    tensor([ 0.0000, -1.0986])
    """
    # A probability of 1 has infinite odds; the least log-probability below 0 keeps them finite.
    below = logp.clamp(max=-torch.finfo(logp.dtype).tiny)
    return below - torch.log(-torch.expm1(below))


def kto_loss(
    logp: Tensor,
    ref_logp: Tensor,
    answers: Tensor,
    good: Tensor,
    shift: Tensor,
    mask: Tensor,
    *,
    beta: float = 0.1,
    good_weight: float = 1.0,
    bad_weight: float = 1.0,
) -> Sum:
    """KTO: answers that are good or bad by themselves, against the mean log-ratio of answers to
    other prompts.

    `1 - sigmoid(beta (x - z))` for a good answer, `1 - sigmoid(beta (z - x))` for a bad one, each
    by its weight; mean over answers.

    Args:
        logp: [B, T].
        ref_logp: [B, T]; detached.
        answers: [B] int, the answer of each row.
        good: [B] in {0, 1}.
        shift: scalar z of `kto_shift`; detached.
        mask: [B, T] in {0, 1}.
        beta: as in DPO.
        good_weight: lambda_D. The paper asks for good_weight * good answers to be 1 to 4/3 of
            bad_weight * bad answers.
        bad_weight: lambda_U.

    Source: arXiv 2402.01306, equations 7 and 8.

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> answers, good = torch.tensor([0, 1]), torch.tensor([1, 0])
    >>> kto_loss(logp, ref, answers, good, torch.tensor(0.0), torch.ones(2, 1), beta=1.0)
    (tensor(0.5379), tensor(2.))
    """
    index = group_index(answers)
    count = int(index.max()) + 1 if len(index) else 0
    per_row = blank(logp - ref_logp.detach(), mask).sum(-1)
    ratios = per_row.new_zeros(count).index_add(0, index, per_row)
    is_good = torch.zeros(count, dtype=torch.bool, device=logp.device)
    is_good[index] = good.bool()
    sign = 2 * is_good.to(ratios.dtype) - 1
    # by arithmetic: `where` of two Python numbers would round them to float32
    weights = bad_weight + (good_weight - bad_weight) * is_good.to(ratios.dtype)
    return over_pairs(weights * (1 - torch.sigmoid(beta * sign * (ratios - shift.detach()))))


def kto_shift(logp: Tensor, ref_logp: Tensor, answers: Tensor, mask: Tensor) -> Tensor:
    """KTO's z: the mean log-ratio of answers to prompts that they do not belong to, at least 0.

    Args:
        logp: [B, T], of rows in which each prompt is followed by another prompt's answer.
        ref_logp: [B, T].
        answers: [B] int.
        mask: [B, T] in {0, 1}.

    Returns:
        A scalar without gradient; 0 without rows.

    Source: arXiv 2402.01306, section 4.1; TRL takes the answer of the neighbour in a batch.

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.5]])
    >>> kto_shift(logp, ref, torch.tensor([0, 1]), torch.ones(2, 1))  # (1 - 0.5) / 2
    tensor(0.2500)
    """
    total = blank((logp - ref_logp).detach(), mask).sum()
    return (total / max(1, len(torch.unique(answers)))).clamp(min=0)


def over_pairs(losses: Tensor) -> Sum:
    """The sum of the losses and their number, as every loss returns them.

    >>> over_pairs(torch.tensor([1.0, 2.0]))
    (tensor(3.), tensor(2.))
    """
    return losses.sum(), losses.new_tensor(float(len(losses)))
