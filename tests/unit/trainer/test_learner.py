"""Rows, passes and updates."""

import copy
import dataclasses
from typing import Any

import pytest
import torch

from ludus.agent import Segment, Turn
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.learner import Learner, UpdatePasses, learning_rate
from ludus.trainer.learning.readings import read_logits
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.inputs import Inputs
from ludus.trainer.rollout.batch import Row, as_row, pad, passes
from ludus.trainer.sft import negative_log_likelihood

SEGMENT = Segment(
    prompt_ids=[1, 2, 3],
    turns=[
        Turn(out_ids=[4, 5], logprobs=[-0.5, -0.25]),
        Turn(obs_ids=[6], out_ids=[7], logprobs=[-1.0]),
    ],
)


def learner(**settings: Any) -> Any:
    model = build_model(40, hidden=16, layers=2, heads=2, max_length=64)
    return Learner(model, TrainerConfig(lr=1e-2, **settings))


def flat(segment: Segment) -> Row:
    row = as_row(segment)
    assert row is not None
    return row


def rows(count: int, generator: torch.Generator) -> Any:
    made = []
    for _ in range(count):
        length = int(torch.randint(2, 20, (1,), generator=generator))
        ids = torch.randint(3, 40, (length + 3,), generator=generator).tolist()
        made.append(flat(Segment(prompt_ids=ids[:3], turns=[Turn(out_ids=ids[3:])])))
    return made


def test_a_segment_becomes_a_row_with_the_mask_on_sampled_tokens() -> None:
    row = flat(SEGMENT)
    assert row.ids == [1, 2, 3, 4, 5, 6, 7]
    assert row.mask == [0, 0, 0, 1, 1, 0, 1]
    assert row.logprobs == [0, 0, 0, -0.5, -0.25, 0, -1.0]


def test_the_version_of_each_token_reaches_the_batch() -> None:
    turn = Turn(out_ids=[4, 5], logprobs=[-0.5, -0.25], versions=[2, 3])
    row = flat(Segment(prompt_ids=[1], turns=[turn]))
    assert row.versions == (-1, 2, 3)
    short = flat(Segment(prompt_ids=[1], turns=[Turn(out_ids=[6], logprobs=[-1.0], versions=[3])]))
    batch = pad([row, short])
    assert batch.versions is not None
    assert batch.versions.tolist() == [[-1, 2, 3], [-1, 3, -1]]
    taken = batch.take(torch.tensor([1]), "cpu")
    assert taken.versions is not None
    assert taken.versions.tolist() == [[-1, 3]]
    assert pad([Row([1, 2], [0, 1], [0.0, -1.0])]).versions is None


def test_a_segment_without_sampled_tokens_is_no_row() -> None:
    assert as_row(Segment(prompt_ids=[1, 2])) is None


def test_passes_hold_at_most_the_tokens_they_may_and_every_row_once() -> None:
    lengths = torch.tensor([9, 3, 5, 20, 4])
    made = list(passes(lengths, torch.arange(5), 10))
    assert sorted(torch.cat(made).tolist()) == [0, 1, 2, 3, 4]
    # sorted lengths 3 4 5 9 20: 2 rows of 4 fit in 10, a third of 5 does not
    assert [part.tolist() for part in made] == [[1, 4], [2], [0], [3]]


def test_logp_is_that_of_each_token_given_those_before_it() -> None:
    made = learner()
    batch = pad([flat(SEGMENT)])
    with torch.no_grad():
        every = torch.log_softmax(made.model(batch.ids).logits[0], -1)
    got = made.predict(batch).logp[0]
    expected = [0, 0, 0, every[2, 4], every[3, 5], 0, every[5, 7]]
    assert torch.allclose(got, torch.tensor(expected), atol=1e-6)


def test_entropy_is_that_of_the_distribution_a_token_was_drawn_from() -> None:
    made = learner()
    batch = pad([flat(SEGMENT)])
    with torch.no_grad():
        every = torch.log_softmax(made.model(batch.ids).logits[0], -1)
    entropy = made.predict(batch, entropy=True).entropy[0].detach()
    assert float(entropy[3]) == pytest.approx(float(-(every[2].exp() * every[2]).sum()), abs=1e-5)
    assert float(entropy[5]) == 0.0


@pytest.mark.parametrize("tokens", [1, 37, 64, 10_000])
def test_any_split_into_passes_gives_the_same_update(tokens: int) -> None:
    batch = pad(rows(12, torch.Generator().manual_seed(0)))
    whole, split = learner(tokens_per_pass=100_000), learner(tokens_per_pass=tokens)
    first = whole.update(batch, torch.arange(12), negative_log_likelihood)
    second = split.update(batch, torch.arange(12), negative_log_likelihood)
    assert second["grad_norm"] == pytest.approx(first["grad_norm"], rel=1e-5)
    assert second["loss"] == pytest.approx(first["loss"], rel=1e-5)


def test_idle_rows_count_in_the_weight_without_a_forward_pass() -> None:
    batch = pad(rows(6, torch.Generator().manual_seed(1)))
    worth = torch.tensor([1.0, 0.0, 2.0, 0.0, 0.0, -1.0])
    batch = dataclasses.replace(batch, inputs=Inputs(rewards=worth))

    def loss(part: Any, predicted: Any) -> Any:
        weighted = predicted.logp * part.inputs.rewards.unsqueeze(1) * part.mask
        return weighted.sum(), part.mask.sum()

    every, resting = learner(), learner()
    first = every.update(batch, torch.arange(6), loss)
    second = resting.update(batch, torch.arange(6), loss, UpdatePasses(idle=worth == 0))
    assert second == pytest.approx(first, rel=1e-5)


def test_nothing_to_train_moves_nothing() -> None:
    made = learner()
    before = copy.deepcopy(made.model.state_dict())
    batch = pad(rows(2, torch.Generator().manual_seed(2)))
    batch = dataclasses.replace(batch, mask=torch.zeros_like(batch.mask))
    numbers = made.update(batch, torch.arange(2), negative_log_likelihood)
    assert numbers["loss"] == 0.0
    assert all(torch.equal(before[name], value) for name, value in made.model.state_dict().items())


@pytest.mark.parametrize("numbers", [1, 40, 41, 119, 400])
def test_any_slice_of_logits_gives_the_same_update_and_readings(numbers: int) -> None:
    batch = pad(rows(7, torch.Generator().manual_seed(3)))
    whole, sliced = learner(), learner()
    sliced.logits_at_once = numbers
    assert torch.allclose(whole.score_norms(batch), sliced.score_norms(batch), atol=1e-6)
    exact, read = (made.predict(batch, entropy=True) for made in (whole, sliced))
    assert torch.allclose(exact.logp, read.logp, atol=1e-6)
    assert torch.allclose(exact.entropy, read.entropy, atol=1e-6)
    first = whole.update(batch, torch.arange(7), negative_log_likelihood)
    second = sliced.update(batch, torch.arange(7), negative_log_likelihood)
    assert second == pytest.approx(first, rel=1e-5)
    for mine, other in zip(whole.model.parameters(), sliced.model.parameters(), strict=True):
        assert torch.allclose(mine.grad, other.grad, atol=1e-6)


def test_slices_of_logits_are_not_kept_for_the_gradient() -> None:
    held: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        held.append(tensor.numel())
        return tensor

    hidden = torch.randn(64, 8, requires_grad=True)
    head = torch.nn.Linear(8, 1000, bias=False)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        read_logits(head, hidden, torch.zeros(64, dtype=torch.long), _first, at_once=4000)
    assert max(held) <= 8 * 1000  # the head's own weights; a slice of logits would be kept 16 times
    assert sum(held) < 16 * 4000


def _first(every: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return chosen.unsqueeze(1)


def test_the_learning_rate_falls_to_its_last_step_and_stays_there_beyond() -> None:
    line = [learning_rate(n, peak=8.0, decay="linear", total=4) for n in (0, 1, 2, 3, 4, 9)]
    assert line == [8.0, 6.0, 4.0, 2.0, 2.0, 2.0]
    bend = [learning_rate(n, peak=1.0, warmup=1, decay="cosine", total=5) for n in range(5)]
    assert bend == pytest.approx([1.0, 1.0, 0.853553, 0.5, 0.146447], abs=1e-6)
    assert learning_rate(7, peak=3.0, decay="cosine") == 3.0  # nobody said how long


def test_the_learning_rate_warms_up_linearly() -> None:
    made = learner(warmup_steps=4)
    assert made.lr == pytest.approx(0.0025)
    made.updates = 2
    assert made.lr == pytest.approx(0.0075)
    made.updates = 50
    assert made.lr == pytest.approx(0.01)


def test_learning_lowers_the_loss_of_what_is_learned() -> None:
    made = learner()
    batch = pad(rows(4, torch.Generator().manual_seed(3)))
    losses = [
        made.update(batch, torch.arange(4), negative_log_likelihood)["loss"] for _ in range(30)
    ]
    assert losses[-1] < losses[0] / 2
