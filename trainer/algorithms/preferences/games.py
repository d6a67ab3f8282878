"""Preference losses whose answers the policy itself has sampled, or that weigh several wishes:
SPPO, INPO, CoPG, HyPO, MODPO; and RSO, which chooses the answers.

`x`, `w` and `l` are as in `pairs`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..aggregation import Sum
from ..groups import group_index, group_size, group_sum
from ..masked import blank
from .pairs import log_ratio_sums, over_pairs, pair_means, pair_sums


def sppo_loss(
    logp: Tensor,
    ref_logp: Tensor,
    win_rates: Tensor,
    pairs: Tensor,
    chosen: Tensor,
    mask: Tensor,
    *,
    eta: float = 2.0,
) -> Sum:
    """SPPO: regress each log-ratio on how often the answer beats those of the policy before.

    `[(x_w - eta (P_w - 1/2))^2 + (x_l - eta (P_l - 1/2))^2] / 2`, mean over pairs. Its optimum is
    `pi_t exp(eta P) / Z` with `log Z` near `eta / 2`.

    Args:
        logp: [B, T].
        ref_logp: [B, T], of the policy pi_t that sampled the answers; detached.
        win_rates: [B], P: the probability that the row's answer beats an answer of pi_t; detached.
            1 for chosen and 0 for rejected answers is the hard form.
        pairs: [B] int.
        chosen: [B] in {0, 1}.
        mask: [B, T] in {0, 1}.
        eta: the step; 1 / beta in TRL's "sppo_hard", which also leaves out the half.

    Source: arXiv 2405.00675, equation 4.7.

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> pairs, chosen = torch.tensor([0, 0]), torch.tensor([1, 0])
    >>> sppo_loss(logp, ref, chosen, pairs, chosen, torch.ones(2, 1), eta=1.0)
    (tensor(0.2500), tensor(1.))
    """
    good, bad = log_ratio_sums(logp, ref_logp, pairs, chosen, mask)
    rates = win_rates.detach().to(logp.dtype)
    wins, losses = _of_answers(rates, pairs, chosen)
    errors = (good - eta * (wins - 0.5)).square() + (bad - eta * (losses - 0.5)).square()
    return over_pairs(errors / 2)


def inpo_loss(
    logp: Tensor,
    ref_logp: Tensor,
    old_logp: Tensor,
    pairs: Tensor,
    chosen: Tensor,
    mask: Tensor,
    *,
    eta: float = 0.005,
    tau: float = 0.001,
) -> Sum:
    """INPO: a step of mirror descent towards the Nash policy, from pairs that pi_t has sampled.

    `(h - 1 / (2 eta))^2`, `h = D(pi) - (tau / eta) D(ref) - (1 - tau / eta) D(pi_t)`, where D is
    the log-probability of the chosen answer minus that of the rejected one; mean over pairs.

    Args:
        logp: [B, T].
        ref_logp: [B, T], of the reference; detached.
        old_logp: [B, T], of pi_t; detached.
        pairs: [B] int.
        chosen: [B] in {0, 1}.
        mask: [B, T] in {0, 1}.
        eta: inverse of the step of mirror descent; the step is smaller for a larger eta.
        tau: strength of the pull towards the reference, at most eta.

    Source: arXiv 2407.00617, equation 10.

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> pairs, chosen = torch.tensor([0, 0]), torch.tensor([1, 0])
    >>> inpo_loss(logp, ref, ref, pairs, chosen, torch.ones(2, 1), eta=0.5, tau=0.25)  # (2 - 1)^2
    (tensor(1.), tensor(1.))
    """
    share = tau / eta
    anchor = share * ref_logp.detach() + (1 - share) * old_logp.detach()
    good, bad = pair_sums(logp - anchor, pairs, chosen, mask)
    return over_pairs((good - bad - 1 / (2 * eta)).square())


def copg_loss(
    logp: Tensor,
    ref_logp: Tensor,
    rewards: Tensor,
    pairs: Tensor,
    chosen: Tensor,
    mask: Tensor,
    *,
    beta: float = 0.1,
) -> Sum:
    """CoPG: contrast two answers by their rewards; right for answers of any sampling law.

    `-(r_1 - r_2 - (beta / 2) u) u`, `u = x_1 - x_2`, mean over pairs; its optimum is
    `ref exp(r / beta)` wherever the sampling law has support.

    Args:
        logp: [B, T].
        ref_logp: [B, T]; detached.
        rewards: [B], the reward of the row's answer; detached.
        pairs: [B] int.
        chosen: [B] in {0, 1}: which answer of the pair is the first; either order is the same.
        mask: [B, T] in {0, 1}.
        beta: strength of the pull towards the reference.

    Source: arXiv 2406.19185, equation 10.

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> pairs, first = torch.tensor([0, 0]), torch.tensor([1, 0])
    >>> rewards = torch.tensor([1.0, 0.0])
    >>> copg_loss(logp, ref, rewards, pairs, first, torch.ones(2, 1), beta=0.5)  # -(1 - 0.5) * 2
    (tensor(-1.), tensor(1.))
    """
    first, second = log_ratio_sums(logp, ref_logp, pairs, chosen, mask)
    first_gain, second_gain = _of_answers(rewards.detach().to(logp.dtype), pairs, chosen)
    gap = first - second
    return over_pairs(-(first_gain - second_gain - beta / 2 * gap) * gap)


def hypo_kl_loss(logp: Tensor, ref_logp: Tensor, groups: Tensor, mask: Tensor) -> Sum:
    """HyPO's online part: a loss whose gradient is that of `KL(pi || ref)`, from answers that the
    policy has just sampled.

    `sg[x - b] sum_t logp`, b the mean x of the other answers of the group; mean over answers. HyPO
    is `divide(*dpo_loss(...)) + lam * divide(*hypo_kl_loss(...))`, on different rows.

    Args:
        logp: [B, T], of the policy that sampled.
        ref_logp: [B, T]; detached.
        groups: [B] int, the prompt of each answer; an answer alone has no baseline.
        mask: [B, T] in {0, 1}.

    Returns:
        The value is no divergence: only its gradient is meant.

    Source: arXiv 2406.01462, equation 4.

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> hypo_kl_loss(logp, ref, torch.tensor([0, 0]), torch.ones(2, 1))  # 2 * -1 + -2 * -3
    (tensor(4.), tensor(2.))
    """
    ratios = blank((logp - ref_logp).detach(), mask).sum(-1)
    size = group_size(groups)
    others = (group_sum(ratios, groups) - ratios) / (size - 1).clamp(min=1)
    return over_pairs((ratios - others) * blank(logp, mask).sum(-1))


def modpo_loss(
    logp: Tensor,
    ref_logp: Tensor,
    margins: Tensor,
    pairs: Tensor,
    chosen: Tensor,
    mask: Tensor,
    *,
    beta: float = 0.1,
    weight: float = 0.5,
) -> Sum:
    """MODPO: DPO for one of several wishes, which leaves to the others what their rewards ask for.

    `-log sigmoid((beta (x_w - x_l) - (m_w - m_l)) / w)`, mean over pairs; its optimum is
    `ref exp((w r + m) / beta)`.

    Args:
        logp: [B, T].
        ref_logp: [B, T]; detached.
        margins: [B], m: the weighted sum of the other rewards of the row's answer; detached.
        pairs: [B] int, labelled by the one wish.
        chosen: [B] in {0, 1}.
        mask: [B, T] in {0, 1}.
        beta: as in DPO.
        weight: w, the weight of the wish that labelled the pairs; above 0.

    Raises:
        ValueError: the weight is not positive.

    Source: arXiv 2310.03708, equation 9, and the authors' code.

    >>> logp, ref = torch.tensor([[-1.0], [-3.0]]), torch.tensor([[-2.0], [-2.0]])
    >>> pairs, chosen = torch.tensor([0, 0]), torch.tensor([1, 0])
    >>> margins = torch.tensor([0.5, 0.0])
    >>> modpo_loss(logp, ref, margins, pairs, chosen, torch.ones(2, 1), beta=0.5)  # h = 0.5 / 0.5
    (tensor(0.3133), tensor(1.))
    """
    if not weight > 0:
        raise ValueError(f"weight must be positive, got {weight}")
    good, bad = log_ratio_sums(logp, ref_logp, pairs, chosen, mask)
    of_good, of_bad = _of_answers(margins.detach().to(logp.dtype), pairs, chosen)
    return over_pairs(-logsigmoid((beta * (good - bad) - (of_good - of_bad)) / weight))


def rso_mask(
    rewards: Tensor,
    groups: Tensor,
    *,
    keep: int,
    beta: float = 0.5,
    generator: torch.Generator | None = None,
) -> Tensor:
    """RSO: which of many answers to accept, so that those accepted follow `ref exp(r / beta)`.

    An answer that is left is accepted if `u < exp((r - max r of those left) / beta)`, u uniform;
    accepted ones are removed, until `keep` are.

    Args:
        rewards: [B].
        groups: [B] int, the prompt of each answer.
        keep: how many are accepted of each group; a smaller group is accepted whole.
        beta: small values accept the best alone, large ones any; 0.5 in the paper.
        generator: draws u.

    Returns:
        [B] bool.

    Source: arXiv 2309.06657, algorithm 1.

    >>> rso_mask(torch.tensor([0.0, 9.0, 1.0]), torch.tensor([0, 0, 0]), keep=1, beta=0.01)
    tensor([False,  True, False])
    """
    index = group_index(groups)
    accepted = torch.zeros(len(rewards), dtype=torch.bool, device=rewards.device)
    for group in range(int(index.max()) + 1 if len(index) else 0):
        left = (index == group).nonzero().flatten()
        # several may pass at once, and their order must not decide which of them are kept
        left = left[torch.randperm(len(left), generator=generator).to(left.device)]
        wanted = min(keep, len(left))
        while wanted:
            bound = ((rewards[left] - rewards[left].max()) / beta).exp()
            drawn = torch.rand(len(left), generator=generator).to(bound.device)
            taken = (drawn < bound).nonzero().flatten()[:wanted]
            accepted[left[taken]] = True
            left, wanted = left[~accepted[left]], wanted - len(taken)
    return accepted


def _of_answers(values: Tensor, pairs: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The value of each answer, [P] each, from values [B] that its rows repeat."""
    each = values.unsqueeze(1)
    return pair_means(each, pairs, chosen, torch.ones_like(each))
