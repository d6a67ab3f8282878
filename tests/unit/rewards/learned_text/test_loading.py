"""How many tokens a model reads, and the names of devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Gemma3Config, RobertaConfig, RobertaForSequenceClassification

from ludus.errors import ConfigError
from ludus.rewards.learned.devices import chosen_device
from ludus.rewards.learned.text.loading import token_limit

BOUNDLESS: Any = SimpleNamespace(model_max_length=int(1e30))


def test_positions_that_are_kept_for_padding_are_not_counted() -> None:
    shape: dict[str, Any] = {
        "vocab_size": 50,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
        "max_position_embeddings": 22,
        "num_labels": 1,
    }
    model: Any = RobertaForSequenceClassification(RobertaConfig(**shape))
    most = token_limit(model, BOUNDLESS, 0)
    assert most == 20
    assert model(torch.full((1, most), 5)).logits.shape == (1, 1)
    assert token_limit(model, BOUNDLESS, 7) == 7


def test_the_positions_of_a_model_with_several_parts_are_those_of_its_text() -> None:
    config = Gemma3Config(text_config={"max_position_embeddings": 99})
    model: Any = SimpleNamespace(config=config, named_modules=list)
    assert token_limit(model, BOUNDLESS, 0) == 99


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "cuda:99"])
def test_a_device_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^v: device (must be auto|is .*, but torch sees)"):
        chosen_device(name, option="v: device")
    assert chosen_device("cpu", option="v: device") == "cpu"
