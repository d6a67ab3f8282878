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


_PAIRS = ("groups", "good", "mask")
_WITH_REFERENCE = ("logp", "ref_logp", *_PAIRS)
_WITH_NUMBERS = ("logp", "ref_logp", "numbers", *_PAIRS)


@dataclass(frozen=True)
class _Loss:
    """How a function of the library is called for a method."""

    function: Callable[..., Sum]
    strength: str = "beta"
    """The parameter that takes the method's strength."""
    reads: tuple[str, ...] = _WITH_REFERENCE
    """What the function reads, in order: fields of `PreferenceInputs`."""
    own: tuple[str, ...] = ()
    """Settings of the run that are parameters of the same name."""

    def __call__(self, config: PreferenceConfig, given: PreferenceInputs) -> Sum:
        own = {name: getattr(config, name) for name in self.own}
        inputs = (getattr(given, name) for name in self.reads)
        return self.function(*inputs, **{self.strength: config.strength}, **own)


def preference_loss(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    """Return the loss of a method, as a sum and the number of pairs or answers."""
    return _LOSSES[config.method](config, given)


_DPO = _Loss(algorithms.dpo_loss, own=("label_smoothing",))


def _hypo(config: PreferenceConfig, given: PreferenceInputs) -> Sum:
    """HyPO: DPO on the pairs, and the divergence from the reference on what is sampled; a mean over
    pairs of the one, and over sampled answers of the other.
    """
    sampled = given.good == SAMPLED
    value, pairs = _DPO(config, given.rows(~sampled))
    if not bool(sampled.any()):
        return value, pairs
    online = given.rows(sampled)
    divergence, _ = algorithms.hypo_kl_loss(
        online.logp, online.ref_logp, online.groups, online.mask
    )
    return value + config.kl / config.samples * divergence, pairs


_LOSSES: Mapping[str, Callable[[PreferenceConfig, PreferenceInputs], Sum]] = {
    "dpo": _DPO,
    "rso": _DPO,  # the pairs are what differs
    "hypo": _hypo,
    "rdpo": _Loss(algorithms.rdpo_loss, own=("flip_rate",)),
    "ipo": _Loss(algorithms.ipo_loss, "tau"),
    "slic": _Loss(algorithms.slic_loss),
    "kto": _Loss(
        algorithms.kto_loss,
        reads=("logp", "ref_logp", "groups", "good", "shift", "mask"),
        own=("good_weight", "bad_weight"),
    ),
    "simpo": _Loss(algorithms.simpo_loss, reads=("logp", *_PAIRS), own=("gamma",)),
    "orpo": _Loss(algorithms.orpo_loss, "lam", reads=("logp", *_PAIRS)),
    "sppo": _Loss(algorithms.sppo_loss, "eta", _WITH_NUMBERS),
    "inpo": _Loss(
        algorithms.inpo_loss, "eta", ("logp", "ref_logp", "old_logp", *_PAIRS), own=("tau",)
    ),
    "copg": _Loss(algorithms.copg_loss, reads=_WITH_NUMBERS),
    "modpo": _Loss(algorithms.modpo_loss, reads=_WITH_NUMBERS, own=("weight",)),
}
