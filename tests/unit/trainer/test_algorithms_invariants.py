"""What must hold whatever the numbers: properties, on generated batches in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from ludus.trainer import algorithms as A
from ludus.trainer.algorithms.aggregation import Agg, Sum

LossFunction = Callable[..., Sum]
fast = settings(max_examples=25, deadline=None)


@dataclass(frozen=True)
class Batch:
    """A batch of losses' arguments; every group has at least two rows."""

    logp: Tensor
    old_logp: Tensor
    advantages: Tensor
    mask: Tensor
    rewards: Tensor
    groups: Tensor


@st.composite
def batches(draw: st.DrawFn, *, dead: bool = True, full: bool = False) -> Batch:
    """Random rows with holes, and rows without a trained token where `dead`."""
    pairs, width = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    b = 2 * pairs
    uniform = partial(torch.rand, generator=generator, dtype=torch.float64)
    mask = torch.ones(b, width) if full else (uniform(b, width) < 0.7).float()
    if not dead:
        mask[:, 0] = 1
    old = -3 * uniform(b, width) - 0.1
    return Batch(
        logp=old + 1.2 * (uniform(b, width) - 0.5),
        old_logp=old,
        advantages=(uniform(b) - 0.5).unsqueeze(1).expand(b, width).clone(),
        mask=mask,
        rewards=uniform(b).mul(4).round() / 4,
        groups=torch.randperm(b, generator=generator) % pairs,
    )


GROUP_ESTIMATORS = {
    "grpo": partial(A.grpo_advantages, eps=0.0),
    "dr_grpo": A.dr_grpo_advantages,
    "rloo": A.rloo_advantages,
}
LOSSES: dict[str, LossFunction] = {
    "ppo": A.ppo_clip_loss,
    "dapo": A.dapo_loss,
    "dual": A.dual_clip_loss,
    "two_sided": A.two_sided_clip_loss,
    "cispo": A.cispo_loss,
    "minpro": A.minpro_loss,
    "sapo": partial(A.sapo_loss, agg="token_mean"),
    "gspo": A.gspo_loss,
    "gspo_token": partial(A.gspo_token_loss, agg="token_mean"),
    "luspo": A.luspo_loss,
    "gmpo": A.gmpo_loss,
    "kimi": partial(A.kimi_loss, tau=0.5),
    "vespo": A.vespo_loss,
}
AGGREGATIONS: dict[str, Agg] = {
    "token_mean": "token_mean",
    "sequence_mean": "sequence_mean",
    "sequence_sum": "sequence_sum",
    "sequence_mean_all_rows": "sequence_mean_all_rows",
    "fixed_length": partial(A.fixed_length, length=7),
}


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def gradient(loss: LossFunction, batch: Batch, **options: object) -> Tensor:
    """Of the divided loss, with respect to logp."""
    logp = batch.logp.clone().requires_grad_()
    total, weight = loss(logp, batch.old_logp, batch.advantages, batch.mask, **options)
    A.divide(total, weight).backward()
    assert logp.grad is not None
    return logp.grad


# 1
@given(batches())
@fast
def test_the_advantages_of_a_group_add_to_zero(batch: Batch) -> None:
    for estimator in GROUP_ESTIMATORS.values():
        total = A.group_sum(estimator(batch.rewards, batch.groups), batch.groups)
        close(total, torch.zeros_like(total))


# 2
@given(batches())
@fast
def test_rloo_is_dr_grpo_scaled(batch: Batch) -> None:
    k = A.group_size(batch.groups)
    scaled = A.dr_grpo_advantages(batch.rewards, batch.groups) * k / (k - 1)
    close(A.rloo_advantages(batch.rewards, batch.groups), scaled)


# 3
@given(batches(), st.floats(-5, 5), st.floats(0.1, 10))
@fast
def test_shifting_rewards_changes_nothing_and_scaling_only_what_is_not_normalised(
    batch: Batch, shift: float, scale: float
) -> None:
    for name, estimator in GROUP_ESTIMATORS.items():
        plain = estimator(batch.rewards, batch.groups)
        close(estimator(batch.rewards + shift, batch.groups), plain, 1e-7)
        factor = 1.0 if name == "grpo" else scale
        close(estimator(batch.rewards * scale, batch.groups), plain * factor, 1e-7)


# 4
@given(batches())
@fast
def test_on_policy_every_surrogate_has_the_policy_gradient(batch: Batch) -> None:
    at_old = replace(batch, logp=batch.old_logp)
    rewards = batch.advantages[:, 0]

    def reinforce(logp: Tensor, _: Tensor, advantages: Tensor, mask: Tensor) -> Sum:
        return A.reinforce_loss(logp, advantages, mask)

    def topr(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Sum:
        return A.topr_loss(logp, old_logp, rewards, advantages, mask)

    expected = gradient(reinforce, at_old)
    names = ("ppo", "dapo", "cispo", "gspo_token", "sapo", "minpro", "dual", "two_sided", "kimi")
    for loss in [*(LOSSES[name] for name in names), topr]:
        close(gradient(loss, at_old), expected)


# 5
@given(batches(dead=False))
@fast
def test_on_one_row_luspo_is_gspo_times_its_length(batch: Batch) -> None:
    one = Batch(*(getattr(batch, name)[:1] for name in Batch.__dataclass_fields__))
    eps = {"eps_low": 0.1, "eps_high": 0.1}
    length = one.mask.sum()
    close(gradient(A.luspo_loss, one, **eps), gradient(A.gspo_loss, one, **eps) * length)


# 6
@given(batches(full=True))
@fast
def test_with_equal_lengths_the_means_agree(batch: Batch) -> None:
    width = batch.mask.shape[1]
    losses = batch.logp
    expected = A.divide(*A.aggregate(losses, batch.mask, "token_mean"))
    for agg in ("sequence_mean", partial(A.fixed_length, length=width)):
        close(A.divide(*A.aggregate(losses, batch.mask, agg)), expected)


# 7
@given(batches(), st.sampled_from([float("nan"), float("inf"), -float("inf"), 3.0]))
@fast
def test_masked_columns_change_nothing(batch: Batch, junk: float) -> None:
    b = len(batch.mask)
    wider = replace(
        batch,
        logp=torch.cat([batch.logp, torch.full((b, 2), -1.0).double()], 1),
        old_logp=torch.cat([batch.old_logp, torch.full((b, 2), junk).double()], 1),
        advantages=torch.cat([batch.advantages, torch.full((b, 2), junk).double()], 1),
        mask=torch.cat([batch.mask, torch.zeros(b, 2)], 1),
    )
    for loss in LOSSES.values():
        found = gradient(loss, wider)
        close(found[:, :-2], gradient(loss, batch))
        assert bool((found[:, -2:] == 0).all())
    same = A.gae_advantages(wider.advantages, wider.old_logp, wider.mask)[0][:, :-2]
    close(same, A.gae_advantages(batch.advantages, batch.old_logp, batch.mask)[0])
    whitened = A.whiten(wider.old_logp, wider.mask)[:, :-2]
    close(whitened, A.whiten(batch.old_logp, batch.mask))


# 8
@given(batches(), st.integers(0, 2**31))
@fast
def test_permuting_rows_permutes_what_comes_out(batch: Batch, seed: int) -> None:
    order = torch.randperm(len(batch.mask), generator=torch.Generator().manual_seed(seed))
    moved = Batch(*(getattr(batch, name)[order] for name in Batch.__dataclass_fields__))
    for estimator in [*GROUP_ESTIMATORS.values(), A.lite_ppo_advantages, A.gpg_advantages]:
        found = estimator(moved.rewards, moved.groups)
        close(found, estimator(batch.rewards, batch.groups)[order])
    for loss in LOSSES.values():
        close(gradient(loss, moved), gradient(loss, batch)[order])


# 9
@given(batches())
@fast
def test_gae_with_lambda_one_is_return_to_go_minus_value(batch: Batch) -> None:
    rewards, values = batch.logp, batch.old_logp
    advantages, returns = A.gae_advantages(rewards, values, batch.mask, gamma=1.0, lam=1.0)
    to_go = A.returns_to_go(rewards, batch.mask)
    close(advantages, (to_go - values) * batch.mask)
    close(returns, to_go)


# 10
@given(batches())
@fast
def test_tis_without_a_cap_is_exact_importance_sampling(batch: Batch) -> None:
    found = A.tis_weights(batch.logp, batch.old_logp, batch.mask, cap=float("inf"))
    close(found, (batch.logp - batch.old_logp).exp() * batch.mask)


# 11
@given(st.floats(-30, 0), st.floats(-30, 0))
@fast
def test_k2_and_k3_are_never_negative(logp: float, ref: float) -> None:
    one, other = torch.tensor(logp).double(), torch.tensor(ref).double()
    assert A.kl_k2(one, other) >= 0
    assert A.kl_k3(one, other) >= 0
    assert A.kl_k3_plus(one, other) >= -1e-12


# 12
@given(batches(full=True))
@fast
def test_otb_with_equal_proxies_is_the_group_mean(batch: Batch) -> None:
    proxies = torch.full_like(batch.logp, 0.5)
    found = A.otb_advantages(batch.logp, batch.groups, batch.mask, proxies, eps=0.0)
    to_go = A.returns_to_go(batch.logp, batch.mask)
    mean = torch.stack([A.group_sum(column, batch.groups) for column in to_go.unbind(1)], 1)
    close(found, to_go - mean / A.group_size(batch.groups).unsqueeze(1))


# 13
@given(st.lists(st.booleans(), min_size=1, max_size=12), st.floats(0.5, 9), st.floats(0.5, 9))
@fast
def test_the_spo_tracker_without_forgetting_is_a_beta_posterior(
    outcomes: list[bool], alpha: float, beta: float
) -> None:
    a = torch.tensor([alpha], dtype=torch.float64)
    b = torch.tensor([beta], dtype=torch.float64)
    for won in outcomes:
        a, b = A.single_stream_spo_update(torch.tensor([float(won)]), a, b, torch.ones(1).double())
    close(a, torch.tensor([alpha + sum(outcomes)], dtype=torch.float64))
    close(b, torch.tensor([beta + len(outcomes) - sum(outcomes)], dtype=torch.float64))


# 14
@pytest.mark.parametrize("agg", AGGREGATIONS)
@given(batches(), st.lists(st.integers(1, 3), min_size=1, max_size=8))
@fast
def test_how_a_batch_is_split_changes_no_gradient(agg: str, batch: Batch, sizes: list[int]) -> None:
    for name, loss in LOSSES.items():
        logp = batch.logp.clone().requires_grad_()
        weight, start = torch.zeros(()).double(), 0
        while start < len(logp):
            part = slice(start, start + sizes[start % len(sizes)])
            total, share = loss(
                logp[part],
                batch.old_logp[part],
                batch.advantages[part],
                batch.mask[part],
                agg=AGGREGATIONS[agg],
            )
            total.backward()
            weight, start = weight + share, part.stop
        assert logp.grad is not None, name
        split = logp.grad / torch.where(weight > 0, weight, 1.0)
        close(split, gradient(loss, batch, agg=AGGREGATIONS[agg]), 1e-9)


# 14, where a prompt's rows are spread over the parts
@given(batches(), st.integers(1, 3))
@fast
def test_prompt_mean_can_be_split_through_a_prompt(batch: Batch, size: int) -> None:
    tokens = A.group_sum(batch.mask.sum(1), batch.groups)
    whole = A.prompt_mean(batch.logp, batch.mask, groups=batch.groups)
    parts = [
        A.prompt_mean(
            batch.logp[part],
            batch.mask[part],
            groups=batch.groups[part],
            prompt_tokens=tokens[part],
        )
        for part in (slice(k, k + size) for k in range(0, len(batch.mask), size))
    ]
    close(sum((p[0] for p in parts), torch.zeros(())), whole[0])
    close(sum((p[1] for p in parts), torch.zeros(())), whole[1])


# 15
@pytest.mark.parametrize("name", LOSSES)
@given(batch=batches(dead=False))
@fast
def test_a_dead_row_changes_no_other_gradient(name: str, batch: Batch) -> None:
    loss = LOSSES[name]
    mask = torch.cat([batch.mask, torch.zeros(1, batch.mask.shape[1])])
    grown = Batch(
        *(
            torch.cat([getattr(batch, each), getattr(batch, each)[:1]])
            for each in ("logp", "old_logp", "advantages")
        ),
        mask=mask,
        rewards=batch.rewards,
        groups=batch.groups,
    )
    # luspo's own denominator counts every row, by name
    options: dict[str, object] = {"agg": "sequence_sum"} if name == "luspo" else {}
    found = gradient(loss, grown, **options)
    assert bool((found[-1] == 0).all())
    close(found[:-1], gradient(loss, batch, **options))


@pytest.mark.parametrize("name", LOSSES)
def test_with_nothing_to_train_the_loss_is_zero_and_so_is_its_gradient(name: str) -> None:
    logp = torch.zeros(2, 3, requires_grad=True)
    total, weight = LOSSES[name](logp, torch.zeros(2, 3), torch.ones(2), torch.zeros(2, 3))
    loss = A.divide(total, weight)
    loss.backward()
    assert loss.item() == 0
    assert logp.grad is not None
    assert bool((logp.grad == 0).all())


@pytest.mark.parametrize("name", LOSSES)
def test_no_columns_at_all_is_no_error(name: str) -> None:
    empty = torch.zeros(2, 0, requires_grad=True)
    total, weight = LOSSES[name](empty, torch.zeros(2, 0), torch.ones(2), torch.zeros(2, 0))
    assert A.divide(total, weight).item() == 0


@pytest.mark.parametrize("name", LOSSES)
def test_a_ratio_that_would_overflow_leaves_a_finite_gradient(name: str) -> None:
    for gap in (200.0, -200.0):
        for sign in (1.0, -1.0):
            logp = torch.tensor([[gap, 0.0]], requires_grad=True)
            total, _ = LOSSES[name](logp, torch.zeros(1, 2), torch.tensor([sign]), torch.ones(1, 2))
            total.backward()
            assert logp.grad is not None
            assert bool(logp.grad.isfinite().all()), (gap, sign)


@given(st.floats(0.125, 2000, width=32), st.integers(2, 20), st.randoms(use_true_random=False))
@fast
def test_equal_rewards_give_no_advantage_whatever_their_mean_is_rounded_to(
    reward: float, count: int, draw: Random
) -> None:
    rewards = torch.full((count,), reward)
    rates = torch.full((count,), draw.uniform(0.5, 5))
    assert not A.single_stream_spo_advantages(rewards, rates, rates).any()
    # a row without tokens has another reward, and weighs nothing
    lengths = torch.tensor([*(float(draw.randint(1, 200)) for _ in range(count)), 0.0])
    answers = torch.cat([rewards, torch.zeros(1)])
    assert not A.hapo_advantages(answers, torch.zeros(count + 1).long(), lengths).any()
    parents = torch.tensor([-1, *(draw.randrange(node) for node in range(1, count))])
    for estimator in (
        A.spo_tree_advantages,
        partial(A.spo_tree_advantages, normalise=True),
        partial(A.tree_pooled_advantages, normalise=True),
        A.tree_grpo_advantages,
        A.treepo_advantages,
    ):
        assert not estimator(rewards, parents).any()
    assert not A.vine_tree_advantages(rewards, parents, torch.zeros(count).bool()).any()


def test_a_reward_that_is_no_number_is_seen_in_the_advantages() -> None:
    rewards, ones = torch.tensor([1.0, torch.nan, 0.0]), torch.ones(3)
    groups, parents = torch.zeros(3).long(), torch.tensor([-1, 0, 0])
    assert A.single_stream_spo_advantages(rewards, ones, ones).isnan().any()
    assert A.hapo_advantages(rewards, groups, ones).isnan().any()
    for estimator in (A.spo_tree_advantages, A.tree_pooled_advantages):
        assert estimator(rewards, parents, normalise=True).isnan().any()
