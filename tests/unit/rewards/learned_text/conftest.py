"""Reward models from nothing: random weights, written the way transformers writes any model."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from transformers import (
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
    Qwen2ForTokenClassification,
)

from ludus.trainer.models.tiny import build_tokenizer

LENGTH = 512


def write_model(folder: Path, kind: type, *, seed: int = 0, labels: int = 1, phrases=()) -> Path:
    """A folder with a model of `kind`; two seeds give two models."""
    tokenizer = build_tokenizer(phrases)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=2,
        initializer_range=0.2,
    )
    config.num_labels = labels
    torch.manual_seed(seed)
    kind(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def write():
    """Write a model folder: `write(folder, kind, seed=, labels=, phrases=)`."""
    return write_model


@pytest.fixture(scope="session")
def reward_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reward") / "rm"
    return write_model(folder, Qwen2ForSequenceClassification)


@pytest.fixture(scope="session")
def step_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("steps") / "prm"
    return write_model(folder, Qwen2ForTokenClassification, labels=2)


@pytest.fixture(scope="session")
def causal_folder(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("causal") / "lm", Qwen2ForCausalLM)
