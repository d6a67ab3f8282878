"""Recipes in the trainer: what a recipe asks for is what the learner makes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ludus.trainer.algorithms import logit_gradient_proxy
from ludus.trainer.batch import Row, pad
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learner import Learner
from ludus.trainer.tiny import build_model

ROWS = [
    Row([5, 6, 7, 8], [0, 1, 0, 1], [0.0] * 4),
    Row([9, 4], [0, 1], [0.0] * 2),
]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_score_norms_are_those_of_the_full_softmax(temperature: float) -> None:
    model = build_model(20, hidden=16, layers=1, heads=2)
    learner = Learner(model, TrainerConfig(tokens_per_pass=4), temperature=temperature)
    batch = pad(ROWS)
    found = learner.score_norms(batch)
    with torch.no_grad():
        logits: Tensor = model(input_ids=batch.ids).logits[:, :-1]
    logp = torch.log_softmax(logits / temperature, -1)
    chosen = logp.gather(-1, batch.ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    expected = logit_gradient_proxy(chosen, logits, temperature=temperature) * batch.mask[:, 1:]
    torch.testing.assert_close(found[:, 1:], expected)
    assert bool((found[:, 0] == 0).all())
