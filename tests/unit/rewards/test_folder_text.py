"""Probabilities and answers of a folder's model, against the model's own forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from ludus.errors import ConfigError
from ludus.messages import user
from ludus.rewards.learned.text.folder_text import FolderText
from ludus.trainer.models.tiny import build_tokenizer, write_tiny_policy

SHAPE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 1.0, "pad_token_id": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("Llama", {}),
        ("Gemma2", {"final_logit_softcapping": 2.0}),
        ("Granite", {"logits_scaling": 8.0}),
        ("Cohere", {"logit_scale": 0.0625}),
    ],
)
async def test_probabilities_are_those_of_the_models_own_logits(
    family: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    tokenizer = build_tokenizer()
    config = getattr(transformers, f"{family}Config")(
        vocab_size=len(tokenizer), **SHAPE, **settings
    )
    torch.manual_seed(0)
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(str(tmp_path))
    model, ids = FolderText(tmp_path, "probability"), [3, 4, 5, 6, 7]
    with torch.no_grad():
        scores = model.model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    expected = [0.0, *(float(scores[place, token]) for place, token in enumerate(ids[1:]))]
    assert await model.logprobs(ids) == pytest.approx(expected, abs=1e-4)
    await model.close()


def test_logits_that_are_changed_in_another_way_are_refused(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    config = transformers.HyperCLOVAXConfig(vocab_size=len(tokenizer), **SHAPE, logits_scaling=8.0)
    transformers.HyperCLOVAXForCausalLM(config).save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(str(tmp_path))
    with pytest.raises(ConfigError, match="changes its logits after the head"):
        FolderText(tmp_path, "probability")


async def test_an_answer_that_ends_with_the_last_token_it_may_have_has_ended(
    tmp_path: Path,
) -> None:
    model = FolderText(write_tiny_policy(tmp_path / "model"), "asking")

    async def written(tokens: int) -> tuple[str, bool]:
        return await model.write([user("a")], max_tokens=tokens, temperature=1.0, seed=0)

    whole, has_ended = await written(64)
    assert has_ended
    length = 1
    while not (await written(length))[1]:
        length += 1
    # The last token says nothing: it is the end.
    assert (await written(length))[0] == (await written(length - 1))[0] == whole
    await model.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_answers_follow_the_probabilities_and_no_habits_of_the_folder(
    temperature: float, tmp_path: Path
) -> None:
    async def answers() -> list[str]:
        model = FolderText(tmp_path, "asking")
        written = [
            await model.write([user("a")], max_tokens=12, temperature=temperature, seed=seed)
            for seed in range(3)
        ]
        await model.close()
        return [text for text, _ in written]

    write_tiny_policy(tmp_path)
    plain = await answers()
    habits: Any = transformers.GenerationConfig.from_pretrained(str(tmp_path))
    habits.update(repetition_penalty=5.0, do_sample=True, top_k=1, num_beams=2, max_length=999)
    habits.save_pretrained(str(tmp_path))
    assert await answers() == plain


async def test_a_sampled_token_may_be_any_of_the_vocabulary(tmp_path: Path) -> None:
    model = FolderText(write_tiny_policy(tmp_path / "model"), "asking")
    first = [
        await model.write([user("a")], max_tokens=1, temperature=100.0, seed=seed)
        for seed in range(300)
    ]
    assert len({text for text, _ in first}) > 60  # transformers' own default takes 50
    await model.close()
