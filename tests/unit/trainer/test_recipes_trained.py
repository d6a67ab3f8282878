"""Recipes in the trainer: what a recipe asks for is what the learner makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ludus.agent.context import ContextSettings
from ludus.errors import ConfigError
from ludus.trainer.algorithms import logit_gradient_proxy
from ludus.trainer.config import ModelConfig, RolloutConfig, RunConfig, TrainConfig, TrainerConfig
from ludus.trainer.learning.learner import Learner, Predicted
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.tiny import build_model, write_tiny_policy
from ludus.trainer.recipes.inputs import Inputs
from ludus.trainer.recipes.recipe import load_recipe
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.batch import Batch, Row, pad
from ludus.trainer.setup import assemble

ROWS = [Row([5, 6, 7, 8], [0, 1, 0, 1], [0.0] * 4), Row([9, 4], [0, 1], [0.0] * 2)]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_score_norms_are_those_of_the_full_softmax(temperature: float) -> None:
    model = build_model(20, hidden=16, layers=1, heads=2)
    learner = Learner(
        model, TrainerConfig(tokens_per_pass=4), ReadingOptions(temperature=temperature)
    )
    batch = pad(ROWS)
    found = learner.score_norms(batch)
    with torch.no_grad():
        logits: Tensor = model(input_ids=batch.ids).logits[:, :-1]
    logp = torch.log_softmax(logits / temperature, -1)
    chosen = logp.gather(-1, batch.ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    expected = logit_gradient_proxy(chosen, logits, temperature=temperature) * batch.mask[:, 1:]
    torch.testing.assert_close(found[:, 1:], expected)
    assert bool((found[:, 0] == 0).all())


def test_a_value_head_starts_at_zero_and_learns_its_targets() -> None:
    learner = Learner(
        build_model(20, hidden=16, layers=1, heads=2),
        TrainerConfig(lr=0.05, tokens_per_pass=4),
        ReadingOptions(values=True),
    )
    batch = pad(ROWS)
    assert bool((learner.score_values(batch) == 0).all())
    algorithm = resolve(load_recipe("ppo"))
    target = 0.7 * batch.mask
    ready = replace(batch, inputs=Inputs(returns=target, old_values=target))

    def loss(part: Batch, predicted: Predicted) -> tuple[Tensor, Tensor]:
        assert predicted.values is not None
        return algorithm.value_loss(replace(part.inputs, values=predicted.values, mask=part.mask))

    for _ in range(60):
        learner.update(ready, torch.arange(2), loss)
    torch.testing.assert_close(learner.score_values(batch), target, atol=0.02, rtol=0)
    again = Learner(
        build_model(20, hidden=16, layers=1, heads=2), TrainerConfig(), ReadingOptions(values=True)
    )
    again.restore(learner.state())
    assert again.value_head is not None
    assert learner.value_head is not None
    assert torch.equal(again.value_head.bias, learner.value_head.bias)


def test_the_value_loss_has_the_weight_of_the_policys() -> None:
    for name, agg in (("token_mean", {}), ("fixed_length", {"length": 5})):
        overrides: dict[str, object] = {"algorithm": {"agg": name, "agg_options": agg}}
        algorithm = resolve(load_recipe("ppo", overrides))
        ones = torch.ones(2, 3)
        policy = algorithm.loss(Inputs(logp=-ones, old_logp=-ones, advantages=ones, mask=ones))
        value = algorithm.value_loss(Inputs(values=ones, old_values=ones, returns=ones, mask=ones))
        assert torch.equal(policy.weight, value[1])


async def test_a_loss_that_compares_answers_is_refused_where_rows_are_no_answers(
    tmp_path: Path,
) -> None:
    recipe = tmp_path / "pacs.toml"
    recipe.write_text('base = "grpo"\n[algorithm]\nloss = "pacs_loss"\nagg = ""\n')
    model = write_tiny_policy(tmp_path / "model", hidden=16, layers=1, heads=2)
    config = TrainConfig(
        env="ludus/ledger-v0",
        recipe=str(recipe),
        model=ModelConfig(path=str(model), device="cpu"),
        rollout=RolloutConfig(window=600),
        context=ContextSettings(manager="summarize", summary_tokens=32),
        run=RunConfig(folder=str(tmp_path / "run"), tensorboard=False),
    )
    with pytest.raises(ConfigError, match="cuts rollouts into several rows"):
        await assemble(config)
