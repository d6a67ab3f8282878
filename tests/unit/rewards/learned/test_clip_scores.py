"""Scores of CLIP models are those of the public code, given the same weights."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seeded_clip import HUGE, OPENAI, TOKENS, ClipShape, seeded_clip, seeded_head
from seeded_image_reward import images
from transformers import CLIPConfig

from ludus.rewards.learned.images.clip import (
    Aesthetic,
    ClipScore,
    ClipScorer,
    HpsV2,
    PickScore,
    read_tokenizer,
)
from ludus.rewards.learned.images.clip_checkpoint import clip_config, our_tensors
from ludus.rewards.learned.images.pixels import unit_pixels
from ludus.rewards.learned.images.scorer import ModelInput
from ludus.rewards.learned.images.weights import WrongCheckpoint, load_strictly, read_checkpoint

TOLERANCE = 1e-4
RECORDED: dict[str, dict[str, list[float]]] = json.loads(
    (Path(__file__).parent / "clip_scores.json").read_text("utf-8")
)
"""By `scripts/record_clip_scores.py`, from public code."""
MODELS: dict[str, tuple[type[ClipScorer], ClipShape]] = {
    "clip-score": (ClipScore, OPENAI),
    "pick-score": (PickScore, HUGE),
    "hps-v2": (HpsV2, HUGE),
}


def tensors_of(shape: ClipShape) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in seeded_clip(shape).items()}


def built(name: str) -> ClipScorer:
    kind, shape = MODELS[name]
    tensors = tensors_of(shape)
    config = clip_config(
        tensors, vision_head_width=kind.vision_head_width, activation=kind.activation
    )
    with torch.device("meta"):
        model = kind(config)
    load_strictly(model.clip, our_tensors(tensors), name)
    return model.eval()


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_public_code(name: str) -> None:
    model = built(name)
    for image, scores in RECORDED[name].items():
        pixels = model.pixels_of(images()[image])
        batch = [ModelInput(pixels, tokens) for tokens in TOKENS]
        expected = scores if name != "pick-score" else [score / 100 for score in scores]
        found = np.array(model.score_inputs(batch)) / (100 if name == "pick-score" else 1)
        assert found == pytest.approx(expected, abs=TOLERANCE), image


def test_the_aesthetic_score_is_that_of_public_code(tmp_path: Path) -> None:
    torch.save(tensors_of(OPENAI), tmp_path / "clip.pt")
    head = {name: torch.from_numpy(one) for name, one in seeded_head(OPENAI.embedding).items()}
    torch.save(head, tmp_path / "head.pth")
    model = Aesthetic.load_with_head(tmp_path / "clip.pt", tmp_path / "head.pth", any_size=True)
    recorded = RECORDED["aesthetic"]
    found = [model.score("not read", images()[name]) for name in recorded]
    expected = [scores[0] for scores in recorded.values()]
    assert found == pytest.approx(expected, abs=TOLERANCE)
    assert set(model.weights) == {"checkpoint", "head"}
    tensor = torch.from_numpy(unit_pixels(images()["square"]))[None]
    rewards = model.rewards_of(["not read"], tensor)
    assert rewards.tolist() == pytest.approx(recorded["square"], abs=TOLERANCE)


def test_every_scorer_was_recorded_on_most_kinds_of_images() -> None:
    assert {name: len(scores) for name, scores in RECORDED.items()} == {
        "clip-score": 11,
        "aesthetic": 11,
        "hps-v2": 10,
        "pick-score": 10,
    }


def test_padding_after_the_end_mark_has_no_effect() -> None:
    model = built("clip-score")
    pixels = model.pixels_of(images()["wide"])
    alone = model.score_inputs([ModelInput(pixels, TOKENS[1])])
    beside = model.score_inputs([ModelInput(pixels, TOKENS[1]), ModelInput(pixels, TOKENS[2])])
    assert beside[0] == pytest.approx(alone[0], abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_rewards_of_tensors_have_gradients(name: str) -> None:
    model = built(name)
    image = torch.from_numpy(unit_pixels(images()["square"]))[None].requires_grad_()
    tokens, mask = model.padded([TOKENS[0]])
    reward = model(tokens, mask, model.tensor_pixels(image))
    expected = RECORDED[name]["square"][0]
    assert reward.item() == pytest.approx(expected, abs=1e-2 if name == "pick-score" else TOLERANCE)
    reward.sum().backward()
    assert image.grad is not None
    assert image.grad.abs().sum() > 0


def test_the_scaled_clip_score_is_the_paper_s() -> None:
    model = built("clip-score")
    assert isinstance(model, ClipScore)
    model.scaled = True
    given = ModelInput(model.pixels_of(images()["wide"]), TOKENS[0])
    cosine = RECORDED["clip-score"]["wide"][0]
    assert model.score_inputs([given])[0] == pytest.approx(2.5 * max(cosine, 0), abs=3e-4)


# --- reading checkpoints ------------------------------------------------------------------------


def write_folder(folder: Path, shape: ClipShape) -> Path:
    """A folder as Hugging Face has them, with a tokenizer of single letters."""
    tensors = tensors_of(shape)
    folder.mkdir()
    clip_config(tensors, vision_head_width=64, activation="quick_gelu").save_pretrained(folder)
    torch.save(our_tensors(tensors), folder / "pytorch_model.bin")
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    letters = [chr(code) for code in range(33, 127)]
    tokens = [*letters, *(f"{one}</w>" for one in letters)]
    vocabulary = {one: index for index, one in enumerate(tokens)}
    vocabulary |= {"<|startoftext|>": 498, "<|endoftext|>": 499}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")


def test_a_folder_of_hugging_face_is_read(tmp_path: Path) -> None:
    model = ClipScore.load(write_folder(tmp_path / "clip", OPENAI), any_size=True)
    batch = [ModelInput(model.pixels_of(images()["wide"]), tokens) for tokens in TOKENS]
    assert model.score_inputs(batch) == pytest.approx(RECORDED["clip-score"]["wide"], abs=TOLERANCE)
    assert model.tokens_of("A &amp;amp; b") == model.tokens_of("a & b")
    tokens = model.tokens_of("word " * 10_000)
    assert len(tokens) == 77
    assert (tokens[0], tokens[-1]) == (498, 499)
    assert model.card()["weights"]["checkpoint"].startswith("sha256:")


def test_an_archive_of_torchscript_is_read(tmp_path: Path) -> None:
    class Held(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, tensor in tensors_of(OPENAI).items():
                where: torch.nn.Module = self
                *path, last = name.split(".")
                for part in path:
                    if not hasattr(where, part):
                        where.add_module(part, torch.nn.Module())
                    where = getattr(where, part)
                where.register_buffer(last, tensor.half())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted: Any = torch.jit.script(Held())
        torch.jit.save(scripted, str(tmp_path / "ViT.pt"))  # type: ignore[no-untyped-call]
    read = read_checkpoint(tmp_path / "ViT.pt")
    assert set(read) == set(tensors_of(OPENAI))


def test_a_state_dict_may_be_wrapped(tmp_path: Path) -> None:
    torch.save({"epoch": 1, "state_dict": tensors_of(OPENAI)}, tmp_path / "wrapped.pt")
    assert set(read_checkpoint(tmp_path / "wrapped.pt")) == set(tensors_of(OPENAI))


@pytest.mark.parametrize(
    ("dropped", "words"),
    [
        ("visual.conv1.weight", "no 'visual.conv1.weight'"),
        ("text_projection", "'text_projection' is missing"),
        ("visual.proj", "1 missing: visual_projection.weight"),
        ("transformer.resblocks.0.ln_1.bias", "1 missing: text_model.encoder.layers.0.layer_norm1"),
    ],
)
def test_a_wrong_checkpoint_is_refused_by_name(tmp_path: Path, dropped: str, words: str) -> None:
    tensors = tensors_of(OPENAI)
    del tensors[dropped]
    torch.save(tensors, tmp_path / "wrong.pt")
    write_tokenizer(tmp_path)
    with pytest.raises(WrongCheckpoint, match=words):
        ClipScore.load(tmp_path / "wrong.pt", any_size=True)


def test_a_model_of_another_size_is_refused_unless_it_may_be(tmp_path: Path) -> None:
    torch.save(tensors_of(OPENAI), tmp_path / "small.pt")
    with pytest.raises(WrongCheckpoint, match="of another size than ClipScore was released in"):
        ClipScore.load(tmp_path / "small.pt", tmp_path)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongCheckpoint, match=r"needs tokenizer.json, or vocab.json and"):
        read_tokenizer(tmp_path)


def test_the_configuration_of_a_folder_is_its_own(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "clip", OPENAI)
    config: Any = CLIPConfig.from_pretrained(str(folder)).vision_config
    assert (config.num_attention_heads, config.hidden_act) == (2, "quick_gelu")


@pytest.mark.parametrize(
    "text", ["{broken", "[]", '{"vision_config": 3}', '{"text_config": {"hidden_size": 63}}']
)
def test_a_broken_configuration_is_refused_with_its_path(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(WrongCheckpoint, match=r"config\.json"):
        ClipScore.load(tmp_path)
