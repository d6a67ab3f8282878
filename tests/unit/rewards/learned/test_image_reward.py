"""ImageReward gives the scores of the original, given the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from seeded_image_reward import FULL, FULL_SIZE_CASES, PROMPTS, images, write_vocabulary

from ludus.errors import ConfigError
from ludus.rewards.learned.images.image_reward import ImageReward
from ludus.rewards.learned.images.weights import WrongCheckpoint, read_checkpoint

from .conftest import write_checkpoint

TOLERANCE = 1e-4
RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "image_reward_scores.json").read_text("utf-8")
)
"""By `scripts/record_image_reward.py`, from the original."""


@pytest.fixture(scope="module")
def model(tiny_image_reward: Path) -> ImageReward:
    folder = tiny_image_reward / "image-reward"
    return ImageReward.load(folder / "ImageReward.pt", folder / "vocab.txt", any_size=True)


@pytest.mark.parametrize("name", RECORDED["tiny"])
def test_scores_are_those_of_the_original(model: ImageReward, name: str) -> None:
    image = images()[name]
    scores = [model.score(prompt, image) for prompt in PROMPTS]
    assert scores == pytest.approx(RECORDED["tiny"][name], abs=TOLERANCE)


def test_a_batch_of_unlike_images_and_prompts_scores_as_each_does_alone(model: ImageReward) -> None:
    named = images()
    inputs = [model.prepare(image, prompt) for image in named.values() for prompt in PROMPTS]
    recorded = [score for name in named for score in RECORDED["tiny"][name]]
    assert model.score_inputs(inputs) == pytest.approx(recorded, abs=TOLERANCE)


def test_ranks_are_those_of_the_original(model: ImageReward) -> None:
    ranking = model.rank(PROMPTS[0], list(images().values()))
    assert ranking.ranks == RECORDED["tiny_ranks"]


def test_one_image_is_ranked_in_lists_too(model: ImageReward) -> None:
    ranking = model.rank(PROMPTS[0], [images()["wide"]])
    assert ranking.ranks == [1]
    assert len(ranking.rewards) == 1
    with pytest.raises(ConfigError, match="at least one image"):
        model.rank(PROMPTS[0], [])


def test_rewards_of_tensors_have_gradients_and_agree_with_scores(model: ImageReward) -> None:
    from ludus.rewards.learned.images.pixels import unit_pixels

    # at the model's own size nothing is resized, so that both ways see the same pixels
    image = images()["square"]
    pixels = torch.from_numpy(unit_pixels(image))[None].requires_grad_()
    rewards = model.rewards_of([PROMPTS[0]], pixels)
    assert rewards.item() == pytest.approx(RECORDED["tiny"]["square"][0], abs=TOLERANCE)
    rewards.sum().backward()
    gradient = pixels.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0
    # against a central difference along the gradient
    step = 1e-2 * gradient / gradient.norm()
    with torch.no_grad():
        up = model.rewards_of([PROMPTS[0]], pixels + step).item()
        down = model.rewards_of([PROMPTS[0]], pixels - step).item()
    assert (up - down) / 2e-2 == pytest.approx(gradient.norm().item(), rel=0.05)


def test_tensors_of_another_size_agree_up_to_rounding(model: ImageReward) -> None:
    from ludus.rewards.learned.images.pixels import unit_pixels

    image = images()["wide"]
    pixels = torch.from_numpy(unit_pixels(image))[None]
    score = model.rewards_of([PROMPTS[0]], pixels).item()
    assert score == pytest.approx(RECORDED["tiny"]["wide"][0], abs=0.02)


def test_images_of_a_wrong_shape_are_refused(model: ImageReward) -> None:
    with pytest.raises(ConfigError, match=r"got \[1, 1, 224, 224\]"):
        model.rewards_of([PROMPTS[0]], torch.zeros(1, 1, 224, 224))


def test_the_card_says_which_weights_and_which_preprocessing(model: ImageReward) -> None:
    card = model.card()
    assert card["weights"]["checkpoint"].startswith("sha256:")
    assert "PIL bicubic" in card["preprocessing"]
    assert card["dtype"] == "float32"


# --- checkpoints that are wrong ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dropped", "added", "words"),
    [
        ("blip.visual_encoder.norm.weight", {}, "1 missing: vision.post_layernorm.weight"),
        ("", {"extra": torch.zeros(1)}, "1 unexpected: extra"),
        (
            "",
            {"mlp.layers.7.bias": torch.zeros(2)},
            r"1 of another shape: head.7.bias is \[2\] and should be \[1\]",
        ),
        ("mlp", {}, "10 missing: head.0.weight"),
        ("blip", {}, "missing"),
    ],
)
def test_a_wrong_checkpoint_is_refused_by_the_names_of_its_tensors(
    tiny_image_reward: Path,
    tmp_path: Path,
    dropped: str,
    added: dict[str, torch.Tensor],
    words: str,
) -> None:
    tensors = read_checkpoint(tiny_image_reward / "image-reward" / "ImageReward.pt")
    kept = {
        name: one for name, one in tensors.items() if not (dropped and name.startswith(dropped))
    }
    torch.save({**kept, **added}, tmp_path / "wrong.pt")
    with pytest.raises(WrongCheckpoint, match=words):
        ImageReward.load(
            tmp_path / "wrong.pt", write_vocabulary(tmp_path / "vocab.txt"), any_size=True
        )


def test_a_smaller_model_is_no_image_reward_unless_it_may_be(tiny_image_reward: Path) -> None:
    folder = tiny_image_reward / "image-reward"
    with pytest.raises(WrongCheckpoint, match="of another shape"):
        ImageReward.load(folder / "ImageReward.pt", folder / "vocab.txt")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04"])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ImageReward.pt"
    path.write_bytes(content)
    with pytest.raises(WrongCheckpoint, match="cannot be read as a checkpoint"):
        ImageReward.load(path, write_vocabulary(tmp_path / "vocab.txt"))


def test_a_checkpoint_is_read_without_running_what_it_pickles(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (ran,))

    torch.save({"weights": Attack()}, tmp_path / "attack.pt")
    with pytest.raises(WrongCheckpoint):
        read_checkpoint(tmp_path / "attack.pt")
    assert not ran.exists()
    torch.load(tmp_path / "attack.pt", weights_only=False)  # the control: it would have run
    assert ran.exists()


def test_another_vocabulary_is_refused(tiny_image_reward: Path, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    checkpoint = tiny_image_reward / "image-reward" / "ImageReward.pt"
    with pytest.raises(WrongCheckpoint, match="has 6 tokens; bert-base-uncased has 30522"):
        ImageReward.load(checkpoint, tmp_path / "vocab.txt", any_size=True)


@pytest.mark.parametrize("prompt", ["very " * 10_000, "猫" * 10_000, "x" * 50_000, "[SEP] " * 100])
def test_long_prompts_are_cut_to_35_tokens(model: ImageReward, prompt: str) -> None:
    tokens = model.tokens_of(prompt)
    assert len(tokens) <= 35
    assert tokens[0] == 101
    assert tokens[-1] == 102


@pytest.mark.large
def test_the_full_size_gives_the_scores_of_the_original(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, FULL)
    model = ImageReward.load(folder / "ImageReward.pt", folder)
    unused = 256 * 1024 + 256 + 256 * 768 + 256  # the projections of BLIPScore
    parameters = sum(tensor.numel() for tensor in model.parameters())
    assert parameters + unused == RECORDED["full_parameters"]
    named = images()
    cases = [(named[name], PROMPTS[prompt]) for name, prompt in FULL_SIZE_CASES]
    scores = model.score_inputs([model.prepare(*case) for case in cases])
    assert scores == pytest.approx([score for *_, score in RECORDED["full"]], abs=TOLERANCE)


def test_the_images_of_the_parity_set_are_of_all_modes() -> None:
    modes = {image.mode for image in images().values()}
    assert modes == {"RGB", "RGBA", "P", "CMYK", "L", "LA", "1"}
    assert isinstance(images()["palette"], Image.Image)
