"""What is not finite never reaches the weights."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.envs import Task
from ludus.errors import UpdateRefused
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import Experience, gather
from ludus.trainer.learning.guard import broken_units
from ludus.trainer.learning.learner import Learner, Predicted
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import PassLoss, Updater
from ludus.trainer.models.checkpoint import SavedModel, save_checkpoint
from ludus.trainer.models.checkpoint_folders import Retention, checkpoints
from ludus.trainer.models.tiny import build_model, build_tokenizer
from ludus.trainer.recipes.recipe import UpdateSettings, load_recipe
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.batch import Batch
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict

POISON = 39
"""A token; rows that hold it break in the losses below."""


def trajectory(reward: float, *, seed: int, poisoned: bool = False, logprob: float = -3.0) -> Any:
    ids = torch.randint(3, 38, (8,), generator=torch.Generator().manual_seed(seed)).tolist()
    ids[5] = POISON if poisoned else ids[5]
    turns = [Turn(out_ids=ids[3:], logprobs=[logprob] * 5)]
    return Trajectory(
        verdict=Verdict.of(reward), segments=[Segment(prompt_ids=ids[:3], turns=turns)]
    )


def experience(*bad: int, logprob: float = -3.0) -> Experience:
    """Three groups of four rollouts; those numbered in `bad` hold the poison."""
    groups: list[Group] = []
    for task in range(3):
        episodes = []
        for index in range(4):
            number = 4 * task + index
            poisoned = number in bad
            one = trajectory(
                float(index == 0),
                seed=number,
                poisoned=poisoned,
                logprob=logprob if poisoned else -3.0,
            )
            name = f"train/{task}"
            episodes.append(Episode(task=name, group=f"0/{name}", index=index, trajectories=[one]))
        groups.append(Group(Task(id=f"train/{task}", split="train"), episodes, 0))
    made = gather(groups)
    assert made is not None
    return made


class _Poisoned(torch.autograd.Function):
    """A number as it is, and NaN for its gradient where it is told."""

    @staticmethod
    def forward(ctx: Any, logp: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(bad)
        return logp.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (bad,) = ctx.saved_tensors
        return gradients[0].masked_fill(bad, math.nan), None


def nan_gradient(logp: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
    """The value of `logp`, with a NaN for its gradient where `bad` holds."""
    return _Poisoned.apply(logp, bad)  # type: ignore[no-any-return]


def nan_loss(logp: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
    return logp * torch.ones_like(logp).masked_fill(bad, math.nan)


def infinite_loss(logp: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
    return logp * torch.ones_like(logp).masked_fill(bad, math.inf)


BREAKS = [nan_gradient, nan_loss, infinite_loss]


def loss_that(breaks: Any) -> Any:
    def loss(batch: Batch, predicted: Predicted) -> tuple[torch.Tensor, torch.Tensor]:
        bad = (batch.ids == POISON).any(1, keepdim=True).expand_as(batch.mask)
        return -(breaks(predicted.logp, bad) * batch.mask).sum(), batch.mask.sum()

    return loss


def learner(**settings: Any) -> Learner:
    model = build_model(40, hidden=16, layers=1, heads=2, max_length=64)
    return Learner(model, TrainerConfig(lr=1e-2, **settings))


def stand(made: Learner) -> list[torch.Tensor]:
    """Weights and what the optimizer keeps."""
    kept = [one.detach().clone() for one in made.model.parameters()]
    for state in made.optimizer.state.values():
        kept += [torch.as_tensor(value).clone() for value in state.values()]
    return kept


@pytest.mark.parametrize("breaks", BREAKS)
@pytest.mark.parametrize("tokens", [8, 1000])
def test_an_update_that_is_not_finite_leaves_weights_and_optimizer_untouched(
    breaks: Any, tokens: int
) -> None:
    made = learner(tokens_per_pass=tokens)
    batch = experience(2, 7).batch
    fine = torch.tensor([0, 1, 3])
    made.update(batch, fine, loss_that(breaks))  # so that the optimizer has something to lose
    before, updates = stand(made), made.updates
    with pytest.raises(UpdateRefused, match="not finite") as refused:
        made.update(batch, torch.arange(12), loss_that(breaks))
    assert refused.value.rows == (2, 7)
    after = stand(made)
    assert len(after) == len(before)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert made.updates == updates
    # and it goes on as if nothing had been tried
    twin = learner(tokens_per_pass=tokens)
    twin.update(batch, fine, loss_that(breaks))
    twin.update(batch, torch.tensor([0, 4, 5]), loss_that(breaks))
    made.update(batch, torch.tensor([0, 4, 5]), loss_that(breaks))
    assert all(torch.equal(a, b) for a, b in zip(stand(made), stand(twin), strict=True))


def test_without_the_guard_one_row_would_turn_every_weight_into_nan() -> None:
    """The positive control: what the same gradient does when nobody looks at it."""
    made = learner()
    batch = experience(2).batch
    total, weight = loss_that(nan_gradient)(batch, made.predict(batch))
    (total / weight).backward()
    torch.nn.utils.clip_grad_norm_(list(made.model.parameters()), 1.0)
    made.optimizer.step()
    assert all(bool(one.isnan().all()) for one in made.model.parameters() if one.grad is not None)


@pytest.mark.parametrize(
    ("bad", "found"), [([3], [3]), ([0, 9], [0, 9]), (range(12), range(8)), ([], [])]
)
def test_the_rows_at_fault_are_found_by_halving(bad: Any, found: Any) -> None:
    tries: list[list[int]] = []

    def breaks(rows: list[int]) -> bool:
        tries.append(rows)
        return bool(set(rows) & set(bad))

    assert broken_units([[row] for row in range(12)], breaks) == list(found)
    assert len(tries) <= 24


def test_rows_that_only_break_together_are_told_together() -> None:
    assert broken_units([[0], [1], [2], [3]], lambda rows: sum(rows) > 4) == [2, 3]
    assert broken_units([[0, 1], [2, 3]], lambda rows: len(rows) > 3) == [0, 1, 2, 3]


def updater(overrides: dict[str, object] | None = None, **settings: Any) -> Any:
    return Updater(
        resolve(load_recipe("grpo", overrides), max_tokens=8),
        learner(),
        updates=UpdateSettings(**settings),
    )


def step(made: Any, found: Experience) -> Any:
    return made.step(found, generator=torch.Generator().manual_seed(0))


def test_only_the_update_with_the_fault_is_refused_and_its_episode_is_named() -> None:
    made = updater(splits=3)
    found = experience(5)

    class Planted(PassLoss):
        def __call__(self, batch: Batch, predicted: Predicted) -> Any:
            total, weight = super().__call__(batch, predicted)
            bad, _ = loss_that(nan_gradient)(batch, predicted)
            return total + 0 * bad, weight

    made.loss_of = lambda credited, version: Planted(made.algorithm, credited, version=version)
    numbers = step(made, found)
    assert (numbers["updates"], numbers["refused"]) == (2.0, 1.0)
    assert math.isfinite(numbers["grad_norm"])
    assert math.isfinite(numbers["ratio_max"])
    (refusal,) = made.refusals
    assert refusal.names == ["0/train/1 rollout 1"]
    assert refusal.batch.ids[0, 5] == POISON
    assert "task train/1 (group 0/train/1, rollout 1); see here" in refusal.told("here")
    assert all(bool(one.isfinite().all()) for one in made.learner.model.parameters())


@pytest.mark.parametrize("logprob", [math.nan, math.inf, -math.inf])
def test_log_probabilities_of_a_sampler_that_are_not_finite_make_no_update(logprob: float) -> None:
    made = updater()
    before = stand(made.learner)
    numbers = step(made, experience(6, logprob=logprob))
    assert numbers == {"refused": 1.0, "updates": 0.0}
    (refusal,) = made.refusals
    assert refusal.reason == "not finite: sampler_logp of 5 of 60 trained tokens"
    assert refusal.names == ["0/train/1 rollout 2"]
    assert all(torch.equal(a, b) for a, b in zip(before, stand(made.learner), strict=True))


def by_spread(rewards: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Advantages over the spread of a group's rewards, which is 0 where these are equal."""
    made = torch.zeros_like(rewards)
    for group in groups.unique():
        own = rewards[groups == group]
        made[groups == group] = (own - own.mean()) / own.std()
    return made


def test_advantages_that_are_not_finite_are_charged_to_the_function_that_made_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "own", SimpleNamespace(by_spread=by_spread))
    made = updater({"algorithm": {"advantage": "own:by_spread"}})
    found = experience()
    found.rewards[4:8] = 1.0
    assert step(made, found) == {"refused": 1.0, "updates": 0.0}
    (refusal,) = made.refusals
    assert refusal.reason == (
        "not finite: advantages of 20 of 60 trained tokens, computed by own:by_spread "
        "(algorithm.advantage of the recipe 'grpo')"
    )
    assert refusal.names == [f"0/train/1 rollout {number}" for number in range(4)]
    assert refusal.remedy.startswith("mend own:by_spread: what it was given is finite")
    assert "trainer.lr" not in refusal.remedy


def test_a_value_head_that_is_not_finite_makes_no_update() -> None:
    model = build_model(40, hidden=16, layers=1, heads=2, max_length=64)
    pupil = Learner(model, TrainerConfig(lr=1e-2), ReadingOptions(values=True))
    assert pupil.value_head is not None
    torch.nn.init.constant_(pupil.value_head.bias, math.nan)
    made: Any = Updater(resolve(load_recipe("ppo")), pupil)
    assert step(made, experience())["refused"] == 1.0
    assert "values of 60 of 60 trained tokens" in made.refusals[0].reason


def test_rewards_too_large_for_a_sum_make_no_update() -> None:
    found = experience()
    found.rewards[0] = 3e38  # of float32, in which twice that is infinite
    made = updater({"algorithm": {"advantage": "dr_grpo_advantages"}})
    numbers = step(made, found)
    assert numbers["refused"] == 1.0
    assert "is not finite" in made.refusals[0].reason
    assert made.refused_in_a_row == 1
    step(made, experience())
    assert made.refused_in_a_row == 0


def test_no_checkpoint_of_weights_that_are_not_finite_is_written_nor_an_older_one_removed(
    tmp_path: Path,
) -> None:
    model, tokenizer = build_model(300, hidden=16, layers=1, heads=2), build_tokenizer()
    for number in (1, 2):
        save_checkpoint(tmp_path, number, SavedModel(model, tokenizer), {}, Retention(2))
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    with pytest.raises(UpdateRefused, match="the older ones stay"):
        save_checkpoint(tmp_path, 3, SavedModel(model, tokenizer), {}, Retention(2))
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000001", "step-000002"]
