"""Record what public code scores with seeded CLIP weights: CLIPScore and the aesthetic predictor of
the ImageReward package on OpenAI's CLIP, HPSv2 on its own copy of open_clip, and PickScore's lines
on an early transformers with its own conversion of the weights.

In the environment of `record_image_reward.py`:

    /tmp/original/bin/pip install --no-deps clip-anytorch ftfy wcwidth hpsv2 'setuptools<70'
    /tmp/original/bin/python scripts/record_clip_scores.py

It writes tests/unit/rewards/learned/clip_scores.json.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__).resolve().parents[1] / "tests" / "unit" / "rewards" / "learned"
sys.path.insert(0, str(HERE))

from seeded_clip import (  # noqa: E402
    HUGE,
    LENGTH,
    OPENAI,
    TOKENS,
    VOCABULARY,
    ClipShape,
    seeded_clip,
    seeded_head,
)
from seeded_image_reward import images  # noqa: E402


def main() -> None:
    """Record all four."""
    recorded = {"clip-score": clip_score(), "aesthetic": aesthetic(), "hps-v2": hps()}
    recorded["pick-score"] = pick_score()
    path = HERE / "clip_scores.json"
    path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


def weights(shape: ClipShape) -> dict[str, Tensor]:
    """The seeded tensors."""
    return {name: torch.from_numpy(array) for name, array in seeded_clip(shape).items()}


def tokens() -> Tensor:
    """The texts, padded with 0 as OpenAI's tokenizer pads."""
    return torch.tensor([[*row, *[0] * (LENGTH - len(row))] for row in TOKENS])


def openai_clip(shape: ClipShape) -> Any:
    """OpenAI's model class."""
    from clip.model import CLIP

    model = CLIP(
        shape.embedding, 224, shape.vision_layers, shape.vision_width, shape.patch,
        LENGTH, VOCABULARY, shape.text_width, shape.text_heads, shape.text_layers,
    )  # fmt: skip
    print("clip", model.load_state_dict(weights(shape), strict=True))
    return model.eval()


def bare_packages(name: str, *inner: str) -> None:
    """Packages without what their `__init__` imports: tools for downloads, a vocabulary."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0])
    for part in ("", *inner):
        name, path = (f"{name}.{part}" if part else name), path / part
        package = types.ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package


def over_images(score: Callable[[Any], list[float]]) -> dict[str, list[float]]:
    """For every image its scores; none for one whose mode or size the public code fails on."""
    scores: dict[str, list[float]] = {}
    with torch.no_grad():
        for name, image in images().items():
            try:
                scores[name] = score(image)
            except (RuntimeError, ValueError) as error:
                print(name, "not scored:", str(error)[:80])
    return scores


def clip_score() -> dict[str, list[float]]:
    """As in ImageReward/models/CLIPScore.py."""
    from clip.clip import _transform

    model, preprocess = openai_clip(OPENAI), _transform(224)

    def score(image: Any) -> list[float]:
        seen = torch.nn.functional.normalize(model.encode_image(preprocess(image)[None]))
        read = torch.nn.functional.normalize(model.encode_text(tokens()))
        return (read * seen).sum(1).tolist()

    return over_images(score)


def aesthetic() -> dict[str, list[float]]:
    """As in ImageReward/models/AestheticScore.py, with its MLP."""
    from clip.clip import _transform

    bare_packages("ImageReward", "models")
    head = importlib.import_module("ImageReward.models.AestheticScore").MLP(OPENAI.embedding)
    given = {
        name: torch.from_numpy(parameter)
        for name, parameter in seeded_head(OPENAI.embedding).items()
    }
    print("aesthetic", head.load_state_dict(given, strict=True))
    head.eval()
    model, preprocess = openai_clip(OPENAI), _transform(224)

    def score(image: Any) -> list[float]:
        seen = torch.nn.functional.normalize(model.encode_image(preprocess(image)[None])).float()
        return head(seen)[:, 0].tolist()

    return over_images(score)


def hps() -> dict[str, list[float]]:
    """As in hpsv2/img_score.py."""
    bare_packages("hpsv2", "src", "open_clip")
    clip = importlib.import_module("hpsv2.src.open_clip.model")
    transform = importlib.import_module("hpsv2.src.open_clip.transform")
    vision = {
        "image_size": 224, "layers": HUGE.vision_layers, "width": HUGE.vision_width,
        "head_width": HUGE.vision_width // HUGE.vision_heads, "patch_size": HUGE.patch,
    }  # fmt: skip
    text = {
        "context_length": LENGTH, "vocab_size": VOCABULARY, "width": HUGE.text_width,
        "heads": HUGE.text_heads, "layers": HUGE.text_layers,
    }  # fmt: skip
    model = clip.CLIP(HUGE.embedding, vision, text, quick_gelu=False, output_dict=True)
    print("hps", model.load_state_dict(weights(HUGE), strict=True))
    model.eval()
    preprocess = transform.image_transform(
        model.visual.image_size, is_train=False, resize_longest_max=True
    )

    def score(image: Any) -> list[float]:
        seen = preprocess(image)[None].expand(len(TOKENS), -1, -1, -1)
        outputs = model(seen, tokens())
        return torch.diagonal(outputs["image_features"] @ outputs["text_features"].T).tolist()

    return over_images(score)


def pick_score() -> dict[str, list[float]]:
    """As in the README of PickScore, on transformers' CLIP."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel
    from transformers.models.clip import convert_clip_original_pytorch_to_hf as convert

    common = {"hidden_act": "gelu"}
    text = {
        "hidden_size": HUGE.text_width, "intermediate_size": 4 * HUGE.text_width,
        "num_hidden_layers": HUGE.text_layers, "num_attention_heads": HUGE.text_heads,
        "vocab_size": VOCABULARY, **common,
    }  # fmt: skip
    vision = {
        "hidden_size": HUGE.vision_width, "intermediate_size": 4 * HUGE.vision_width,
        "num_hidden_layers": HUGE.vision_layers, "num_attention_heads": HUGE.vision_heads,
        "patch_size": HUGE.patch, **common,
    }  # fmt: skip
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=HUGE.embedding)
    model = CLIPModel(config).eval()
    theirs = openai_clip(HUGE)
    convert.copy_text_model_and_projection(model, theirs)
    convert.copy_vison_model_and_projection(model, theirs)
    model.logit_scale = theirs.logit_scale
    processor = CLIPImageProcessor()

    def score(image: Any) -> list[float]:
        seen = model.get_image_features(processor(images=image, return_tensors="pt").pixel_values)
        read = model.get_text_features(tokens())
        seen = seen / torch.norm(seen, dim=-1, keepdim=True)
        read = read / torch.norm(read, dim=-1, keepdim=True)
        return (model.logit_scale.exp() * (read @ seen.T))[:, 0].tolist()

    return over_images(score)


if __name__ == "__main__":
    main()
