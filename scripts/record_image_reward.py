"""Record the scores that the original ImageReward gives to seeded weights, images and prompts.

The original runs only on old libraries, so it needs an environment of its own:

    python3.11 -m venv /tmp/original
    /tmp/original/bin/pip install torch torchvision numpy pillow requests transformers==4.27.4 \
        timm==0.6.13 fairscale==0.4.13 'huggingface_hub<0.20'
    /tmp/original/bin/pip install --no-deps image-reward==1.5
    /tmp/original/bin/python scripts/record_image_reward.py

It writes tests/unit/rewards/learned/image_reward_scores.json. The full size takes 8 GB and a
minute.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parents[1] / "tests" / "unit" / "rewards" / "learned"
sys.path.insert(0, str(HERE))

from seeded_image_reward import (  # noqa: E402
    FULL,
    FULL_SIZE_CASES,
    PROMPTS,
    TINY,
    Sizes,
    images,
    seeded_checkpoint,
    write_vocabulary,
)


def main() -> None:
    """Record both sizes."""
    original = load_original()
    pictures = images()
    recorded: dict[str, Any] = {"versions": versions()}
    tiny = build(original, TINY)
    recorded["tiny"] = {
        name: [tiny.score(prompt, picture) for prompt in PROMPTS]
        for name, picture in pictures.items()
    }
    ranked = list(pictures.values())
    recorded["tiny_ranks"] = tiny.inference_rank(PROMPTS[0], ranked)[0]
    full = build(original, FULL)
    recorded["full"] = [
        [name, prompt, full.score(PROMPTS[prompt], pictures[name])]
        for name, prompt in FULL_SIZE_CASES
    ]
    recorded["full_parameters"] = sum(tensor.numel() for tensor in full.parameters())
    path = HERE / "image_reward_scores.json"
    path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


def load_original() -> Any:
    """ImageReward.ImageReward, without the package's __init__, which imports trainers."""
    spec = importlib.util.find_spec("ImageReward")
    assert spec is not None
    assert spec.submodule_search_locations
    for name, folder in (("ImageReward", ""), ("ImageReward.models", "models")):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(spec.submodule_search_locations[0]) / folder)]
        sys.modules[name] = package
    return importlib.import_module("ImageReward.ImageReward")


def build(original: Any, sizes: Sizes) -> Any:
    """The original model with seeded weights; only its sizes and the source of its vocabulary are
    replaced.
    """
    pretrain = sys.modules["ImageReward.models.BLIP.blip_pretrain"]
    blip = sys.modules["ImageReward.models.BLIP.blip"]
    folder = Path(tempfile.mkdtemp())
    write_vocabulary(folder / "vocab.txt")
    (folder / "med.json").write_text(json.dumps(text_config(sizes)))

    def create_vit(*_: object) -> tuple[Any, int]:
        transformer = blip.VisionTransformer(
            img_size=224, patch_size=16, embed_dim=sizes.vision_width, depth=sizes.vision_layers,
            num_heads=sizes.vision_heads, drop_path_rate=0.1,
        )  # fmt: skip
        return transformer, sizes.vision_width

    tokenizer = blip.BertTokenizer
    blip.BertTokenizer = types.SimpleNamespace(
        from_pretrained=lambda name: tokenizer(str(folder / "vocab.txt"))
    )
    head = original.MLP
    original.MLP = lambda width: head(sizes.text_width)
    pretrain.create_vit = create_vit
    try:
        model = original.ImageReward(med_config=str(folder / "med.json"))
    finally:
        blip.BertTokenizer, original.MLP = tokenizer, head
    weights = {name: torch.from_numpy(array) for name, array in seeded_checkpoint(sizes).items()}
    print(len(weights), "tensors", model.load_state_dict(weights, strict=True))
    return model.eval()


def text_config(sizes: Sizes) -> dict[str, Any]:
    """The text encoder's configuration, as in the original's med_config.json but for the sizes."""
    return {
        "architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": sizes.text_width,
        "initializer_range": 0.02, "intermediate_size": sizes.text_hidden,
        "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
        "num_attention_heads": sizes.text_heads, "num_hidden_layers": sizes.text_layers,
        "pad_token_id": 0, "add_type_embeddings": False, "vocab_size": 30524,
        "encoder_width": 768, "add_cross_attention": True,
    }  # fmt: skip


def versions() -> dict[str, str]:
    """Of the libraries that matter."""
    import fairscale
    import PIL
    import timm
    import torchvision
    import transformers

    modules = (torch, torchvision, transformers, timm, fairscale, PIL)
    return {module.__name__: str(module.__version__) for module in modules}


if __name__ == "__main__":
    main()
