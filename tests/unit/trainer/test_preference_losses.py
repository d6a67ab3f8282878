"""Losses that learn from preferences: TRL's numbers, the optimum of each, and steps of a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.trainer import algorithms as A
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.learner import Learner, UpdatePasses
from ludus.trainer.models.tiny import build_model
from ludus.trainer.rollout.batch import Batch, Row, pad
from tests.peers import trl_losses
from tests.peers.trl_losses import BAD_WEIGHT, BETA, GAMMA, GOOD_WEIGHT, SMOOTHING

TRL = json.loads(trl_losses.NUMBERS.read_text(encoding="utf-8"))


def ours(given: dict[str, Tensor]) -> dict[str, float]:
    """The losses that TRL has, by TRL's names; the two answers of a pair are 5 rows apart."""
    pairs, chosen = torch.arange(10) % 5, (torch.arange(10) < 5).long()
    logp, ref, mask = given["logp"], given["ref_logp"], given["mask"]
    both = (logp, ref, pairs, chosen, mask)
    rows = torch.arange(10)
    shift = A.kto_shift(given["other_logp"], given["other_ref_logp"], rows, mask)
    sums = {
        "sigmoid": A.dpo_loss(*both, beta=BETA),
        "ipo": A.ipo_loss(*both, tau=BETA),
        "hinge": A.slic_loss(*both, beta=BETA),
        "robust": A.rdpo_loss(*both, beta=BETA, flip_rate=SMOOTHING),
        "sppo_hard": A.sppo_loss(logp, ref, chosen, pairs, chosen, mask, eta=1 / BETA),
        "kto": A.kto_loss(
            logp, ref, rows, given["labels"], shift, mask,
            beta=BETA, good_weight=GOOD_WEIGHT, bad_weight=BAD_WEIGHT,
        ),
        "simpo": A.simpo_loss(logp, pairs, chosen, mask, beta=BETA, gamma=GAMMA),
        "orpo": A.orpo_loss(logp, pairs, chosen, mask, lam=BETA),
    }  # fmt: skip
    values = {name: float(A.divide(*part)) for name, part in sums.items()}
    return {**values, "sppo_hard": 2 * values["sppo_hard"]}  # TRL leaves out the half


@pytest.mark.parametrize("seed", range(3))
def test_losses_are_those_that_trl_gave(seed: int) -> None:
    assert TRL["trl"] == "1.16.0"
    expected = pytest.approx(TRL["losses"][seed], abs=1e-9)
    assert ours(trl_losses.inputs(seed)) == expected


def test_an_answer_in_several_rows_is_one_answer_and_parts_add_up() -> None:
    given = trl_losses.inputs(5)
    pairs, chosen = torch.arange(10) % 5, (torch.arange(10) < 5).long()
    logp, ref, mask = given["logp"], given["ref_logp"], given["mask"]
    whole = A.dpo_loss(logp, ref, pairs, chosen, mask)
    cut = mask.clone()
    cut[:, 3:] = 0
    halves = torch.cat([cut, mask - cut])
    twice = A.dpo_loss(
        logp.repeat(2, 1), ref.repeat(2, 1), pairs.repeat(2), chosen.repeat(2), halves
    )
    torch.testing.assert_close(twice, whole)
    few = pairs < 2
    parts = [A.dpo_loss(logp[r], ref[r], pairs[r], chosen[r], mask[r]) for r in (few, ~few)]
    torch.testing.assert_close(parts[0][0] + parts[1][0], whole[0])
    with pytest.raises(ValueError, match="1 of 5 pairs lack an answer"):
        A.dpo_loss(logp[1:], ref[1:], pairs[1:], chosen[1:], mask[1:])


# --- the optimum of each, over four answers of one token -----------------------------------------

GAINS = torch.tensor([0.3, -0.5, 1.0, 0.1], dtype=torch.float64)
REF = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
LAW = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
"""The law that pairs are sampled by."""
WINS = torch.sigmoid(GAINS.unsqueeze(1) - GAINS)
"""How often the answer of the row beats that of the column."""
PAIRS, CHOSEN, ONE = torch.tensor([0, 0]), torch.tensor([1, 0]), torch.ones(2, 1)
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def steepness(optimum: Tensor, loss: Loss, weights: Tensor) -> float:
    """The norm of the gradient of the mean loss over all ordered pairs, at a policy.

    `loss` is called with the log-probabilities [2, 1] of two answers, and their numbers.
    """
    scores = optimum.log().requires_grad_()
    logp = torch.log_softmax(scores, 0)
    total = torch.zeros((), dtype=torch.float64)
    for good in range(4):
        for bad in range(4):
            if good != bad:
                rows = torch.tensor([good, bad])
                total = total + weights[good, bad] * loss(logp[rows].unsqueeze(1), rows)[0]
    (gradient,) = torch.autograd.grad(total, scores)
    return float(gradient.norm())


def tilted(base: Tensor, scores: Tensor) -> Tensor:
    return torch.softmax(base.log() + scores, 0)


def of(values: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda rows: values[rows].log().unsqueeze(1)


REF_LOGP, OLD_LOGP = of(REF), of(LAW)
SAMPLED = LAW.unsqueeze(1) * LAW * WINS
OTHERS = torch.tensor([0.5, 0.0, -1.0, 0.2], dtype=torch.float64)
OPTIMA: dict[str, tuple[Tensor, Loss, Tensor]] = {
    "dpo": (
        tilted(REF, GAINS / 0.5),
        lambda p, r: A.dpo_loss(p, REF_LOGP(r), PAIRS, CHOSEN, ONE, beta=0.5),
        SAMPLED,
    ),
    "rdpo": (  # labels that one in five flips
        tilted(REF, GAINS / 0.5),
        lambda p, r: A.rdpo_loss(p, REF_LOGP(r), PAIRS, CHOSEN, ONE, beta=0.5, flip_rate=0.2),
        LAW.unsqueeze(1) * LAW * (0.8 * WINS + 0.2 * WINS.T),
    ),
    "ipo": (
        tilted(REF, (WINS @ LAW) / 0.5),
        lambda p, r: A.ipo_loss(p, REF_LOGP(r), PAIRS, CHOSEN, ONE, tau=0.5, average=False),
        SAMPLED,
    ),
    "inpo": (
        tilted(LAW ** (1 - 0.2 / 0.8) * REF ** (0.2 / 0.8), (WINS @ LAW) / 0.8),
        lambda p, r: A.inpo_loss(
            p, REF_LOGP(r), OLD_LOGP(r), PAIRS, CHOSEN, ONE, eta=0.8, tau=0.2
        ),
        SAMPLED,
    ),
    "copg": (
        tilted(REF, GAINS / 0.5),
        lambda p, r: A.copg_loss(p, REF_LOGP(r), GAINS[r], PAIRS, CHOSEN, ONE, beta=0.5),
        LAW.unsqueeze(1) * LAW,
    ),
    "modpo": (
        tilted(REF, (0.4 * GAINS + 0.6 * OTHERS) / 0.5),
        lambda p, r: A.modpo_loss(
            p, REF_LOGP(r), 0.6 * OTHERS[r], PAIRS, CHOSEN, ONE, beta=0.5, weight=0.4
        ),
        SAMPLED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMA)
def test_the_optimum_is_that_of_the_paper(name: str) -> None:
    optimum, loss, weights = OPTIMA[name]
    assert steepness(optimum, loss, weights) < 1e-9
    assert steepness(REF, loss, weights) > 1e-3  # positive control: elsewhere it is steep


def test_sppo_is_least_where_each_ratio_is_its_win_rate() -> None:
    eta, rates = 2.0, torch.tensor([0.8, 0.3], dtype=torch.float64)
    logp = (eta * (rates - 0.5)).unsqueeze(1)
    total, _ = A.sppo_loss(logp, torch.zeros_like(logp), rates, PAIRS, CHOSEN, ONE, eta=eta)
    assert float(total) == pytest.approx(0, abs=1e-20)


def test_the_online_part_of_hypo_has_the_gradient_of_the_divergence() -> None:
    scores = GAINS.clone().requires_grad_()
    policy = torch.softmax(scores, 0)
    (exact,) = torch.autograd.grad((policy * (policy / REF).log()).sum(), scores)
    logp = torch.log_softmax(scores, 0).unsqueeze(1)
    parts = [
        A.hypo_kl_loss(logp[[i, j]], REF_LOGP(torch.tensor([i, j])), PAIRS, ONE)[0] / 2
        * (policy[i] * policy[j]).detach()
        for i in range(4)
        for j in range(4)
    ]  # fmt: skip
    (mean,) = torch.autograd.grad(torch.stack(parts).sum(), scores)
    torch.testing.assert_close(mean, exact)


def test_statistical_rejection_follows_the_tilted_law() -> None:
    # Of a group that holds each of three rewards equally often, the best is always 1, so that a
    # draw is accepted by exp((r - 1) / beta).
    rewards, groups = torch.tensor([0.0, 0.5, 1.0]).repeat(4000), torch.arange(400)
    kept = A.rso_mask(
        rewards,
        groups.repeat_interleave(30),
        keep=1,
        beta=0.5,
        generator=torch.Generator().manual_seed(0),
    )
    assert int(kept.sum()) == 400
    counts = torch.bincount((rewards[kept] * 2).long(), minlength=3) / 400
    expected = torch.softmax(torch.tensor([0.0, 0.5, 1.0]) / 0.5, 0)
    assert (counts - expected).abs().max() < 0.08
    whole = A.rso_mask(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), keep=5)
    assert whole.tolist() == [True, True]


def test_rates_and_weights_that_cannot_be_are_refused() -> None:
    given = (torch.zeros(2, 1), torch.zeros(2, 1), PAIRS, CHOSEN, ONE)
    with pytest.raises(ValueError, match="flip_rate"):
        A.rdpo_loss(*given, flip_rate=0.5)
    with pytest.raises(ValueError, match="weight must be positive"):
        A.modpo_loss(*given[:2], torch.zeros(2), *given[2:], weight=0.0)


# --- a step of a model ---------------------------------------------------------------------------


def rows() -> tuple[Batch, Tensor, Tensor]:
    """Two pairs over one prompt each; the answers have 3 and 2 tokens."""
    prompts = [[3, 4, 5], [6, 7]]
    answers = [(prompt, answer) for prompt in prompts for answer in ([10, 11, 2], [12, 2])]
    made = [
        Row([*prompt, *answer], [0] * len(prompt) + [1] * len(answer), [0.0] * len(prompt + answer))
        for prompt, answer in answers
    ]
    return pad(made), torch.tensor([0, 0, 1, 1]), torch.tensor([1, 0, 1, 0])


STEPS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    name: getattr(A, name)
    for name in (
        "dpo_loss", "rdpo_loss", "ipo_loss", "slic_loss", "simpo_loss", "orpo_loss", "kto_loss",
        "sppo_loss", "inpo_loss", "copg_loss", "hypo_kl_loss", "modpo_loss",
    )
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_an_update_of_a_model_lowers_the_loss(name: str) -> None:
    batch, pairs, chosen = rows()
    model = build_model(32, hidden=16, layers=1, heads=2)
    learner = Learner(model, TrainerConfig(lr=1e-3))
    reference = learner.score(batch) - 0.1 * batch.mask
    given: dict[str, Any] = {
        "ref_logp": reference, "old_logp": reference, "pairs": pairs, "chosen": chosen,
        "win_rates": chosen, "rewards": chosen, "margins": 0.1 * chosen, "answers": torch.arange(4),
        "good": chosen, "shift": torch.tensor(0.0), "groups": pairs,
    }  # fmt: skip
    function = STEPS[name]
    wanted = function.__code__.co_varnames[: function.__code__.co_argcount]

    def loss(part: Batch, predicted: Any) -> tuple[Tensor, Tensor]:
        tensors = {**given, "logp": predicted.logp, "mask": part.mask}
        return function(*(tensors[each] for each in wanted))

    how = UpdatePasses(together=torch.zeros(4, dtype=torch.long))
    every = torch.arange(4)
    values = [learner.update(batch, every, loss, how)["loss"] for _ in range(3)]
    if name == "hypo_kl_loss":  # its value means nothing: the divergence falls
        after = learner.score(batch)
        assert float(((after - reference) * batch.mask).sum()) < 0.1 * float(batch.mask.sum())
    else:
        assert values[2] < values[0]
