"""Divergence from a reference policy, estimated on the sampled tokens.

With `x = logp - ref_logp`: k1 = x, k2 = x^2 / 2, k3 = e^-x - 1 + x. Sampled from pi, k1 and k3 have
the right mean value; but as a *loss* the expected gradient of k1 is 0, that of k3 is grad KL(ref ||
pi), and only that of k2 is grad KL(pi || ref), which a penalty should have. So k1 belongs in the
reward, and k2 (or k3+) in the loss.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from .aggregation import Agg, Sum, aggregate
from .masked import blank

Estimator = Literal["k1", "k2", "k3", "k3+"]
"""The estimator of a divergence from a single sampled token."""


def kl_k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """`x = log pi - log ref`, [...]: unbiased in value, any sign; gradient 1.

    Source: Schulman 2020, "Approximating KL divergence".

    >>> kl_k1(torch.tensor(0.5).log(), torch.tensor(0.25).log())
    tensor(0.6931)
    """
    return logp - ref_logp.detach()


def kl_k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """`x^2 / 2`, [...]: never negative; gradient x, in expectation that of KL(pi || ref).

    Source: Schulman 2020, "Approximating KL divergence".

    >>> kl_k2(torch.tensor(0.5).log(), torch.tensor(0.25).log())
    tensor(0.2402)
    """
    return (logp - ref_logp.detach()).square() / 2


def kl_k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """`e^-x - 1 + x`, [...]: never negative, unbiased in value; gradient 1 - e^-x.

    Source: Schulman 2020, "Approximating KL divergence".

    >>> kl_k3(torch.tensor(0.5).log(), torch.tensor(0.25).log())
    tensor(0.1931)
    """
    x = logp - ref_logp.detach()
    return torch.expm1(-x) + x


def kl_k3_plus(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """The value of k3 with the gradient of k2 (straight through), [...]: unbiased in both.

    `k2 + sg[k3 - k2]`.

    Source: verl "k3+".

    >>> logp = torch.tensor(0.5).log().requires_grad_()
    >>> value = kl_k3_plus(logp, torch.tensor(0.25).log())
    >>> value.backward(); round(value.item(), 4), round(logp.grad.item(), 4)
    (0.1931, 0.6931)
    """
    second = kl_k2(logp, ref_logp)
    return second + (kl_k3(logp, ref_logp) - second).detach()


ESTIMATORS = {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3, "k3+": kl_k3_plus}
"""The function of every estimator, by name."""


def kl(
    logp: Tensor,
    ref_logp: Tensor,
    mask: Tensor,
    *,
    estimator: Estimator = "k3",
    old_logp: Tensor | None = None,
    detach_ratio: bool = False,
    max_log_ratio: float | None = None,
    max_value: float | None = None,
) -> Tensor:
    """The estimate at every trained token, [B, T]; 0 elsewhere.

    Args:
        logp: [B, T].
        ref_logp: [B, T], of the reference policy; detached.
        mask: [B, T] in {0, 1}.
        estimator: "k1", "k2", "k3" or "k3+".
        old_logp: [B, T]; when given, each estimate is multiplied by `pi / old`, since the tokens
            came from old (DeepSeek-V3.2 with k3, open-instruct with k1).
        detach_ratio: whether the ratio `pi / old` counts as a constant in the gradient; in the
            trainers named above it does not.
        max_log_ratio: clamp x to +- this (20 in verl, none in TRL).
        max_value: clamp the estimate to +- this (10 in verl; slime only for "low_var_kl"; none in
            TRL).

    Source: Schulman 2020, "Approximating KL divergence"; DeepSeek-V3.2, arXiv 2512.02556.

    >>> pi, ref = torch.tensor([[0.5]]).log(), torch.tensor([[0.25]]).log()
    >>> kl(pi, ref, torch.ones(1, 1), old_logp=torch.tensor([[0.4]]).log())  # 1.25 * 0.193147
    tensor([[0.2414]])

    Raises:
        ValueError: an unknown estimator.
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator is one of {', '.join(ESTIMATORS)}, got {estimator!r}")
    x = blank(logp - ref_logp.detach(), mask)
    if max_log_ratio is not None:
        x = x.clamp(-max_log_ratio, max_log_ratio)
    # The estimators see only the difference of their arguments; `x` is that difference, clamped.
    value = ESTIMATORS[estimator](x, torch.zeros_like(x))
    if max_value is not None:
        value = value.clamp(-max_value, max_value)
    if old_logp is None:
        return value
    ratio = blank(logp - old_logp.detach(), mask).exp()
    return value * (ratio.detach() if detach_ratio else ratio)


def kl_loss(
    logp: Tensor,
    ref_logp: Tensor,
    mask: Tensor,
    *,
    coefficient: float = 1.0,
    estimator: Estimator = "k3",
    old_logp: Tensor | None = None,
    detach_ratio: bool = False,
    max_log_ratio: float | None = None,
    max_value: float | None = None,
    agg: Agg = "token_mean",
) -> Sum:
    """The divergence as a term of the loss: `coefficient * agg(kl)`, of [B, T] log-probabilities.

    Args:
        logp: see `kl`.
        ref_logp: see `kl`.
        mask: see `kl`.
        coefficient: loss per nat.
        estimator: "k2" or "k3+" for the gradient of KL(pi || ref); "k1" has none on average.
        old_logp: see `kl`.
        detach_ratio: see `kl`.
        max_log_ratio: see `kl`.
        max_value: see `kl`.
        agg: how token values become one number.

    Source: see `kl`.

    >>> pi, ref = torch.tensor([[0.5]]).log(), torch.tensor([[0.25]]).log()
    >>> kl_loss(pi, ref, torch.ones(1, 1), coefficient=0.1, estimator="k2")
    (tensor(0.0240), tensor(1.))
    """
    values = kl(
        logp,
        ref_logp,
        mask,
        estimator=estimator,
        old_logp=old_logp,
        detach_ratio=detach_ratio,
        max_log_ratio=max_log_ratio,
        max_value=max_value,
    )
    return aggregate(coefficient * values, mask, agg)


def kl_penalised_rewards(
    token_rewards: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, coefficient: float
) -> Tensor:
    """The divergence as a part of the reward: `r_t - coefficient * k1_t`, detached.

    Args:
        token_rewards: [B, T].
        logp: [B, T], of the policy that sampled.
        ref_logp: [B, T].
        mask: [B, T] in {0, 1}.
        coefficient: reward per nat.

    Source: Ziegler et al. 2019, arXiv 1909.08593.

    >>> pi, ref = torch.tensor([[0.5]]).log(), torch.tensor([[0.25]]).log()
    >>> kl_penalised_rewards(torch.ones(1, 1), pi, ref, torch.ones(1, 1), coefficient=0.1)
    tensor([[0.9307]])
    """
    return blank(token_rewards - coefficient * kl_k1(logp, ref_logp), mask).detach()


def adaptive_kl_coefficient(
    coefficient: float, divergence: float, *, target: float, horizon: float, steps: float
) -> float:
    """The controller of PPO for language models: raise the coefficient when the divergence is above
    target.

    `coefficient * (1 + clip(divergence / target - 1, -0.2, 0.2) * steps / horizon)`.

    Args:
        coefficient: the present coefficient.
        divergence: the measured divergence, nats.
        target: the wanted divergence, nats.
        horizon: the number of samples over which the coefficient changes by about 20 % at most.
        steps: samples since the last call.

    Source: Ziegler et al. 2019, arXiv 1909.08593, the controller of its KL coefficient.

    >>> adaptive_kl_coefficient(0.1, 12.0, target=6.0, horizon=100, steps=50)
    0.11000000000000001
    """
    error = min(max(divergence / target - 1, -0.2), 0.2)
    return coefficient * (1 + error * steps / horizon)
