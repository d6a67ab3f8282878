"""The losses of the Tinker API by name, as calls of the library.

All are sums over positions. A clip is given by the bounds of the ratio itself, as numbers in the
request's settings or as a tensor with a number for each position; ludus's own losses take the
distances from 1. What a name means here and is nowhere published (`gspo`) is the library's loss.

Axes: B rows, T positions, K targets of a position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ludus.errors import ConfigError, UnknownName

from ..algorithms import cispo_loss, gspo_loss, policy_ratio, ppo_clip_loss

LOW, HIGH = "clip_low_threshold", "clip_high_threshold"
BOUNDS = {LOW: 0.8, HIGH: 1.2}
"""The bounds of the ratio where a request names none; those of PPO with an epsilon of 0.2."""
UNSERVED = {
    "dro": "its formula is not published",
    "stable_reinforce": "its formula is not published; start the client with another loss_fn",
    "custom": "traced losses run in the client; this server announces none",
}
"""Losses that the SDK knows and nobody but its own server can compute, each with the reason."""


class UnknownLoss(UnknownName):
    """No loss has this name."""

    kind = "loss_fn"


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What a loss reads, on the device of the model."""

    logp: Tensor
    """[B, T, K], in nats; 0 where there is no target."""
    mask: Tensor
    """[B, T] in {0, 1}: positions with a target."""
    tensors: Mapping[str, Tensor]
    """[B, T, K] by name."""
    config: Mapping[str, float | str]

    def plain(self, name: str) -> Tensor:
        """Return a tensor [B, T]."""
        return self.tensors[name].squeeze(-1)

    def bound(self, name: str) -> Tensor:
        """Return a bound of the ratio for each position, [B, T]."""
        if name in self.tensors:
            return self.plain(name)
        return self.mask.new_full(self.mask.shape, float(self.config.get(name, BOUNDS[name])))


def cross_entropy(inputs: LossInputs) -> Tensor:
    """`-sum w log pi`; weights may be negative, since clients send gradients as weights."""
    return -(inputs.logp * inputs.tensors["weights"]).sum()


def importance_sampling(inputs: LossInputs) -> Tensor:
    """`-sum (pi / mu) A`, mu the sampler."""
    ratio = policy_ratio(inputs.logp.squeeze(-1), inputs.plain("logprobs"), inputs.mask)
    return -(ratio * inputs.plain("advantages") * inputs.mask).sum()


def ppo(inputs: LossInputs) -> Tensor:
    """`ppo_clip_loss`, summed."""
    # The bounds are tensors, which the library's arithmetic takes as it takes numbers.
    low: Any = 1 - inputs.bound(LOW)
    high: Any = inputs.bound(HIGH) - 1
    return ppo_clip_loss(*_ratio_inputs(inputs), eps_low=low, eps_high=high, agg="token_mean")[0]


def cispo(inputs: LossInputs) -> Tensor:
    """`cispo_loss`, summed."""
    low: Any = 1 - inputs.bound(LOW)
    high: Any = inputs.bound(HIGH) - 1
    return cispo_loss(*_ratio_inputs(inputs), eps_low=low, eps_high=high, agg="token_mean")[0]


def gspo(inputs: LossInputs) -> Tensor:
    """`gspo_loss`, laid on the tokens of `sequence_ratio_mask` and summed."""
    logp, old_logp, advantages, _ = _ratio_inputs(inputs)
    mask = inputs.plain("sequence_ratio_mask") * inputs.mask
    low, high = (float(inputs.config.get(name, BOUNDS[name])) for name in (LOW, HIGH))
    return gspo_loss(
        logp, old_logp, advantages, mask, eps_low=1 - low, eps_high=high - 1, agg="token_mean"
    )[0]


def _ratio_inputs(inputs: LossInputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logp, advantages = inputs.logp.squeeze(-1), inputs.plain("advantages")
    return logp, inputs.plain("logprobs"), advantages, inputs.mask


@dataclass(frozen=True, slots=True)
class NamedLoss:
    """A loss with the tensors that the loss reads besides `target_tokens`."""

    compute: Callable[[LossInputs], Tensor]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    several: bool = False
    """Whether a position may have several targets."""


_CLIPPED = ("logprobs", "advantages"), (LOW, HIGH), (LOW, HIGH)
LOSSES = {
    "cross_entropy": NamedLoss(cross_entropy, ("weights",), several=True),
    "importance_sampling": NamedLoss(importance_sampling, ("logprobs", "advantages")),
    "ppo": NamedLoss(ppo, *_CLIPPED),
    "cispo": NamedLoss(cispo, *_CLIPPED),
    "gspo": NamedLoss(
        gspo, ("logprobs", "advantages", "sequence_ratio_mask"), settings=(LOW, HIGH)
    ),
}


def find_loss(name: str, config: Mapping[str, float | str]) -> NamedLoss:
    """Return the loss of a name.

    Raises:
        UnknownLoss: there is none; the message has the nearest name.
        ConfigError: the loss is known and not served, or does not take a setting, or the bounds
            of its ratio are in the wrong order.
    """
    if name in UNSERVED:
        raise ConfigError(f"loss_fn {name!r} is not served: {UNSERVED[name]} (served: {_served()})")
    if name not in LOSSES:
        raise UnknownLoss.near(name, LOSSES, hint=f"served: {_served()}")
    loss = LOSSES[name]
    if unknown := sorted(set(config) - set(loss.settings)):
        takes = ", ".join(loss.settings) or "none"
        raise ConfigError(f"loss_fn {name!r} takes no setting {unknown[0]!r}; it takes {takes}")
    if wrong := [key for key, value in config.items() if isinstance(value, str)]:
        raise ConfigError(f"{wrong[0]} must be a number, got {config[wrong[0]]!r}")
    low, high = (float(config.get(key, BOUNDS[key])) for key in (LOW, HIGH))
    if loss.settings and not low <= high:
        raise ConfigError(f"{LOW} is {low:g}, above {HIGH}, which is {high:g}")
    return loss


def _served() -> str:
    return ", ".join(LOSSES)
