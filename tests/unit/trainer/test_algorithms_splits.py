"""One gradient, however a batch is laid out: in parts, over ranks, or packed end to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from ludus.trainer import algorithms as A
from ludus.trainer.algorithms.aggregation import Agg

VOCABULARY, WIDTH, ROWS = 11, 9, 6
AGGREGATIONS: list[Agg] = [
    "token_mean",
    "sequence_mean",
    "sequence_sum",
    partial(A.fixed_length, length=WIDTH),
]
LOSSES: list[Callable[..., tuple[Tensor, Tensor]]] = [
    A.ppo_clip_loss,
    A.gspo_loss,
    A.cispo_loss,
    A.sapo_loss,
    A.gmpo_loss,
]


@pytest.fixture
def policy() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(VOCABULARY, 16), nn.Tanh(), nn.Linear(16, VOCABULARY))


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (ROWS, WIDTH + 1), generator=generator)
    lengths = torch.tensor([9, 1, 4, 0, 7, 3])
    mask = (torch.arange(WIDTH) < lengths.unsqueeze(1)).float()
    mask[0, 3:5] = 0  # a tool's output
    old = -2 - torch.rand(ROWS, WIDTH, generator=generator)
    return ids, mask, old, torch.randn(ROWS, generator=generator)


def logp_of(policy: nn.Module, ids: Tensor) -> Tensor:
    """Each token given the one before it, so that a packed row gives what a padded one gives."""
    return A.logp_from_logits(policy(ids[..., :-1]), ids[..., 1:])


def gradient(policy: nn.Module, sums: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Back-propagate every sum, divide once by the weight of all."""
    policy.zero_grad()
    weight = torch.zeros(())
    for total, share in sums:
        total.backward()
        weight = weight + share
    grads = [p.grad for p in policy.parameters() if p.grad is not None]
    return torch.cat([grad.flatten() for grad in grads]) / weight


@pytest.mark.parametrize(
    "agg", AGGREGATIONS, ids=["token_mean", "sequence_mean", "sequence_sum", "fixed_length"]
)
@pytest.mark.parametrize("loss", LOSSES)
def test_parts_and_packing_leave_the_gradient(
    policy: nn.Module, loss: Callable[..., tuple[Tensor, Tensor]], agg: Agg
) -> None:
    ids, mask, old, advantages = batch()
    loss = partial(loss, agg=agg)
    whole = gradient(policy, [loss(logp_of(policy, ids), old, advantages, mask)])

    parts = [torch.tensor(rows) for rows in ([0], [3, 1], [2, 5, 4])]
    split = gradient(
        policy, (loss(logp_of(policy, ids[r]), old[r], advantages[r], mask[r]) for r in parts)
    )
    torch.testing.assert_close(split, whole, rtol=1e-6, atol=1e-6)

    # packed: one long row of prompt-and-answer pairs, its log-probabilities laid back into rows
    packed = policy(ids[:, :-1].flatten().unsqueeze(0))
    laid = A.logp_from_logits(packed, ids[:, 1:].flatten().unsqueeze(0)).view(ROWS, WIDTH)
    torch.testing.assert_close(
        gradient(policy, [loss(laid, old, advantages, mask)]), whole, rtol=1e-6, atol=1e-6
    )


def test_two_ranks_add_up_to_one(policy: nn.Module) -> None:
    ids, mask, old, advantages = batch()
    whole = gradient(policy, [A.dapo_loss(logp_of(policy, ids), old, advantages, mask)])
    ranks = [torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5])]
    weight = sum(float(mask[rows].sum()) for rows in ranks)
    added = torch.zeros_like(whole)
    for rows in ranks:
        # each rank divides by the weight all ranks agreed on, then gradients are summed
        total, _ = A.dapo_loss(logp_of(policy, ids[rows]), old[rows], advantages[rows], mask[rows])
        added += gradient(policy, [(total / weight, torch.ones(()))])
    torch.testing.assert_close(added, whole, rtol=1e-6, atol=1e-6)
