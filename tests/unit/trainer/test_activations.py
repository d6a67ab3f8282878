"""Layers that are computed again keep less and change nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.errors import ConfigError
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.pass_memory import prepare_layers
from ludus.trainer.models.tiny import build_model
from ludus.trainer.rollout.batch import Row, pad
from ludus.trainer.sft import negative_log_likelihood


def learner(**settings: Any) -> Learner:
    model = build_model(40, hidden=16, layers=3, heads=2, max_length=64)
    return Learner(model, TrainerConfig(lr=1e-2, **settings))


def kept_bytes(made: Learner, given: Any) -> tuple[int, Any]:
    """Return the bytes that a pass keeps for its backward pass, and the gradients after it."""
    kept: dict[int, int] = {}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {one.untyped_storage().data_ptr() for one in made.model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        total, _ = negative_log_likelihood(given, made.predict(given))
    total.backward()
    found = {name: one.grad for name, one in made.model.named_parameters()}
    return sum(size for place, size in kept.items() if place not in weights), found


def test_the_same_gradient_from_less_that_is_kept() -> None:
    ids = torch.randint(3, 40, (4, 48), generator=torch.Generator().manual_seed(0)).tolist()
    given = pad([Row(one, [0, *([1] * 47)], [0.0] * 48) for one in ids])
    whole, wanted = kept_bytes(learner(), given)
    less, found = kept_bytes(learner(checkpoint_layers=True), given)
    assert less < whole / 2
    assert list(found) == list(wanted)
    for name, gradient in wanted.items():
        assert torch.allclose(found[name], gradient, atol=1e-7), name


def test_two_learners_of_one_model_do_not_recompute_twice() -> None:
    made = learner(checkpoint_layers=True)
    Learner(made.model, TrainerConfig(checkpoint_layers=True))
    calls: list[int] = []
    layer: Any = made.model.model.layers[0].input_layernorm

    def count(*_: Any) -> None:
        calls.append(1)

    layer.register_forward_hook(count)
    given = pad([Row([3, 4, 5], [0, 1, 1], [0.0] * 3)])
    made.update(given, torch.arange(1), negative_log_likelihood)
    assert len(calls) == 2


def test_a_model_without_a_list_of_layers_is_refused() -> None:
    class Odd(torch.nn.Module):
        base_model = torch.nn.Linear(1, 1)

    odd: Any = Odd()
    with pytest.raises(ConfigError, match="Odd has no list of decoder layers"):
        prepare_layers(odd, checkpoint=True, compiled=False)


def test_kernels_for_gpus_are_refused_on_a_cpu() -> None:
    with pytest.raises(ConfigError, match=r"need a CUDA device; the model is on 'cpu'; leave"):
        learner(kernels="liger")
