"""Mistakes other trainers ship, each with the test that would have caught it."""

from __future__ import annotations

import pytest
import torch

from ludus.trainer import algorithms as A


def test_returns_are_not_cut_at_tool_tokens() -> None:
    # a running return multiplied by the mask gives [0, 0, 1, 1]: no credit for the first turn
    rewards, mask = torch.tensor([[0.0, 0.0, 0.0, 1.0]]), torch.tensor([[1, 0, 0, 1]])
    assert A.returns_to_go(rewards, mask).tolist() == [[1, 0, 0, 1]]
    assert A.returns_to_go(rewards, mask, gamma=0.5).tolist() == [[0.5, 0, 0, 1]]


def test_gae_carries_values_and_advantages_across_tool_tokens() -> None:
    rewards, mask = torch.tensor([[0.0, 0.0, 0.0, 1.0]]), torch.tensor([[1, 0, 0, 1]])
    values = torch.tensor([[0.5, 9.0, 9.0, 0.5]])
    assert A.gae_advantages(rewards, values, mask, lam=1.0)[0].tolist() == [[0.5, 0, 0, 0.5]]


def test_a_split_batch_is_not_the_mean_of_means() -> None:
    parts = [torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[4.0]])]
    sums = [A.token_mean(part, torch.ones_like(part)) for part in parts]
    total, weight = sum(s for s, _ in sums), sum(w for _, w in sums)
    assert isinstance(total, torch.Tensor)
    assert isinstance(weight, torch.Tensor)
    assert A.divide(total, weight).item() == 1.75
    assert sum(A.divide(*each).item() for each in sums) / 2 == 2.5


@pytest.mark.parametrize(
    "estimator",
    [
        A.grpo_advantages,
        A.dr_grpo_advantages,
        A.rloo_advantages,
        A.lite_ppo_advantages,
        A.gpg_advantages,
    ],
)
def test_a_group_of_one_gets_no_raw_reward_unless_asked(estimator: type) -> None:
    rewards, groups = torch.tensor([1.0, 3.0, 1.0]), torch.tensor([0, 1, 1])
    assert estimator(rewards, groups)[0].item() == 0
    assert estimator(rewards, groups, singleton="raw")[0].item() > 0
    with pytest.raises(ValueError, match=r"singleton is 'zero' or 'raw', got 'nan'"):
        estimator(rewards, groups, singleton="nan")


def test_the_bounds_of_a_ratio_are_not_flipped() -> None:
    # the trainer finds the row 1.5 times as likely: inside [.9, 2], outside [.5, 1.1]
    old, mu, mask = torch.tensor([[0.6]]).log(), torch.tensor([[0.4]]).log(), torch.ones(1, 1)
    assert A.ratio_band_mask(old, mu, mask, low=0.9, high=2.0).item()
    assert not A.ratio_band_mask(old, mu, mask, low=0.5, high=1.1).item()


def test_the_ratio_is_of_probabilities_not_of_their_logarithms() -> None:
    logp, old = torch.tensor([[0.5]]).log(), torch.tensor([[0.25]]).log()
    assert A.policy_ratio(logp, old, torch.ones(1, 1)).item() == pytest.approx(2.0)


def test_equal_rewards_leave_no_rounding_residue_to_amplify() -> None:
    # the float32 mean of three times 0.1 is not 0.1; over a std of 0 that would be an advantage
    rewards, groups = torch.full((3,), 0.1), torch.zeros(3, dtype=torch.long)
    assert A.grpo_advantages(rewards, groups, eps=1e-12).tolist() == [0, 0, 0]
    assert A.dr_grpo_advantages(rewards, groups).tolist() == [0, 0, 0]


def test_a_clipped_token_keeps_its_gradient_under_cispo() -> None:
    logp = torch.tensor([[1.0]], requires_grad=True)
    old, plus, mask = torch.zeros(1, 1), torch.ones(1), torch.ones(1, 1)
    A.cispo_loss(logp, old, plus, mask)[0].backward()
    assert logp.grad is not None
    assert logp.grad.item() == pytest.approx(-1.28)
    logp.grad = None
    A.ppo_clip_loss(logp, old, plus, mask)[0].backward()
    assert logp.grad is not None
    assert logp.grad.item() == 0


def test_cispo_bounds_say_whether_they_are_relative() -> None:
    arguments = torch.tensor([[3.0]]).log(), torch.zeros(1, 1), torch.ones(1), torch.ones(1, 1)
    relative = A.cispo_loss(*arguments, eps_low=1.0, eps_high=4.0)
    absolute = A.cispo_loss(*arguments, eps_low=0.0, eps_high=5.0, bounds="absolute")
    assert torch.equal(relative[0], absolute[0])
    with pytest.raises(ValueError, match="bounds is 'relative' or 'absolute'"):
        A.cispo_loss(*arguments, bounds="both")  # pyright: ignore[reportArgumentType]


def test_all_rows_masked_is_zero_not_nan() -> None:
    losses, mask = torch.ones(2, 2), torch.zeros(2, 2)
    for agg in ("token_mean", "sequence_mean", "sequence_sum"):
        assert A.divide(*A.aggregate(losses, mask, agg)).item() == 0


def test_correction_weights_carry_no_gradient() -> None:
    logp = torch.tensor([[-1.0]], requires_grad=True)
    weights = A.tis_weights(logp, torch.tensor([[-1.5]]), torch.ones(1, 1))
    assert not weights.requires_grad
    attached = (logp * 2).exp()
    A.reinforce_loss(logp, torch.ones(1), torch.ones(1, 1), weights=attached)[0].backward()
    assert logp.grad is not None
    assert logp.grad.item() == pytest.approx(-attached.item())


def test_masking_the_loss_is_not_masking_the_mask() -> None:
    # of two tokens one is rejected: over the original count the loss is half as great
    losses, mask = torch.tensor([[2.0, 8.0]]), torch.ones(1, 2)
    kept = torch.tensor([[1.0, 0.0]])
    assert A.divide(*A.aggregate(losses, mask, weights=kept)).item() == 1.0
    assert A.divide(*A.aggregate(losses, mask * kept)).item() == 2.0


def test_k1_in_the_loss_says_nothing_on_average() -> None:
    # exact expectation over a two-token vocabulary of the gradient of each estimator
    logits = torch.tensor([0.3, -0.4], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([0.9, 0.1], dtype=torch.float64).log()
    logp = torch.log_softmax(logits, 0)

    def expected_gradient(estimate: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(
            (logp.exp().detach() * estimate).sum(), logits, retain_graph=True
        )[0]

    (wanted,) = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), logits, retain_graph=True)
    torch.testing.assert_close(expected_gradient(A.kl_k1(logp, ref)), torch.zeros(2).double())
    torch.testing.assert_close(expected_gradient(A.kl_k2(logp, ref)), wanted)
    torch.testing.assert_close(expected_gradient(A.kl_k3_plus(logp, ref)), wanted)
    (reverse,) = torch.autograd.grad((ref.exp() * (ref - logp)).sum(), logits, retain_graph=True)
    torch.testing.assert_close(expected_gradient(A.kl_k3(logp, ref)), reverse)


def test_an_overlong_penalty_is_clamped_unless_asked() -> None:
    far = torch.tensor([21000.0])
    assert A.overlong_penalty_rewards(far, max_length=20480, buffer=4096).item() == -1
    loose = A.overlong_penalty_rewards(far, max_length=20480, buffer=4096, clamp=False)
    assert loose.item() == pytest.approx(-1.126953, abs=1e-6)


def test_roc_selection_keeps_exactly_what_was_asked() -> None:
    generator = torch.Generator().manual_seed(0)
    for right in range(9):
        for keep in range(1, 9):
            rewards = torch.tensor([1.0] * right + [0.0] * (8 - right))
            penalties = torch.rand(8, generator=generator)
            kept = A.roc_selection_mask(rewards, penalties, keep=keep, generator=generator)
            assert int(kept.sum()) == keep
            if 0 < right < 8 and keep > 1:
                assert 0 < int(kept[:right].sum()) < keep
            chosen = penalties[:right][kept[:right]]
            left = penalties[:right][~kept[:right]]
            assert not len(chosen) or not len(left) or chosen.max() <= left.min()


def test_bad_options_are_refused_with_their_value() -> None:
    arguments = torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1), torch.ones(1, 1)
    with pytest.raises(ValueError, match=r"dual_clip must be above 1, got 1\.0"):
        A.dual_clip_loss(*arguments, dual_clip=1.0)
    with pytest.raises(ValueError, match=r"delta must be above 1 \+ eps_high"):
        A.two_sided_clip_loss(*arguments, delta=1.1)
    with pytest.raises(ValueError, match="agg='fixed_length' needs length"):
        A.ppo_clip_loss(*arguments, agg="fixed_length")
    with pytest.raises(ValueError, match="agg='mean' is not one of token_mean"):
        A.ppo_clip_loss(*arguments, agg="mean")
    with pytest.raises(ValueError, match="no rollout of the solver"):
        A.ssp_proposer_rewards(torch.zeros(2, 0), torch.tensor([True, False]))
    with pytest.raises(ValueError, match="the tree has a circle"):
        A.tree_values(torch.zeros(2), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="3 prompts asked for, but only 1"):
        A.prioritised_sample(torch.tensor([0.0, 1.0, 0.0]), 3)
