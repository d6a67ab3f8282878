"""Draw every clip, weight, divergence and length reward as a curve, from the functions themselves.

    python docs/pictures/algorithms.py        # writes docs/pictures/algorithms-*.svg

What is drawn is measured: a batch of one token at each ratio, and the gradient autograd gives it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ludus.trainer import algorithms as A

HERE = Path(__file__).parent
GOOD, BAD, GREY = "#1f77b4", "#d95f02", "#b0b0b0"
RATIOS = torch.linspace(0.01, 3.0, 300, dtype=torch.float64)
X = torch.linspace(-3, 3, 241, dtype=torch.float64)

Curve = Callable[[Tensor], Tensor]


def surrogates() -> dict[str, Callable[..., tuple[Tensor, Tensor]]]:
    """Rows of one token, with the bounds the papers use; those on sequences widened to be seen."""

    def topr(logp: Tensor, old: Tensor, a: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        return A.topr_loss(logp, old, a, a, m)

    def minirl(logp: Tensor, old: Tensor, a: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        return A.minirl_loss(logp, old, old, a, m)

    def lp_reg(logp: Tensor, old: Tensor, a: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        held = m.bool() & (a.unsqueeze(1) < 0)
        return A.lp_reg_loss(logp, old, old - 0.2, a, m, selected=held)

    def decoupled(logp: Tensor, old: Tensor, a: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        return A.decoupled_ppo_loss(logp, old, old - math.log(1.5), a, m)

    def kl_cov(logp: Tensor, old: Tensor, a: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        return A.kl_cov_loss(logp, old, a, m, marked=m.bool(), coefficient=0.5)

    def hapo(logp: Tensor, old: Tensor, a: Tensor, m: Tensor, h: float) -> tuple[Tensor, Tensor]:
        return A.hapo_loss(logp, old, m, a, m, scale=h * m)

    return {
        "reinforce": lambda logp, old, a, m: A.reinforce_loss(logp, a, m),
        "ppo_clip  0.2 / 0.2": A.ppo_clip_loss,
        "dapo  0.2 / 0.28": A.dapo_loss,
        "dual_clip  c = 2": partial(A.dual_clip_loss, dual_clip=2.0),
        "two_sided_clip  delta = 2": partial(A.two_sided_clip_loss, delta=2.0),
        "decoupled_ppo  old / mu = 1.5": decoupled,
        "cispo  [0, 1.28]": A.cispo_loss,
        "cispo  [0.8, 1.28]": partial(A.cispo_loss, eps_low=0.2),
        "r2vpo  lambda 1, delta 0.05": lambda logp, old, a, m: A.r2vpo_loss(
            logp, old, a, m, multiplier=1.0, delta=0.05
        ),
        "dhpo  half and half": partial(
            A.dhpo_loss, mixing=0.5, eps_token=(0.2, 0.28), eps_sequence=(0.2, 0.28)
        ),
        "aipo  cap 2, mu = old": lambda logp, old, a, m: A.aipo_loss(logp, old, a, m, cap=2.0),
        "minpro  [0, 2]": partial(A.minpro_loss, eps_high=1.0),
        "minirl  mu = old": minirl,
        "topr": topr,
        "gspo  0.2 / 0.28": partial(A.gspo_loss, eps_low=0.2, eps_high=0.28),
        "gspo_token  0.2 / 0.28": partial(A.gspo_token_loss, eps_low=0.2, eps_high=0.28),
        "luspo  0.2 / 0.28": partial(A.luspo_loss, eps_low=0.2, eps_high=0.28),
        "gmpo  0.4 / 0.4 in log space": A.gmpo_loss,
        "sapo  tau 1 / 1.05": A.sapo_loss,
        "vespo  2, 3 if A > 0; 3, 2": A.vespo_loss,
        "hapo  h = 1 (undecided token)": partial(hapo, h=1.0),
        "hapo  h = -1 (decided token)": partial(hapo, h=-1.0),
        "lp_reg  held token, proxy 0.82 old": lp_reg,
        "kl_cov  marked token, c = 0.5": kl_cov,
        "kimi  tau = 0.5": partial(A.kimi_loss, tau=0.5),
        "kimi_k25  tau = 0.5": partial(A.kimi_k25_loss, tau=0.5),
    }


def gradient_weight(loss: Callable[..., tuple[Tensor, Tensor]], sign: float) -> Tensor:
    """How hard each token is pushed towards what its advantage asks, at each ratio."""
    logp = RATIOS.log().unsqueeze(1).requires_grad_()
    ones = torch.ones_like(RATIOS)
    # every ratio is a row of one token; the sum keeps them apart
    total, _ = loss(logp, torch.zeros_like(logp), sign * ones, ones.unsqueeze(1))
    (gradient,) = torch.autograd.grad(total, logp)
    return -sign * gradient.squeeze(1)


def draw_surrogates() -> Figure:
    """Small multiples: ratio on x, gradient weight on y."""
    figure, panels = _panels(5, 5, "gradient weight of one token over its ratio pi / old")
    for axes, (name, loss) in zip(panels, surrogates().items(), strict=True):
        axes.plot(RATIOS, RATIOS, color=GREY, lw=0.8, ls=":")
        axes.plot(RATIOS, gradient_weight(loss, 1.0), color=GOOD, lw=1.8, label="A > 0")
        axes.plot(RATIOS, gradient_weight(loss, -1.0), color=BAD, lw=1.8, ls="--", label="A < 0")
        axes.axvline(1.0, color=GREY, lw=0.6)
        axes.set(title=name, ylim=(-1.0, 3.1), xlim=(0, 3))
    panels[0].legend(loc="upper left", frameon=False)
    return figure


def draw_corrections() -> Figure:
    """What a token's loss is multiplied by, over old / mu; a filter keeps (1) or drops (0)."""
    mask = torch.ones(len(RATIOS), 1)
    ones = torch.ones(len(RATIOS), dtype=torch.float64)
    old, mu = RATIOS.log().unsqueeze(1), torch.zeros(len(RATIOS), 1, dtype=torch.float64)
    third = math.log(1 / 3)  # so that a probability of 1 is at a ratio of 3
    curves: dict[str, tuple[Tensor, ...]] = {
        "importance_weights": (A.importance_weights(old, mu, mask),),
        "tis_weights  cap 2": (A.tis_weights(old, mu, mask, cap=2.0),),
        "tis_weights  cap 2, floor 0.5": (A.tis_weights(old, mu, mask, cap=2.0, floor=0.5),),
        "mis_weights  [0.5, 2]": (A.mis_weights(old, mu, mask, low=0.5, high=2.0),),
        "ratio_band_mask  [0.5, 2]": (A.ratio_band_mask(old, mu, mask, low=0.5, high=2.0),),
        "trust_region_mask  0.1": tuple(
            A.trust_region_mask(old, mu, mask, threshold=0.1, statistic=statistic)
            for statistic in ("mean_k3", "max_k2")
        ),
        "opsm_mask  delta 0.5": tuple(
            A.opsm_mask(old, mu, sign * ones, mask, delta=0.5) for sign in (1.0, -1.0)
        ),
        "dppo_mask  delta 0.2, mu = 1/3": tuple(
            A.dppo_mask(old + third, mu + third, sign * ones, mask, delta=0.2)
            for sign in (1.0, -1.0)
        ),
    }
    names = {
        "trust_region_mask  0.1": ("mean k3", "max k2"),
        "opsm_mask  delta 0.5": ("A > 0", "A < 0"),
        "dppo_mask  delta 0.2, mu = 1/3": ("A > 0", "A < 0"),
    }
    figure, panels = _panels(4, 2, "weight of a row of one token over old / mu (trainer / sampler)")
    for axes, (name, lines) in zip(panels, curves.items(), strict=True):
        axes.plot(RATIOS, RATIOS, color=GREY, lw=0.8, ls=":")
        for place, curve in enumerate(lines):
            label = names[name][place] if name in names else None
            style = {"color": (GOOD, BAD)[place], "ls": ("-", "--")[place], "label": label}
            axes.plot(RATIOS, curve.reshape(-1).double(), lw=1.8, **style)
        if name in names:
            axes.legend(loc="upper left", frameon=False)
        axes.set(title=name, ylim=(-0.1, 3.1), xlim=(0, 3))
    return figure


def draw_divergences() -> Figure:
    """Value and gradient of each estimator, over x = log pi - log ref."""
    figure, panels = _panels(4, 1, "KL estimators over log pi - log ref")
    estimators = {"k1": A.kl_k1, "k2": A.kl_k2, "k3": A.kl_k3, "k3+": A.kl_k3_plus}
    for axes, (name, estimator) in zip(panels, estimators.items(), strict=True):
        x = X.clone().requires_grad_()
        value = estimator(x, torch.zeros_like(x))
        (gradient,) = torch.autograd.grad(value.sum(), x)
        axes.plot(X, value.detach(), color=GOOD, lw=1.8, label="value")
        axes.plot(X, gradient, color=BAD, lw=1.8, ls="--", label="gradient")
        axes.axhline(0, color=GREY, lw=0.6)
        axes.set(title=name, ylim=(-4, 6), xlim=(-3, 3))
    panels[0].legend(loc="upper left", frameon=False)
    return figure


def draw_lengths() -> Figure:
    """Reward over length, right and wrong; the limit is 1000 tokens."""
    lengths = torch.linspace(0, 1200, 241, dtype=torch.float64)
    right, wrong = torch.ones_like(lengths), torch.zeros_like(lengths)
    target = torch.full_like(lengths, 500.0)
    every: dict[str, Callable[[Tensor], Tensor]] = {
        "task + overlong_penalty  buffer 200": lambda c: (
            c + A.overlong_penalty_rewards(lengths, max_length=1000, buffer=200)
        ),
        "dler_truncation": lambda c: A.dler_truncation_rewards(c, lengths >= 1000),
        "l1_exact  target 500, alpha 0.001": lambda c: A.l1_exact_rewards(
            c, lengths, target, alpha=1e-3
        ),
        "l1_max  budget 500, alpha 0.001": lambda c: A.l1_max_rewards(
            c, lengths, target, alpha=1e-3
        ),
        "cosine  right 2..1, wrong -10..0 (/ 5)": lambda c: (
            A.cosine_rewards(c, lengths, max_length=1000) / 5
        ),
        "laser  target 500": lambda c: A.laser_rewards(c, lengths, 500.0),
        "curriculum_length  budget 500": lambda _: A.curriculum_length_rewards(lengths, budget=500),
        "hapo_history  best 300, w 0.3": lambda c: A.hapo_history_rewards(
            c, lengths, torch.full_like(lengths, 300.0), weight=0.3
        ),
    }
    figure, panels = _panels(4, 2, "reward over response length")
    for axes, (name, reward) in zip(panels, every.items(), strict=True):
        axes.plot(lengths, reward(right), color=GOOD, lw=1.8, label="right")
        axes.plot(lengths, reward(wrong), color=BAD, lw=1.8, ls="--", label="wrong")
        axes.axhline(0, color=GREY, lw=0.6)
        axes.set(title=name, ylim=(-2.2, 2.2), xlim=(0, 1200))
    panels[0].legend(loc="lower left", frameon=False)
    return figure


def draw_groups() -> Figure:
    """How much a prompt weighs in the update, over its accuracy: mean |A| of a group of 16."""
    figure, panels = _panels(4, 1, "mean |advantage| of a group of 16 over its accuracy")
    estimators: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "grpo  std of the group": A.grpo_advantages,
        "dr_grpo  no std": A.dr_grpo_advantages,
        "rloo": A.rloo_advantages,
        "pass_at_k  the lead of the best": A.pass_at_k_advantages,
    }
    groups, right = torch.zeros(16, dtype=torch.long), range(17)
    for axes, (name, estimator) in zip(panels, estimators.items(), strict=True):
        rows = [torch.tensor([1.0] * k + [0.0] * (16 - k)) for k in right]
        weights = [float(estimator(row, groups).abs().mean()) for row in rows]
        axes.plot([k / 16 for k in right], weights, color=GOOD, lw=1.8, marker="o", ms=3)
        axes.set(title=name, ylim=(-0.03, 1.05), xlim=(0, 1))
    return figure


PICTURES = {
    "surrogates": draw_surrogates,
    "corrections": draw_corrections,
    "divergences": draw_divergences,
    "lengths": draw_lengths,
    "groups": draw_groups,
}


def main() -> None:
    """Write every picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, help="folder (default: this one)")
    parser.add_argument("--format", default="svg", choices=["svg", "png"])
    arguments = parser.parse_args()
    # the same picture gives the same bytes, so that a change in git is a change of a curve
    mpl.rcParams["svg.hashsalt"] = "ludus"
    mpl.rcParams["axes.titlesize"] = 9
    for name, draw in PICTURES.items():
        path = arguments.out / f"algorithms-{name}.{arguments.format}"
        metadata = {"Date": None} if arguments.format == "svg" else None
        draw().savefig(path, metadata=metadata, dpi=110)


def _panels(columns: int, rows: int, title: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(3.0 * columns, 2.5 * rows + 0.4), layout="constrained")
    figure.suptitle(title)
    grid = figure.subplots(rows, columns, squeeze=False)
    panels = [axes for row in grid for axes in row]
    for axes in panels:
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


if __name__ == "__main__":
    main()
