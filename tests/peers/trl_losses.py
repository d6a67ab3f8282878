"""The preference losses as TRL computes them, by its own code.

    python tests/peers/trl_losses.py    # where TRL is installed: writes the numbers that
                                        # tests/unit/trainer/test_preference_losses.py reads

The trainers' methods run on log-probabilities that stand for a model's; nothing is trained. TRL's
ORPO rounds to float32 in the middle, which is left out here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

NUMBERS = Path(__file__).parents[1] / "unit" / "trainer" / "preference_losses_of_trl.json"
BETA, SMOOTHING, GAMMA = 0.3, 0.2, 0.7
GOOD_WEIGHT, BAD_WEIGHT = 1.3, 0.6
DPO_KINDS = ("sigmoid", "ipo", "hinge", "robust", "sppo_hard")


def inputs(seed: int = 0) -> dict[str, Tensor]:
    """Log-probabilities of 5 pairs, the chosen answers first, in float64; and those of answers to
    other prompts, for KTO.
    """
    generator = torch.Generator().manual_seed(seed)

    def logp() -> Tensor:
        return -3 * torch.rand(10, 7, generator=generator, dtype=torch.float64)

    lengths = torch.tensor([6, 1, 4, 3, 5, 2, 6, 3, 1, 4])
    mask = (torch.arange(7) >= 1) & (torch.arange(7) <= lengths.unsqueeze(1))
    labels = torch.tensor([1, 0, 0, 1, 1, 0, 1, 0, 0, 0], dtype=torch.bool)
    made = {"logp": logp(), "ref_logp": logp(), "other_logp": logp(), "other_ref_logp": logp()}
    return {**made, "mask": mask.double(), "labels": labels}


class Accelerator:
    """A single process."""

    device = torch.device("cpu")

    def gather(self, value: Any) -> Any:
        return value

    gather_for_metrics = gather

    def unwrap_model(self, model: Any) -> Any:
        return model


def losses(given: dict[str, Tensor]) -> dict[str, float]:
    """The mean loss of every kind that TRL has."""
    every = {kind: _dpo(given, kind) for kind in DPO_KINDS}
    return {**every, "kto": _kto(given), "simpo": _simpo(given), "orpo": _orpo(given)}


def _model(logp: Tensor, mask: Tensor) -> Any:
    """A model whose outputs are given, for all tokens but the first."""
    blank = torch.where(mask.bool(), logp, 0.0)[:, 1:]
    zeros = torch.zeros_like(blank)
    fields = {"log_probs": blank, "entropy": zeros, "mean_logits": zeros, "log_sum_sq_probs": zeros}
    outputs = SimpleNamespace(**fields, is_top1=zeros.bool())

    def run(**ignored: Any) -> Any:
        return outputs

    return run


class _Trainer(SimpleNamespace):
    """The attributes of a trainer; those that a version adds are off."""

    def __getattr__(self, name: str) -> Any:
        return None


def _trainer(**attributes: Any) -> Any:
    usual = {
        "accelerator": Accelerator(),
        "model": SimpleNamespace(training=True),
        "beta": BETA,
        "label_smoothing": SMOOTHING,
        "args": SimpleNamespace(gradient_checkpointing_kwargs=None),
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "_total_train_tokens": 0,
        "_tp_size": 1,
    }
    return _Trainer(**{**usual, **attributes})


def _dpo(given: dict[str, Tensor], kind: str) -> float:
    from trl import DPOTrainer

    trainer = _trainer(
        loss_types=[kind],
        loss_weights=[1.0],
        f_divergence_type="reverse_kl",
        precompute_ref_logps=True,
    )
    reference = torch.where(given["mask"].bool(), given["ref_logp"], 0.0).sum(1).chunk(2)
    rows = {
        "input_ids": torch.zeros(given["mask"].shape, dtype=torch.long),
        "attention_mask": torch.ones_like(given["mask"]),
        "completion_mask": given["mask"].long(),
        "ref_chosen_logps": reference[0],
        "ref_rejected_logps": reference[1],
    }
    loss = DPOTrainer._compute_loss(
        trainer, _model(given["logp"], given["mask"]), rows, return_outputs=False
    )
    return float(loss)


def _kto(given: dict[str, Tensor]) -> float:
    from trl import KTOTrainer

    def blank(name: str) -> Tensor:
        return torch.where(given["mask"].bool(), given[name], 0.0).sum(1)

    trainer = _trainer(
        loss_type="kto",
        calculate_KL=True,
        precompute_ref_logps=True,
        desirable_weight=GOOD_WEIGHT,
        undesirable_weight=BAD_WEIGHT,
        _compute_kl_logps=lambda model, batch: blank("other_logp"),
    )
    rows = {
        "input_ids": torch.zeros(given["mask"].shape, dtype=torch.long),
        "attention_mask": torch.ones_like(given["mask"]),
        "completion_mask": given["mask"].long(),
        "label": given["labels"],
        "ref_logps": blank("ref_logp"),
        "ref_KL_logps": blank("other_ref_logp"),
    }
    loss = KTOTrainer._compute_loss(
        trainer, _model(given["logp"], given["mask"]), rows, return_outputs=False
    )
    return float(loss)


def _means(given: dict[str, Tensor]) -> tuple[Tensor, ...]:
    sums = torch.where(given["mask"].bool(), given["logp"], 0.0).sum(1)
    return (sums / given["mask"].sum(1)).chunk(2)


def _simpo(given: dict[str, Tensor]) -> float:
    from trl.experimental.cpo import CPOTrainer

    trainer = _trainer(loss_type="simpo", alpha=0.0, simpo_gamma=GAMMA, label_smoothing=0.0)
    return float(CPOTrainer.cpo_loss(trainer, *_means(given))[0].mean())


def _orpo(given: dict[str, Tensor]) -> float:
    """TRL's odds and its likelihood over the answers' tokens as a mean of pairs."""
    from trl.experimental.orpo import ORPOTrainer

    means = _means(given)
    with mock.patch.object(torch.Tensor, "float", lambda tensor: tensor):
        ratio = ORPOTrainer.odds_ratio_loss(_trainer(), *means)[0]
    return float((-means[0] - ratio).mean())


if __name__ == "__main__":
    import trl

    numbers = {"trl": trl.__version__, "losses": [losses(inputs(seed)) for seed in range(3)]}
    NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    print(NUMBERS.read_text(encoding="utf-8"))
