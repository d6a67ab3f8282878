"""ImageReward's head over its own network, trained on planted rankings of rendered shapes, against
CLIP's score.

    python benchmarks/image_rankings.py [--captions 1200] [--rankings 400] [--no-fidelity]

The paper's comparison in kind, with tiny networks from random weights. A prompt names a colour and
a count of circles; four pictures are ranked by people who are made up and err at a known rate. As
the paper's annotators they judge alignment (the right colour most, the right count less) and
fidelity (half of the pictures are faded, which no text mentions); `--no-fidelity` leaves alignment
alone. Both networks first learn which picture belongs to which text, on the same pictures, faded
ones included, each with the text that it was drawn from: CLIP by contrast, and ImageReward's as
BLIP does, from which the paper starts. CLIP's score has seen no preference; `ludus train reward
--kind image` learns ImageReward's from the rankings. Both are asked about fresh rankings; intervals
are bootstraps over rankings, of the difference in pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import cross_entropy, normalize

from ludus.envs.families.image_prompt.pictures import png_of, shape_mask
from ludus.envs.families.image_prompt.scenes import BACKGROUND, COLOURS
from ludus.rewards.learned.images.clip import ClipScore
from ludus.rewards.learned.images.image_reward import (
    ImageReward,
    ImageRewardSizes,
    our_name,
    read_vocabulary,
)
from ludus.rewards.learned.images.scorer import ImageScorer, ModelInput
from ludus.trainer.config import ModelConfig, RewardModelConfig, RunConfig, TrainerConfig
from ludus.trainer.reward_models.training import run_reward

TESTS = Path(__file__).resolve().parents[1] / "tests" / "unit" / "rewards" / "learned"
BATCH = 16
COUNTS = {"one": 1, "three": 3, "six": 6, "nine": 9}
WORDS = sorted({"circles", *COLOURS, *COUNTS})
COLOUR_WORTH, COUNT_WORTH, CLEAR_WORTH = 2.5, 1.5, 2.5
CELL = 32
"""Side of a place in pixels; a picture has three by three."""
GREY = 128
"""What faded pictures are mixed with, half and half."""


@dataclass(frozen=True)
class Picture:
    """A picture of a shape."""

    colour: str
    count: str
    clear: bool

    @property
    def text(self) -> str:
        """What a caption says of it."""
        return f"{self.count} {self.colour} circles"

    def png(self, rng: random.Random) -> bytes:
        """The picture as the bytes of a file, with its circles at random places."""
        pixels = np.full((3 * CELL, 3 * CELL, 3), BACKGROUND, np.uint8)
        for place in rng.sample(range(9), COUNTS[self.count]):
            top, left = place // 3 * CELL, place % 3 * CELL
            cell = pixels[top : top + CELL, left : left + CELL]
            cell[shape_mask("circle", CELL)] = COLOURS[self.colour]
        return png_of(pixels if self.clear else (pixels // 2 + GREY // 2).astype(np.uint8))


def main() -> None:
    """Train both, and print agreement with intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captions", type=int, default=1200, help="pictures with their texts")
    parser.add_argument("--rankings", type=int, default=400)
    parser.add_argument("--fresh", type=int, default=300, help="rankings that are asked about")
    parser.add_argument("--passes", type=int, default=6, help="over captions, and over rankings")
    parser.add_argument("--fidelity", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        seen = [drawn_picture(rng, options.fidelity) for _ in range(options.captions)]
        captions = [(picture.png(rng), picture.text) for picture in seen]
        rows = [ranking(rng, options.fidelity) for _ in range(options.rankings)]
        fresh = [ranking(rng, options.fidelity) for _ in range(options.fresh)]
        clip = train_clip(place, captions, options.passes, rng)
        scores = {"CLIP": scored(clip, fresh)}
        blip = train_blip(place, captions, options.passes, rng)
        head = train_reward(blip, rows, options.passes, options.seed)
        scores["ImageReward"] = scored(head, fresh)
    report(scores | {"ceiling": [row["worths"] for row in fresh]}, fresh)


def report(scores: dict[str, list[Any]], fresh: Sequence[dict[str, Any]]) -> None:
    """Print agreements, over all pairs and over those that differ in one respect alone."""
    kinds: dict[str, Callable[[Picture, Picture], bool]] = {
        "all pairs": lambda _first, _second: True,
        "text alone": lambda first, second: (
            first.clear == second.clear and first.text != second.text
        ),
        "fading alone": lambda first, second: (
            first.clear != second.clear and first.text == second.text
        ),
    }
    for kind, counts in kinds.items():
        agreements = {
            name: np.array(
                [agreement(s, row, counts) for s, row in zip(values, fresh, strict=True)]
            )
            for name, values in scores.items()
        }
        known = ~np.isnan(agreements["ceiling"])
        print(f"{kind} ({known.sum()} rankings)")
        if not known.any():
            continue
        agreements = {name: values[known] for name, values in agreements.items()}
        agreements["ImageReward - CLIP"] = agreements["ImageReward"] - agreements["CLIP"]
        for name, values in agreements.items():
            low, high = interval(values)
            print(f"  {name:<22} {values.mean():.3f} ({low:.3f} to {high:.3f})")


def drawn_picture(rng: random.Random, fidelity: bool) -> Picture:
    """A picture at random; half of them are faded where fidelity is judged."""
    return Picture(
        rng.choice(sorted(COLOURS)),
        rng.choice(sorted(COUNTS)),
        clear=not fidelity or rng.random() < 0.5,
    )


def ranking(rng: random.Random, fidelity: bool) -> dict[str, Any]:
    """A prompt with four pictures, ranked by worth and Gumbel noise (Plackett and Luce).

    One picture has what the prompt names, one the count alone, one the colour alone, and one is
    drawn at random.
    """
    wanted, *others = (drawn_picture(rng, fidelity) for _ in range(4))
    shown = [
        wanted,
        replace(others[0], count=wanted.count),
        replace(others[1], colour=wanted.colour),
        others[2],
    ]
    rng.shuffle(shown)
    worths = [worth(wanted, picture) for picture in shown]
    noisy = [value - float(np.log(rng.expovariate(1.0))) for value in worths]
    order = sorted(range(4), key=lambda place: -noisy[place])
    images = [picture.png(rng) for picture in shown]
    return {
        "prompt": wanted.text,
        "answers": [
            "data:image/png;base64," + base64.b64encode(image).decode() for image in images
        ],
        "ranks": [order.index(place) + 1 for place in range(4)],
        "shown": shown,
        "worths": worths,
        "images": images,
    }


def worth(wanted: Picture, picture: Picture) -> float:
    """What a picture is worth to those who rank."""
    colour, count = wanted.colour == picture.colour, wanted.count == picture.count
    return COLOUR_WORTH * colour + COUNT_WORTH * count + CLEAR_WORTH * picture.clear


def train_blip(
    place: Path, captions: Sequence[tuple[bytes, str]], passes: int, rng: random.Random
) -> Path:
    """Train ImageReward's network, tiny, as BLIP is: on which text belongs to which picture.

    The losses are BLIP's (Li et al. 2022, section 3.2) without the captions: contrast of both
    encoders, and matching by the cross-attention, here of each picture with all texts of its batch:
    against one text at a time a network of this size stays at chance for hundreds of updates.
    Returns the checkpoint, whose head has learned nothing.
    """
    from seeded_image_reward import Sizes, seeded_checkpoint, write_vocabulary

    write_vocabulary(place / "vocab.txt")
    words = (place / "vocab.txt").read_text(encoding="utf-8").split("\n")
    new = [word for word in WORDS if word not in words]
    words[2000 : 2000 + len(new)] = new  # in the place of tokens that nothing uses
    (place / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    model = ImageReward(
        ImageRewardSizes(
            vision_width=64, vision_layers=2, text_width=64, text_layers=2, text_hidden=128
        )
    )
    model.tokenizer = read_vocabulary(place / "vocab.txt")
    blip = Blip(model)
    pretrain(blip, blip.loss, captioned(captions, model), passes, rng)
    # All that the checkpoint of ImageReward holds, under its names.
    tensors: dict[str, Any] = {
        name: torch.from_numpy(array)
        for name, array in seeded_checkpoint(Sizes(64, 2, 1, 64, 2, 1, 128)).items()
    }
    learned = model.state_dict()
    tensors |= {name: learned[our_name(name)] for name in tensors if our_name(name) in learned}
    torch.save(tensors, place / "ImageReward.pt")
    return place / "ImageReward.pt"


class Blip(torch.nn.Module):
    """ImageReward's network with the heads that BLIP learns with."""

    def __init__(self, network: ImageReward) -> None:
        super().__init__()
        self.network = network
        self.image, self.text = torch.nn.Linear(64, 32), torch.nn.Linear(64, 32)
        self.matching = torch.nn.Linear(64, 1)
        self.scale = torch.nn.Parameter(torch.tensor(2.6))  # as CLIP's begins, log(1 / 0.07)

    def loss(self, inputs: Sequence[ModelInput]) -> torch.Tensor:
        """The contrast of a batch, and the matching of each picture with the batch's texts."""
        different = list({item.tokens: item for item in inputs}.values())
        tokens, mask = self.network.padded([item.tokens for item in different])
        seen = self.network.vision(stacked(inputs)).last_hidden_state
        read = self.network.text(input_ids=tokens, attention_mask=mask, is_decoder=False)
        images = normalize(self.image(seen[:, 0]), dim=-1)
        texts = normalize(self.text(read.last_hidden_state[:, 0]), dim=-1)
        truth = torch.tensor(
            [[text.tokens for text in different].index(item.tokens) for item in inputs]
        )
        contrasted = cross_entropy(self.scale.exp() * images @ texts.T, truth)
        pictures, count = len(inputs), len(different)
        matched = self._matched(
            seen.repeat_interleave(count, 0), tokens.repeat(pictures, 1), mask.repeat(pictures, 1)
        )
        return contrasted + cross_entropy(matched.view(pictures, count), truth)

    def _matched(self, seen: torch.Tensor, tokens: torch.Tensor, mask: torch.Tensor) -> Any:
        read = self.network.text(
            input_ids=tokens,
            attention_mask=mask,
            encoder_hidden_states=seen,
            encoder_attention_mask=mask.new_ones(seen.shape[:-1]),
            is_decoder=False,
        )
        return self.matching(read.last_hidden_state[:, 0]).squeeze(-1)


def train_reward(
    checkpoint: Path, rows: Sequence[dict[str, Any]], passes: int, seed: int
) -> ImageReward:
    """Train the head and all layers by `ludus train reward`."""
    place = checkpoint.parent
    kept = ("prompt", "answers", "ranks")
    lines = [json.dumps({name: row[name] for name in kept}) for row in rows]
    (place / "rankings.jsonl").write_text("\n".join(lines) + "\n")
    config = RewardModelConfig(
        data=str(place / "rankings.jsonl"),
        kind="image",
        epochs=passes,
        batch_size=8,
        held_out=0.0,
        frozen=0.0,
        seed=seed,
        model=ModelConfig(path=str(checkpoint)),
        trainer=TrainerConfig(lr=1e-3, warmup_steps=5, lr_decay="cosine"),
        run=RunConfig(folder=tempfile.mkdtemp(dir=place), tensorboard=False),
    )
    trained = asyncio.run(run_reward(config))
    files = trained.checkpoint
    return ImageReward.load(files / "ImageReward.pt", files / "vocab.txt", any_size=True)


def train_clip(
    place: Path, captions: Sequence[tuple[bytes, str]], passes: int, rng: random.Random
) -> ClipScore:
    """Train a tiny CLIP on the same pictures, each with the text that it was drawn from."""
    from transformers import CLIPConfig, CLIPTextConfig, CLIPTokenizer, CLIPVisionConfig

    tokenizer = word_tokenizer(place, CLIPTokenizer)
    width = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 1}
    text = CLIPTextConfig(
        vocab_size=len(tokenizer), intermediate_size=128, max_position_embeddings=77, **width,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    vision = CLIPVisionConfig(image_size=224, patch_size=16, intermediate_size=256, **width)
    config = CLIPConfig(
        text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=32
    )
    scorer = ClipScore(config, tokenizer)
    inputs = captioned(captions, scorer)
    scorer.train()
    pretrain(scorer, partial(contrast, scorer), inputs, passes, rng)
    return scorer.eval().requires_grad_(requires_grad=False)


def contrast(scorer: ClipScore, inputs: Sequence[ModelInput]) -> torch.Tensor:
    """CLIP's symmetric loss; equal texts of a batch are no rivals of each other."""
    tokens, _ = scorer.padded([item.tokens for item in inputs])
    scale = scorer.clip.logit_scale.exp()
    logits = scale * scorer.text_embeddings(tokens) @ scorer.image_embeddings(stacked(inputs)).T
    return symmetric(logits, same_texts(inputs))


def pretrain(
    network: torch.nn.Module,
    loss: Callable[[Sequence[ModelInput]], torch.Tensor],
    inputs: list[ModelInput],
    passes: int,
    rng: random.Random,
) -> None:
    """Train a network on which text belongs to which picture; both networks are trained alike."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=20)
    for number in range(passes):
        rng.shuffle(inputs)
        total = 0.0
        starts = range(0, len(inputs) - BATCH + 1, BATCH)
        for start in starts:
            optimizer.zero_grad()
            value = loss(inputs[start : start + BATCH])
            value.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            warm.step()
            total += value.item()
        mean = total / len(starts)
        print(f"{type(network).__name__}, pass {number + 1}: loss {mean:.3f}", flush=True)


def captioned(captions: Sequence[tuple[bytes, str]], scorer: ImageScorer) -> list[ModelInput]:
    """Pictures with their texts, as a network reads them."""
    return [scorer.prepare(Image.open(io.BytesIO(image)), text) for image, text in captions]


def stacked(inputs: Sequence[ModelInput]) -> torch.Tensor:
    """The pixels of a batch."""
    return torch.stack([torch.from_numpy(item.pixels) for item in inputs])


def same_texts(inputs: Sequence[ModelInput]) -> torch.Tensor:
    """Which texts of a batch are equal, [N, N]."""
    return torch.tensor([[a.tokens == b.tokens for b in inputs] for a in inputs])


def symmetric(logits: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
    """The contrastive loss of both directions."""
    targets = same.float() / same.sum(1, keepdim=True)
    return (cross_entropy(logits, targets) + cross_entropy(logits.T, targets)) / 2


def word_tokenizer(place: Path, kind: Any) -> Any:
    """CLIP's tokenizer with a token for each word of the prompts."""
    words = WORDS
    letters = sorted({letter for word in words for letter in word})
    merges: list[str] = []
    vocabulary = dict.fromkeys(letters, 0) | {f"{letter}</w>": 0 for letter in letters}
    for word in words:
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            merge = f"{parts[0]} {parts[1]}"
            if merge not in merges:
                merges.append(merge)
            parts = ["".join(parts[:2]), *parts[2:]]
            vocabulary[parts[0]] = 0
    tokens = ["<|startoftext|>", "<|endoftext|>", *vocabulary]
    numbered = {token: number for number, token in enumerate(tokens)}
    (place / "vocab.json").write_text(json.dumps(numbered))
    (place / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    return kind(str(place / "vocab.json"), str(place / "merges.txt"))


def scored(scorer: ImageScorer, rows: Sequence[dict[str, Any]]) -> list[list[float]]:
    """The scores of the pictures of each ranking."""
    return [
        scorer.rank(
            row["prompt"], [Image.open(io.BytesIO(image)) for image in row["images"]]
        ).rewards
        for row in rows
    ]


def agreement(
    scores: Sequence[float], row: dict[str, Any], counts: Callable[[Picture, Picture], bool]
) -> float:
    """The share of a ranking's pairs in which the better has the higher score; a tie counts half.

    NaN where no pair counts.
    """
    ranks, shown = row["ranks"], row["shown"]
    pairs = [
        (i, j)
        for i in range(len(ranks))
        for j in range(len(ranks))
        if ranks[i] < ranks[j] and counts(shown[i], shown[j])
    ]
    right = [(scores[i] > scores[j]) + (scores[i] == scores[j]) / 2 for i, j in pairs]
    return float(np.mean(right)) if right else float("nan")


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean."""
    draw = np.random.default_rng(0)
    means = [draw.choice(values, len(values)).mean() for _ in range(2000)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


if __name__ == "__main__":
    main()
