"""Hand-computed numbers, in float64 and to 1e-9. The arithmetic stands beside each."""

from __future__ import annotations

from functools import partial
from math import cos, e, exp, log, pi, sqrt
from typing import Literal

import pytest
import torch
from torch import Tensor

from ludus.trainer import algorithms as A
from ludus.trainer.algorithms.aggregation import Agg, Sum

PI = torch.tensor([[0.6, 0.1]], dtype=torch.float64).log()
OLD = torch.tensor([[0.4, 0.4]], dtype=torch.float64).log()
MU = torch.tensor([[0.4, 0.2]], dtype=torch.float64).log()
BOTH = torch.ones(1, 2)
PLUS, MINUS = torch.tensor([1.0]).double(), torch.tensor([-1.0]).double()
MIXED = torch.tensor([[1.0, -1.0]]).double()


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def ids(*values: int) -> Tensor:
    return torch.tensor(values)


def same(found: Tensor, expected: object) -> None:
    torch.testing.assert_close(
        found, torch.as_tensor(expected, dtype=found.dtype), rtol=0, atol=1e-9
    )


def value(found: Sum) -> Tensor:
    return A.divide(*found)


# --- advantages -----------------------------------------------------------------------------------


def test_grpo_of_one_success_in_four() -> None:
    r, g = f64(1, 0, 0, 0), ids(0, 0, 0, 0)
    # mean 1/4; ddof 1: var = (9/16 + 3/16) / 3 = 1/4, std 1/2
    same(A.grpo_advantages(r, g, eps=0.0), [1.5, -0.5, -0.5, -0.5])
    # ddof 0: var = 3/16, std sqrt(3)/4
    same(A.grpo_advantages(r, g, ddof=0, eps=0.0), [sqrt(3), *[-1 / sqrt(3)] * 3])
    same(A.grpo_advantages(r, g, eps=1e-4), [0.75 / 0.5001, *[-0.25 / 0.5001] * 3])


def test_grpo_keeps_groups_apart_whatever_their_order() -> None:
    # groups {1, 0} and {3, 5}: std 1/sqrt(2) and sqrt(2)
    r, g = f64(1, 3, 0, 5), ids(9, 2, 9, 2)
    same(A.grpo_advantages(r, g, eps=0.0), [sqrt(0.5), -sqrt(0.5), -sqrt(0.5), sqrt(0.5)])


def test_centred_estimators() -> None:
    same(A.dr_grpo_advantages(f64(1, 0, 0, 0), ids(0, 0, 0, 0)), [0.75, -0.25, -0.25, -0.25])
    # 1 - (0 + .5)/2, 0 - (1 + .5)/2, .5 - (1 + 0)/2
    same(A.rloo_advantages(f64(1, 0, 0.5), ids(0, 0, 0)), [0.75, -0.75, 0.0])
    # lengths 10 and 30: baseline (10 * 1 + 30 * 0) / 40
    same(A.opo_advantages(f64(1, 0), ids(0, 0), ids(10, 30)), [0.75, -0.25])
    same(A.remax_advantages(f64(1, 0.5), f64(0, 1)), [1.0, -0.5])
    # alpha = 4 rows / 1 nonzero
    same(A.gpg_advantages(f64(1, 0, 0, 0), ids(0, 0, 0, 0)), [3.0, -1.0, -1.0, -1.0])


def test_lite_ppo_takes_the_spread_of_raw_or_of_centred_rewards() -> None:
    r, g = f64(1, 0, 1, 1), ids(0, 0, 1, 1)
    # raw: mean 3/4, var (3/16 + 9/16) / 3 = 1/4
    same(A.lite_ppo_advantages(r, g, eps=0.0), [1.0, -1.0, 0.0, 0.0])
    # centred (.5, -.5, 0, 0): var = .5 / 3
    same(
        A.lite_ppo_advantages(r, g, eps=0.0, std_of="centred"),
        [0.5 * sqrt(6), -0.5 * sqrt(6), 0.0, 0.0],
    )


def test_pass_at_k_credits_the_lead_of_the_best() -> None:
    # std of (1, .5, 0) is .5
    same(A.pass_at_k_advantages(f64(1, 0.5, 0), ids(0, 0, 0), eps=0.0), [1.0, 0.0, 0.0])
    same(A.pass_at_k_advantages(f64(0, 0.5, 1), ids(0, 0, 0), normalise=False), [0.0, 0.0, 0.5])
    same(A.pass_at_k_advantages(f64(1, 1), ids(0, 0)), [0.0, 0.0])


def test_supo_counts_a_rollout_once_however_many_segments_it_has() -> None:
    r, g, segments = f64(1, 0), ids(0, 0), ids(0, 0, 1)
    half = sqrt(0.5)
    same(A.supo_advantages(r, g, segments, eps=0.0), [half, half, -half])
    # over segments: rewards (1, 1, 0), mean 2/3, var (1/9 + 1/9 + 4/9) / 2 = 1/3
    same(
        A.supo_advantages(r, g, segments, eps=0.0, statistics_over="segments"),
        [1 / sqrt(3), 1 / sqrt(3), -2 / sqrt(3)],
    )


def test_reinforce_pp_whitens_returns_over_tokens() -> None:
    # returns [1, 1] and [0]: mean 2/3, var (1/9 + 1/9 + 4/9) / 2 = 1/3
    mask = rows([1, 1], [1, 0])
    expected = [[1 / sqrt(3), 1 / sqrt(3)], [-2 / sqrt(3), 0.0]]
    same(A.reinforce_pp_advantages(rows([0, 1], [0, 0]), mask, eps=0.0), expected)
    # c = (.5, -.5) on 2 and 1 tokens: mean 1/6, deviations 1/3, 1/3, -2/3: the same ratios
    same(A.reinforce_pp_baseline_advantages(f64(1, 0), ids(0, 0), mask, eps=0.0), expected)
    # ddof 0: var 2/9
    scale = sqrt(9 / 2)
    same(
        A.reinforce_pp_advantages(rows([0, 1], [0, 0]), mask, eps=0.0, ddof=0),
        [[scale / 3, scale / 3], [-2 * scale / 3, 0.0]],
    )


def test_whitening_adds_or_clamps_its_floor() -> None:
    x, mask = rows([1.0, 3.0]), BOTH  # mean 2, var (ddof 1) 2
    same(A.whiten(x, mask, eps=2.0), [[-0.5, 0.5]])
    same(A.whiten(x, mask, eps=4.0, floor="clamp"), [[-0.5, 0.5]])
    same(A.whiten(x, mask, eps=1.0, floor="clamp"), [[-sqrt(0.5), sqrt(0.5)]])


@pytest.mark.parametrize("floor", ["add", "clamp"])
@pytest.mark.parametrize("size", [0.1, 1000.3, 12345.67])
def test_whitening_equal_values_gives_nothing_whatever_their_mean_is_rounded_to(
    floor: Literal["add", "clamp"], size: float
) -> None:
    for count in range(1, 20):
        whitened = A.whiten(torch.full((1, count), size), torch.ones(1, count), floor=floor)
        assert not whitened.any()
    assert A.whiten(torch.tensor([[1.0, torch.nan]]), torch.ones(1, 2), floor=floor).isnan().any()


def test_reinforce_pp_baseline_counts_segments_of_a_rollout_once() -> None:
    # rollouts {rows 0, 1: reward 1} and {row 2: reward 0}: mean 1/2, not 2/3
    found = A.reinforce_pp_baseline_advantages(
        f64(1, 1, 0), ids(0, 0, 0), torch.ones(3, 1), eps=0.0, rollouts=ids(4, 4, 7)
    )
    # centred (.5, .5, -.5): mean 1/6, deviations 1/3, 1/3, -2/3
    same(found, [[1 / sqrt(3)], [1 / sqrt(3)], [-2 / sqrt(3)]])


def test_gae_and_its_returns() -> None:
    # delta = (.3, .3, .2); A_2 = .3 + .95 * .2, A_1 = .3 + .95 * .49
    advantages, returns = A.gae_advantages(rows([0, 0, 1]), rows([0.2, 0.5, 0.8]), torch.ones(1, 3))
    same(advantages, [[0.7655, 0.49, 0.2]])
    same(returns, [[0.9655, 0.99, 1.0]])


def test_gae_skips_holes_or_steps_through_them() -> None:
    r, v, mask = rows([0, 9, 1]), rows([0.2, 9, 0.8]), rows([1, 0, 1])
    # skip: delta = .8 - .2, then 1 - .8: A = .6 + .95 * .2
    same(A.gae_advantages(r, v, mask)[0], [[0.79, 0.0, 0.2]])
    # step: the hole has r = V = 0: delta = -.2, .8, .2; A = .2, .8 + .19 = .99, -.2 + .95 * .99
    same(A.gae_advantages(r, v, mask, holes="step")[0], [[0.7405, 0.0, 0.2]])


def test_egae_bootstraps_a_truncated_row_with_its_last_value() -> None:
    r, v = torch.zeros(2, 3).double(), rows([0.2, 0.5, 0.8], [0.2, 0.5, 0.8])
    found = A.egae_advantages(r, v, torch.ones(2, 3), torch.tensor([True, False]))[0]
    # delta = (.3, .3, 0): .3 + .95 * .3; finished: (.3, .3, -.8)
    same(found, [[0.585, 0.3, 0.0], [-0.137, -0.46, -0.8]])


def test_compaction_shrinks_segments_by_the_tokens_that_came_after() -> None:
    values, mask = rows([0.0, 9, 0.5], [0.6, 9, 9]), rows([1, 0, 1], [1, 0, 0])
    owners, rewards = torch.tensor([4, 4]), f64(1, 1)
    # L = 2: lam = 1 - 1/3; GAE .5 + 2/3 * .5 = 5/6 and .5, once 2/3 for the one token after
    # L = 1: lam = 1 - 1/1.5; the last segment is not shrunk: 1 - .6
    found, returns = A.compaction_advantages(rewards, values, mask, owners)
    same(found, [[5 / 9, 0.0, 1 / 3], [0.4, 0.0, 0.0]])
    # targets of the value head know nothing of the factor: 5/6 + 0, .5 + .5, .4 + .6
    same(returns, [[5 / 6, 0.0, 1.0], [1.0, 0.0, 0.0]])
    # segments of two rollouts do not shrink each other
    apart = A.compaction_advantages(rewards, values, mask, torch.tensor([0, 1]))[0]
    same(apart, [[5 / 6, 0.0, 0.5], [0.4, 0.0, 0.0]])


def test_one_segment_of_compaction_is_gae() -> None:
    values, mask = rows([0.2, 0.5, 0.8]), torch.ones(1, 3)
    found = A.compaction_advantages(f64(1), values, mask, torch.tensor([0]), lam=0.95)[0]
    same(found, A.gae_advantages(rows([0, 0, 1]), values, mask)[0].tolist())
    with pytest.raises(ValueError, match="above 0"):
        A.compaction_advantages(f64(1), values, mask, torch.tensor([0]), length_factor=0)


def test_segments_carry_the_change_of_value() -> None:
    same(A.vine_ppo_advantages(f64(0.2, 0.6, 0.5, 1.0)), [0.4, -0.1, 0.5])
    mask = A.spo_probability_mask(rows([0.95, 0.5]).log(), BOTH)
    assert mask.tolist() == [[False, True]]


def test_single_stream_spo_step() -> None:
    alpha, beta = A.single_stream_spo_prior(f64(2.0), 8)
    same(alpha, [8 * 2.5 / 9])
    same(beta, [8 * 6.5 / 9])
    alpha, beta, r = f64(4, 2), f64(4, 6), f64(1, 0)
    # d = (.5, -.25): mean .125, deviations +-.375, std (ddof 1) .375 sqrt(2)
    same(A.single_stream_spo_advantages(r, alpha, beta, eps=0.0), [sqrt(0.5), -sqrt(0.5)])
    rho = A.single_stream_spo_memory(f64(0.006, 0.0))
    same(rho, [2**-0.1, 0.96])
    alpha, beta = A.single_stream_spo_update(r, alpha, beta, rho)
    same(alpha, [4 * 2**-0.1 + 1, 1.92])
    same(beta, [4 * 2**-0.1, 6.76])
    same(A.single_stream_spo_sampling_weights(f64(1), f64(3)), [sqrt(3) / 4 + 0.05])


def test_optimal_token_baseline() -> None:
    logits = f64(0.0, log(3))  # p = 1/4, 3/4; sum of squares 5/8
    same(A.logit_gradient_proxy(f64(0.75).log()[0], logits), 1 - 1.5 + 0.625)
    proxies = rows([0.5, 0.02], [0.08, 0.5])  # gathered: (.5, .52), (.08, .58)
    found = A.otb_advantages(f64(1, 0), ids(0, 0), torch.ones(2, 2), proxies, eps=0.0)
    first, second = 0.5 / 0.58, 0.52 / 1.1
    same(found, [[1 - first, 1 - second], [-first, -second]])


def test_otb_tail_beyond_the_runner_up() -> None:
    proxies, mask = torch.ones(2, 3).double(), rows([1, 1, 1], [1, 0, 0])
    kept = A.otb_advantages(f64(1, 0), ids(0, 0), mask, proxies, eps=0.0)
    same(kept, [[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]])
    zeroed = A.otb_advantages(f64(1, 0), ids(0, 0), mask, proxies, eps=0.0, zero_tail=True)
    same(zeroed, [[0.5, 1.0, 1.0], [-0.5, 0.0, 0.0]])


def test_otb_counts_trained_tokens_when_compact() -> None:
    # row 1 has a hole first; compact compares its only token with the first token of row 0
    proxies, mask = rows([1, 1], [9, 3]), rows([1, 1], [0, 1])
    found = A.otb_advantages(f64(1, 0), ids(0, 0), mask, proxies, eps=0.0, compact=True)
    # t = 1: W = 1, 3: B = 1/4; t = 2: only row 0: B = 1
    same(found, [[0.75, 0.0], [0.0, -0.25]])


def test_hapo_weighs_tokens() -> None:
    # 1 token of reward 1, 3 of reward 0: mean 1/4, std sqrt(3)/4
    found = A.hapo_advantages(f64(1, 0), ids(0, 0), ids(1, 3), eps=0.0)
    same(found, [sqrt(3), -1 / sqrt(3)])


def test_hapo_falls_back_to_grpo_when_an_advantage_is_wild() -> None:
    # 1 token in 101: mean 1/101, (1 - mean) / std = sqrt(100) = 10 >= 5
    found = A.hapo_advantages(f64(1, 0), ids(0, 0), ids(1, 100), eps=0.0)
    same(found, [0.5 / (sqrt(0.5) + 1e-6), -0.5 / (sqrt(0.5) + 1e-6)])
    assert A.hapo_advantages(f64(1, 0), ids(0, 0), ids(1, 100), eps=0.0, fallback=None)[
        0
    ].item() == pytest.approx(10.0, abs=1e-9)


def test_trees() -> None:
    # root 0 with children 1 and 2; 3 and 4 below 1
    parents, r = ids(-1, 0, 0, 1, 1), f64(0, 0, 1, 1, 0)
    same(A.tree_values(r, parents), [0.75, 0.5, 1.0, 1.0, 0.0])
    same(A.spo_tree_advantages(r, parents), [0.0, -0.25, 0.25, 0.5, -0.5])
    # siblings (.5, 1): std (ddof 0) .25; siblings (1, 0): .5
    same(A.spo_tree_advantages(r, parents, normalise=True, eps=0.0), [0.0, -1.0, 1.0, 1.0, -1.0])
    # leaf 2: self 0, root 3 (1 - 2/3), over 1 + 3; leaf 3: 0, 2 (1 - 1/2), 3 (1 - 2/3), over 6
    same(A.treepo_leaf_rewards(r, parents), [0.0, 0.0, 0.25, 1 / 3, -0.5])
    same(
        A.treepo_leaf_rewards(r, parents, weigh_by="one"),
        [0.0, 0.0, (1 / 3) / 2, (1 / 2 + 1 / 3) / 3, (-1 / 2 - 2 / 3) / 3],
    )
    # node 1: mean(1/3, -1/2) = -1/12; root: mean(-1/12, 1/4) = 1/12
    same(A.treepo_advantages(r, parents), [0.0, -1 / 6, 1 / 6, 5 / 12, -5 / 12])


# --- surrogates -----------------------------------------------------------------------------------


def test_the_clipped_surrogates() -> None:
    # rho = 1.5 and .25
    same(value(A.ppo_clip_loss(PI, OLD, MIXED, BOTH)), (-1.2 + 0.8) / 2)
    same(value(A.dapo_loss(PI, OLD, PLUS, BOTH)), (-1.28 - 0.25) / 2)
    nine = rows([0.9]).log(), rows([0.1]).log(), MINUS, torch.ones(1, 1)
    same(value(A.ppo_clip_loss(*nine)), 9.0)
    same(value(A.dual_clip_loss(*nine)), 3.0)
    eight = rows([0.8]).log(), rows([0.1]).log(), MINUS, torch.ones(1, 1)
    same(value(A.two_sided_clip_loss(*eight)), 4.0)
    same(value(A.reinforce_loss(rows([0.5]).log(), f64(2), torch.ones(1, 1))), 2 * log(2))


def test_the_detached_surrogates() -> None:
    # 1.28 and .25 times log pi
    expected = (-1.28 * log(0.6) + 0.25 * log(0.1)) / 2
    same(value(A.cispo_loss(PI, OLD, MIXED, BOTH)), expected)
    absolute = A.cispo_loss(PI, OLD, MIXED, BOTH, eps_low=0.0, eps_high=1.28, bounds="absolute")
    same(value(absolute), expected)
    same(value(A.topr_loss(PI, OLD, MINUS, MINUS, BOTH)), (log(0.6) + 0.25 * log(0.1)) / 2)
    # sequence ratio .375
    whole = A.topr_loss(PI, OLD, MINUS, MINUS, BOTH, ratio="sequence")
    same(value(whole), 0.375 * (log(0.6) + log(0.1)) / 2)
    same(value(A.topr_loss(PI, OLD, PLUS, PLUS, BOTH)), -(log(0.6) + log(0.1)) / 2)


def test_the_sequence_surrogates() -> None:
    s = sqrt(1.5 * 0.25)
    same(value(A.gspo_loss(PI, OLD, PLUS, BOTH, eps_low=0.2, eps_high=0.28)), -s)
    same(value(A.gspo_loss(PI, OLD, MINUS, BOTH, eps_low=0.2, eps_high=0.28)), 0.8)
    same(value(A.gspo_token_loss(PI, OLD, PLUS, BOTH, eps_low=0.2, eps_high=0.28)), -s)
    same(value(A.luspo_loss(PI, OLD, PLUS, BOTH)), -2 * s)
    # log ratios .405465 -> .4 and -1.386294, unclipped below since A > 0
    same(value(A.gmpo_loss(PI, OLD, PLUS, BOTH)), -exp((0.4 + log(0.25)) / 2))
    # A < 0: .405465 stays, -1.386294 -> -.4
    same(value(A.gmpo_loss(PI, OLD, MINUS, BOTH)), exp((log(1.5) - 0.4) / 2))


def test_the_gated_surrogates() -> None:
    one = torch.ones(1, 1)
    x = 1 / (1 + exp(-0.5))
    same(value(A.sapo_loss(rows([1.5]).log(), rows([1.0]).log(), PLUS, one)), -4 * x)
    y = 1 / (1 + exp(-1.05 * 0.5))
    same(value(A.sapo_loss(rows([1.5]).log(), rows([1.0]).log(), MINUS, one)), 4 / 1.05 * y)
    pi_, old, proxy = rows([0.01, 0.5]).log(), rows([0.02, 0.5]).log(), rows([0.05, 0.6]).log()
    # rho .5 and 1, pulled by k3 of ln 5 and ln 1.2
    first, second = 0.5 + 5 - 1 - log(5), 1 + 1.2 - 1 - log(1.2)
    chosen = A.low_probability_mask(pi_, MINUS, BOTH, share=1.0)
    same(value(A.lp_reg_loss(pi_, old, proxy, MINUS, BOTH, selected=chosen)), (first + second) / 2)
    # nothing selected: PPO with a ratio of at most 10 and no lower bound
    same(value(A.lp_reg_loss(pi_, old, proxy, MINUS, BOTH)), (0.5 + 1) / 2)
    same(value(A.kimi_loss(rows([-1.0]), rows([-2.0]), PLUS, one, tau=0.5)), 1 + 0.25)


def test_the_score_losses() -> None:
    logp, old = rows([0.8], [0.5]).log(), rows([0.4], [0.5]).log()
    found = A.pacs_loss(logp, old, f64(1, 0), ids(0, 0), torch.ones(2, 1))
    same(value(found), log(1.5))  # sigmoid(ln 2) = 2/3
    # -ln sigmoid(ln 2) and -ln sigmoid(ln 2) again, weighed 3 and 1
    weighed = A.pacs_loss(logp, old, f64(1, 0), ids(0, 0), torch.ones(2, 1), row_weights=f64(3, 1))
    same(value(weighed), 2 * log(1.5))
    # Q = (0, .5); targets 1 + .5 and 1
    rover = A.rover_loss(rows([-1, -1]), rows([-1, -1.5]), PLUS, BOTH, temperature=1.0)
    same(value(rover), (1.5**2 + 0.5**2) / 2)
    same(A.rover_advantages(f64(1, 0, 0, 0), ids(0, 0, 0, 0)).double(), [3.75, *[-0.5] * 3])
    weights = A.drpo_length_weights(
        ids(1, 1, 0), f64(100, 200, 300), ids(0, 0, 0), max_length=400, lam=0.5
    )
    same(weights, [1 / (1 + exp(-0.5)), 1 / (1 + exp(0.5)), 0.0])
    drpo = A.drpo_loss(
        rows([0.5], [0.25]).log(), ids(1, 0), ids(0, 0), torch.ones(2, 1), max_length=9
    )
    same(value(drpo), -log(2))
    # With a small tau the likeliest wrong answer has the whole gradient, and not none.
    logp = torch.tensor([[-1.0], [-1.5], [-2.0]], requires_grad=True)
    sharp, _ = A.drpo_loss(
        logp, ids(1, 0, 0), ids(0, 0, 0), torch.ones(3, 1), max_length=9, tau=0.001
    )
    same(torch.autograd.grad(sharp, logp)[0].flatten().double(), f64(-1, 1, 0))
    same(A.hinge_kl_penalty(f64(0.5)[0], delta=0.25, beta=2.0), 0.25)


def test_the_corrected_surrogates() -> None:
    one = torch.ones(1, 1)
    at, mu = rows([0.6]).log(), rows([0.3]).log()
    same(value(A.decoupled_ppo_loss(at, at, mu, PLUS, one)), -2.0)
    same(value(A.decoupled_ppo_loss(at, at, mu, PLUS, one, cap=1.5)), -1.5)
    same(value(A.decoupled_ppo_loss(at, at, mu, PLUS, one, cap=1.5, outside="mask")), 0.0)
    # pi/old 1.3 > 1.2 with A > 0: dropped; with A < 0 it stays, weighed pi/mu = 2.6
    moved, old, sampler = rows([0.65]).log(), rows([0.5]).log(), rows([0.25]).log()
    same(value(A.minirl_loss(moved, old, sampler, PLUS, one)), 0.0)
    same(value(A.minirl_loss(moved, old, sampler, MINUS, one)), 2.6 * log(0.65))


# --- corrections, KL, entropy, value --------------------------------------------------------------


def test_importance_weights_truncated_and_masked() -> None:
    same(A.importance_weights(PI, MU, BOTH), [[1.5, 0.5]])
    same(A.tis_weights(PI, MU, BOTH, cap=1.2), [[1.2, 0.5]])
    same(A.tis_weights(PI, MU, BOTH, cap=1.2, floor=0.7), [[1.2, 0.7]])
    same(A.tis_weights(PI, MU, BOTH, level="sequence"), [[0.75, 0.75]])
    same(A.tis_weights(PI, MU, BOTH, normalise=True), [[1.5, 0.5]])
    same(A.mis_weights(PI, MU, BOTH, low=0.6, high=2.0), [[1.5, 0.0]])
    same(A.importance_weights(PI, MU, BOTH, level="geometric"), [[sqrt(0.75)] * 2])
    same(A.mis_weights(PI, MU, BOTH, low=0.9, high=1.1, level="geometric"), [[0.0, 0.0]])


def test_filters() -> None:
    # max k2: ln(2)^2 / 2 = .240227; mean k3: (1.5 - 1 - ln 1.5 + .5 - 1 + ln 2) / 2
    same(A.trust_region_statistic(PI, MU, BOTH, statistic="max_k2"), [log(2) ** 2 / 2])
    same(A.trust_region_statistic(PI, MU, BOTH, statistic="mean_k3"), [(log(2) - log(1.5)) / 2])
    assert not A.ratio_band_mask(PI, MU, BOTH, low=0.9, high=1.1).item()
    assert A.ratio_band_mask(PI, MU, BOTH, low=0.8, high=1.1).item()
    at, mu = rows([0.1], [0.1]).log(), rows([0.4], [0.4]).log()
    kept = A.opsm_mask(at, mu, f64(-1, 1), torch.ones(2, 1), delta=0.5)  # ln 4 > .5
    assert kept.tolist() == [False, True]
    mastered = A.mpt_mask(rows([0.995, 0.5]).log(), f64(1), f64(0.1), BOTH, sigma=0.2)
    assert mastered.tolist() == [[False, True]]
    tv = A.dppo_mask(rows([0.5, 0.5]).log(), rows([0.3, 0.3]).log(), MIXED, BOTH, delta=0.1)
    assert tv.tolist() == [[False, True]]


def test_divergences() -> None:
    at, ref, old = f64(0.5).log()[0], f64(0.25).log()[0], rows([0.4]).log()
    same(A.kl_k1(at, ref), log(2))
    same(A.kl_k2(at, ref), log(2) ** 2 / 2)
    same(A.kl_k3(at, ref), 0.5 - 1 + log(2))
    same(A.kl_k3_plus(at, ref), 0.5 - 1 + log(2))
    one = torch.ones(1, 1)
    weighted = A.kl(at.view(1, 1), ref.view(1, 1), one, old_logp=old)
    same(weighted, [[1.25 * (log(2) - 0.5)]])
    clamped = A.kl(at.view(1, 1), ref.view(1, 1), one, max_log_ratio=0.5, max_value=0.1)
    same(clamped, [[0.1]])  # e^-.5 - 1 + .5 = .106531
    rewards = A.kl_penalised_rewards(
        one.double(), at.view(1, 1), ref.view(1, 1), one, coefficient=0.1
    )
    same(rewards, [[1 - 0.1 * log(2)]])
    assert A.adaptive_kl_coefficient(0.1, 12, target=6, horizon=100, steps=50) == pytest.approx(
        0.11
    )
    assert A.adaptive_kl_coefficient(0.1, 6.6, target=6, horizon=100, steps=50) == pytest.approx(
        0.105
    )


def test_entropy_and_value() -> None:
    # p = 1/4, 3/4: ln 4 - 3/4 ln 3
    same(A.entropy_from_logits(f64(0.0, log(3))), log(4) - 0.75 * log(3))
    # at temperature 2: p proportional to 1, sqrt(3)
    z = 1 + sqrt(3)
    cool = log(z) - sqrt(3) / z * log(3) / 2
    same(A.entropy_from_logits(f64(0.0, log(3)), temperature=2.0), cool)
    same(A.logp_from_logits(f64(0.0, log(3)), torch.tensor(1)), log(0.75))
    one = torch.ones(1, 1).double()
    same(value(A.value_loss(one, 0 * one, 2 * one, one)), 0.5 * 1.8**2)
    same(value(A.value_loss(one, 0 * one, 2 * one, one, value_clip=None)), 0.5)
    assert A.adaptive_entropy_coefficient(0.0, 0.3, target=0.2) == (0.0, 0.0)


# --- aggregation ----------------------------------------------------------------------------------

LOSSES, MASK = rows([1, 2, 3], [4, 7, 7], [9, 9, 9]), rows([1, 1, 1], [1, 0, 0], [0, 0, 0])


@pytest.mark.parametrize(
    ("agg", "expected"),
    [
        ("token_mean", 2.5),  # 10 / 4
        ("sequence_sum", 5.0),  # (6 + 4) / 2 live rows
        ("sequence_mean", 3.0),  # (2 + 4) / 2
        ("sequence_mean_all_rows", 2.0),  # (2 + 4) / 3
        ("sequence_sum_all_rows", 10 / 3),
        (partial(A.fixed_length, length=10), 10 / 30),
        (partial(A.fixed_length, length=10, rows="live"), 10 / 20),
        (partial(A.fixed_length, length=10, rows="one"), 1.0),
        (partial(A.prompt_mean, groups=ids(0, 0, 1)), 2.5),
        (partial(A.prompt_mean, groups=ids(0, 1, 1)), 3.0),
    ],
)
def test_aggregations(agg: Agg, expected: float) -> None:
    same(value(A.aggregate(LOSSES, MASK, agg)), expected)


# --- sampling and shaping -------------------------------------------------------------------------


def test_sampling_filters() -> None:
    r, g = f64(1, 1, 1, 0, 1), ids(0, 0, 1, 1, 2)
    assert A.dynamic_sampling_mask(r, g).tolist() == [False, False, True, True, True]
    assert A.zero_gradient_mask(r, g).tolist() == [False, False, True, True, False]
    assert A.difficulty_band_mask(r, g).tolist() == [False, False, True, True, False]
    rates = A.no_positive_resampling_mask(f64(0.89, 0.9, 1.0, float("nan")))
    assert rates.tolist() == [True, False, False, True]
    finished = f64(1, 1, 1, 0, 0, 1, 0, 1), ids(5, 5, 9, 9, 2, 2, 7, 7)
    kept = A.active_sampling_mask(*finished, wanted=2)
    assert kept.tolist() == [False, False, True, True, True, True, False, False]
    assert A.reward_spread_mask(f64(1, 0), ids(0, 0), threshold=0.5, ddof=0).tolist() == [
        True,
        True,
    ]


def test_dars_budgets() -> None:
    u = f64(0, 0.125, 0.25, 0.5)
    assert A.dars_extra_rollouts(u).tolist() == [24, 11, 3, 0]
    hard = A.dars_extra_rollouts(u, schedule="hardness_weighted")
    assert hard.tolist() == [24, 24, 8, 0]
    # std: S = 2 sqrt(u (1 - u)) peaks at 1, of u = 1/8: .6614, (8 - 5.2915) / .6614 = 4.095
    assert A.dars_extra_rollouts(f64(0.125, 0.25, 0.5), spread="std").tolist() == [5, 2, 0]
    # 2 * .875 * 8 = 14: (14 - 5.2915) / .6614 = 13.166; of u = 1/4: (12 - 6.9282) / .8660 = 5.856
    steep = A.dars_extra_rollouts(f64(0.125, 0.25), schedule="hardness_weighted", spread="std")
    assert steep.tolist() == [14, 6]


def test_pools_temperatures_and_penalties_of_rollouts() -> None:
    assert A.adaptive_pool_size(100, 0.3, max_groups=1000) == 334
    assert A.adaptive_pool_size(100, 0.05, max_groups=1000) == 1000
    assert A.adaptive_pool_size(100, 0.0, max_groups=50) == 50
    assert A.aepo_temperature(0.5, target=0.5) == 1.2
    assert A.aepo_temperature(0.6, target=0.5, high=1.5, low=0.5) == 0.5
    # a quarter of the calls failed, and two of three answers are too many in eight turns
    calls, errors = ids(4, 0, 2), ids(1, 0, 2)
    found = A.roc_penalties(calls, errors, ids(3, 1, 1), ids(8, 2, 4), ids(0, 1, 0).bool())
    same(found, [0.5, 1.5, 1.0])


def test_the_proxy_without_noise() -> None:
    logits = f64(0.5, 0.3, 0.15, 0.05).log()
    # at a fifth of the likeliest, .05 goes and .95 is left
    same(A.min_p_proxy_logp(logits, ids(2)[0], ratio=0.2), log(0.15 / 0.95))
    assert float(A.min_p_proxy_logp(logits, ids(3)[0], ratio=0.2)) < -1e3


def test_length_rewards() -> None:
    lengths = ids(16384, 18432, 20480, 21000)
    found = A.overlong_penalty_rewards(lengths, max_length=20480, buffer=4096)
    same(found.double(), [0.0, -0.5, -1.0, -1.0])
    ramp = A.overlong_penalty_rewards(lengths.double(), max_length=20480, buffer=4096, clamp=False)
    same(ramp, [0.0, -0.5, -1.0, -4616 / 4096])
    one, long, target = f64(1), f64(1200), f64(1000)
    same(A.l1_exact_rewards(one, long, target), [0.94])
    same(A.l1_max_rewards(one, long, target), [0.44])
    same(A.l1_max_rewards(one, long, target, slope="repository"), [0.47])
    cosine = A.cosine_rewards(f64(1, 1, 0, 1), f64(0, 2000, 2000, 4000), max_length=4000)
    same(cosine, [2.0, 1.5, -5.0, -10.0])
    quarter = A.cosine_rewards(f64(1), f64(1000), max_length=4000)
    same(quarter, [1 + (1 + cos(pi / 4)) / 2])
    same(A.cosine_rewards(f64(1), f64(3984), max_length=4000, margin=16), [-10.0])
    same(A.laser_rewards(ids(1, 1, 0), ids(4000, 5000, 100), 4096).double(), [1.5, 1.0, -0.5])
    kimi = A.kimi_length_rewards(ids(1, 0, 1), f64(100, 200, 300), ids(0, 0, 0))
    same(kimi, [0.5, 0.0, -0.5])
    triangle = A.curriculum_length_rewards(f64(64, 128, 192, 256, 999), budget=128)
    same(triangle, [0.5, 1.0, 0.5, 0.0, 0.0])
    assert A.curriculum_budget(99, start=256, gamma=0.7, every=100) == 256
    assert A.curriculum_budget(300, start=256, gamma=0.7, every=100) == pytest.approx(87.808)


def test_laser_d_targets() -> None:
    limits = f64(1024, 2048, 4096)
    target = partial(A.laser_d_target, thresholds=limits, rollouts=8)
    assert target(f64(0.2, 0.4, 1.0), level=0) == 1024  # int(.2 * 5) = 1
    assert target(f64(0.1, 0.5, 1.0), level=1) == 2048  # int(.5 * 2) = 1
    assert target(f64(0.0, 0.5, 1.0), level=2) == 4096
    levels = A.laser_d_level(f64(1, 1, 0, 1, 0, 0, 0, 0, 0), ids(0, 0, 0, 1, 1, 1, 2, 2, 2))
    assert levels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_grpo_lambda_punishes_length_only_in_the_best_groups() -> None:
    # group 0 all right (z = -1, 1), groups 1..4 worse: ceil(.2 * 5) = 1 group
    correct = f64(1, 1, 1, 0, 1, 0, 1, 0, 1, 0)
    lengths = f64(100, 300, *[100] * 8)
    groups = ids(0, 0, 1, 1, 2, 2, 3, 3, 4, 4)
    found = A.grpo_lambda_rewards(correct, lengths, groups, alpha=0.2)
    first, second = 1 - 0.2 / (1 + e), 1 - 0.2 / (1 + exp(-1))
    same(found, [first, second, 1, 0, 1, 0, 1, 0, 1, 0])


def test_dot_cuts_outliers_where_all_are_right() -> None:
    lengths, groups = f64(100, 100, 100, 400), ids(0, 0, 0, 0)
    # mean 175, squares 3 * 75^2 + 225^2 = 67500, / 3 = 22500, std 150
    cut = A.dot_truncation_lengths(f64(1, 1, 1, 1), lengths, groups, deviations=1)
    assert cut.tolist() == [100, 100, 100, 325]
    spared = A.dot_truncation_lengths(f64(1, 1, 1, 0), lengths, groups, deviations=1)
    assert spared.tolist() == [100, 100, 100, 400]


def test_text_rewards() -> None:
    assert A.repetition_penalty([5] * 5, n=2) == -0.75
    assert A.repetition_penalty([5], n=2) == 0.0
    assert A.repetition_penalty([5, 5, 6, 7], n=1) == -0.25
    with pytest.raises(ValueError, match="at least 1"):
        A.repetition_penalty([5, 6], n=0)
    assert A.format_reward("<think>a</think><answer>b</answer>") == 1.0
    assert A.format_reward("<think>a</think><answer>b</answer><answer>c</answer>") == 0.0
    after, before, mask = rows([0.8, 0.6, 0.9]), rows([0.3, 0.1, 0.0]), rows([1, 1, 0])
    same(A.rlpr_rewards(after, before, mask), [0.5])
    same(A.rlpr_rewards(after, before, mask, format_rewards=f64(1)), [0.55])
    same(A.sar_rewards(f64(1), f64(4), f64(3), alpha=0.2), [1.05])
    same(A.dler_truncation_rewards(f64(1, 1), torch.tensor([True, False])), [0.0, 1.0])
