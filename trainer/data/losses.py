"""The losses of `ludus train dpo` and its relatives, as a run gives them their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .. import algorithms
from ..algorithms.aggregation import Sum
from ..rollout.batch import Batch
from ..settings.data import PreferenceConfig

SAMPLED = -1.0
"""What stands for `chosen` in rows that the policy has just sampled (HyPO)."""


@dataclass(frozen=True)
class PreferenceInputs:
    """What a loss reads of a pass, of B rows with T tokens."""

    logp: Tensor
    """[B, T]."""
    ref_logp: Tensor
    """[B, T], of the reference; the policy's own where there is none."""
    old_logp: Tensor
    """[B, T], of the model that training started from; as `ref_logp` where that is the same."""
    groups: Tensor
    """[B] int, the pair, or the answer, of each row."""
    good: Tensor
    """[B]: 1 for good and 0 for bad answers, `SAMPLED` for those that are sampled."""
    numbers: Tensor
    """[B]: the number of the row's answer; 0 where none is given."""
    mask: Tensor
    """[B, T] in {0, 1}."""
    shift: Tensor
    """KTO's z, a scalar."""

    @classmethod
    def of(cls, part: Batch, logp: Tensor) -> PreferenceInputs:
        """Return the inputs of a pass."""
        inputs = part.inputs
        assert inputs.groups is not None
        assert inputs.rewards is not None
        reference = logp if inputs.ref_logp is None else inputs.ref_logp
        before = reference if inputs.old_logp is None else inputs.old_logp
        shift = logp.new_zeros(()) if inputs.bootstrap is None else inputs.bootstrap[0]
        numbers = torch.zeros_like(inputs.rewards) if inputs.target is None else inputs.target
        return cls(
            logp, reference, before, inputs.groups, inputs.rewards, numbers, part.mask, shift
        )

    def rows(self, kept: Tensor) -> PreferenceInputs:
        """Return the inputs of some rows, [B] bool."""
        names = ("logp", "ref_logp", "old_logp", "groups", "good", "numbers", "mask")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})

    @property
    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """What every loss of pairs reads last."""
        return self.groups, self.good, self.mask


def preference_loss(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    """Return the loss of a method, as a sum and the number of pairs or answers."""
    return _LOSSES[config.method](config, given)


def _dpo(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.dpo_loss(
        given.logp,
        given.ref_logp,
        *given.pairs,
        beta=config.strength,
        label_smoothing=config.label_smoothing,
    )


def _rdpo(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.rdpo_loss(
        given.logp, given.ref_logp, *given.pairs, beta=config.strength, flip_rate=config.flip_rate
    )


def _ipo(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.ipo_loss(given.logp, given.ref_logp, *given.pairs, tau=config.strength)


def _slic(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.slic_loss(given.logp, given.ref_logp, *given.pairs, beta=config.strength)


def _kto(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.kto_loss(
        given.logp,
        given.ref_logp,
        given.groups,
        given.good,
        given.shift,
        given.mask,
        beta=config.strength,
        good_weight=config.good_weight,
        bad_weight=config.bad_weight,
    )


def _simpo(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.simpo_loss(given.logp, *given.pairs, beta=config.strength, gamma=config.gamma)


def _orpo(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.orpo_loss(given.logp, *given.pairs, lam=config.strength)


def _sppo(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.sppo_loss(
        given.logp, given.ref_logp, given.numbers, *given.pairs, eta=config.strength
    )


def _inpo(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.inpo_loss(
        given.logp,
        given.ref_logp,
        given.old_logp,
        *given.pairs,
        eta=config.strength,
        tau=config.tau,
    )


def _copg(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.copg_loss(
        given.logp, given.ref_logp, given.numbers, *given.pairs, beta=config.strength
    )


def _hypo(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    """HyPO: DPO on the pairs, and the divergence from the reference on what is sampled; a mean over
    pairs of the one, and over sampled answers of the other.
    """
    sampled = given.good == SAMPLED
    value, pairs = _dpo(config, given.rows(~sampled))
    if not bool(sampled.any()):
        return value, pairs
    online = given.rows(sampled)
    divergence, _ = algorithms.hypo_kl_loss(
        online.logp, online.ref_logp, online.groups, online.mask
    )
    return value + config.kl / config.samples * divergence, pairs


def _modpo(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    return algorithms.modpo_loss(
        given.logp,
        given.ref_logp,
        given.numbers,
        *given.pairs,
        beta=config.strength,
        weight=config.weight,
    )


_LOSSES: Mapping[str, Callable[[PreferenceConfig, PreferenceInputs], Sum]] = {
    "dpo": _dpo,
    "rdpo": _rdpo,
    "ipo": _ipo,
    "slic": _slic,
    "kto": _kto,
    "simpo": _simpo,
    "orpo": _orpo,
    "sppo": _sppo,
    "inpo": _inpo,
    "copg": _copg,
    "hypo": _hypo,
    "modpo": _modpo,
    "rso": _dpo,  # the pairs are what differs
}
