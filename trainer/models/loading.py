"""Loads and saves models and tokenizers in transformers' format.

All untyped calls into transformers are in this file.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from ludus.agent.chat import Tokenizer
from ludus.agent.images import ImageFormat
from ludus.agent.templates.choice import OpenedTemplate, open_template
from ludus.errors import ConfigError

from ..config import ModelConfig
from .adapters import (
    CONFIG_FILE,
    base_below,
    base_of,
    has_adapter,
    merge_saved_adapter,
    merged_tensors,
    save_adapter,
)
from .grouped_heads import share_keys
from .images import ImageReader, load_image_reader, reads_images
from .model_paths import locate_model, refuse_shards

# pyright: basic
# mypy: disable-error-code="arg-type, return-value"


ADAPTER = "adapter"
"""Folder of the adapter inside a model's folder."""

HERMES = "<|im_start|>", "<|im_end|>", "<tool_call>"
"""Marks of a chat template that writes turns and calls in the form of Qwen's templates."""
HERMES_ANSWERS: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {
            "open": "<think>",
            "close_pattern": r"</think>\s*",
            "content": "text",
        },
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
"""How transformers reads thoughts and calls from an answer in that form (`parse_response`). This is
saved with the tokenizer, since other trainers know only the templates of released models.
"""
CausalLM = Any
"""A transformers causal language model (`PreTrainedModel` with `lm_head`)."""


def load_model(
    path: str | Path, *, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> CausalLM:
    """Load a causal LM from whatever `locate_model` knows; the folder of a LoRA adapter loads its
    base model with the adapter merged.

    Raises:
        ConfigError: nothing is found, or no causal LM inside.
    """
    _quiet()
    folder = locate_model(path)
    if _is_adapter_alone(Path(folder)):
        model = load_model(base_of(Path(folder) / ADAPTER), dtype=dtype, device=device)
        merge_saved_adapter(model, Path(folder) / ADAPTER)
        return model
    refuse_shards(Path(folder))
    try:
        auto: Any = AutoModelForCausalLM
        if reads_images(AutoConfig.from_pretrained(folder)):
            auto = AutoModelForImageTextToText  # with its vision tower
        model = auto.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot load a model from {str(path)!r}: {_first_line(error)}"
        ) from error
    _refuse_altered_logits(model, str(path))
    return share_keys(model.to(torch.device(device)))


def outline_model(path: str | Path) -> CausalLM:
    """Return the layers of a model without weights, on the device `meta`.

    Raises:
        ConfigError: no causal LM is found.
    """
    _quiet()
    folder = locate_model(path)
    if _is_adapter_alone(Path(folder)):
        return outline_model(base_of(Path(folder) / ADAPTER))
    try:
        config = AutoConfig.from_pretrained(folder)
        auto: Any = AutoModelForImageTextToText if reads_images(config) else AutoModelForCausalLM
        with torch.device("meta"):
            return share_keys(auto.from_config(config, attn_implementation="sdpa"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot load a model from {str(path)!r}: {_first_line(error)}"
        ) from error


def _is_adapter_alone(folder: Path) -> bool:
    """Whether a folder holds an adapter and no merged weights."""
    whole = any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
    return (folder / ADAPTER / CONFIG_FILE).is_file() and not whole


@torch.no_grad()
def _refuse_altered_logits(model: CausalLM, path: str) -> None:
    """Refuse a model that changes the logits after the head (scaling, soft caps).

    The learner and the local engine apply the head to the hidden states themselves, for the
    trained positions only, and would miss such changes.
    """
    ids = torch.arange(1, 9).unsqueeze(0) % model.config.get_text_config().vocab_size
    whole = model.eval()(input_ids=ids, use_cache=False).logits.float()
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    parts = model.lm_head(hidden).float()
    if not torch.allclose(whole, parts, atol=1e-2, rtol=1e-2):
        raise ConfigError(
            f"the model in {path!r} changes its logits after the head (scaling or soft caps), "
            "which this trainer does not compute; choose a model without"
        )


def write_shell(
    folder: str | Path, path: str | Path, model: CausalLM, images: ImageReader | None = None
) -> None:
    """Write what an engine in another process needs besides the weights of a model.

    Args:
        folder: where to write.
        path: where the model was loaded from, for the tokenizer of a model that reads images.
        model: the model.
        images: its image reader; None for a model that reads no images.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(str(folder))
    if images is not None:
        tokenizer: Any = load_tokenizer(path)
        tokenizer.save_pretrained(str(folder))
        images.save(folder)


def load_shell(folder: str | Path, *, dtype: torch.dtype, device: str) -> CausalLM:
    """Build a model from a config alone, with random weights.

    Raises:
        ConfigError: the folder holds no config of a causal LM.
    """
    try:
        config = AutoConfig.from_pretrained(str(folder))
        auto: Any = AutoModelForImageTextToText if reads_images(config) else AutoModelForCausalLM
        model = auto.from_config(config, dtype=dtype, attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot build a model from {str(folder)!r}: {_first_line(error)}"
        ) from error
    return share_keys(model.to(torch.device(device)).requires_grad_(requires_grad=False))


TOKENIZERS = ("tokenizer*", "vocab*", "*.tiktoken", "*.gguf", "adapter")
"""Patterns of files. A folder with a tokenizer has a file of at least one pattern."""


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a tokenizer from whatever `locate_model` knows. Where a conversation is written with it,
    `open_chat` asks for a chat template, which the settings may name.

    Raises:
        ConfigError: no tokenizer was found.
    """
    folder = locate_model(path)
    if Path(folder).is_dir() and not any(any(Path(folder).glob(pattern)) for pattern in TOKENIZERS):
        if not (Path(folder) / "config.json").is_file():
            raise ConfigError(
                f"{str(path)!r} is no model's folder: it holds neither a config.json nor a "
                "tokenizer; name a folder of a model or of a run, or a model that ludus finds, "
                "such as tiny or smollm2"
            )
        raise ConfigError(
            f"{str(path)!r} holds no tokenizer (tokenizer.json, tokenizer.model or vocab.json); "
            "copy the model's there. Of the verbs ludus plan alone needs none"
        )
    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot load a tokenizer from {str(path)!r}: {_first_line(error)}"
        ) from error


def load_images(
    path: str | Path, tokenizer: Tokenizer, *, max_pixels: int = 0
) -> ImageReader | None:
    """Load the image processor of a model from whatever `locate_model` knows; see
    `load_image_reader`.
    """
    return load_image_reader(locate_model(path), tokenizer, max_pixels=max_pixels)


def load_stop_ids(path: str | Path) -> tuple[int, ...]:
    """Return the ids of the end tokens in `generation_config.json`, or () without such a file."""
    try:
        ids = GenerationConfig.from_pretrained(locate_model(path)).eos_token_id
    except (OSError, ValueError):
        return ()
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else tuple(ids)


def save_model(
    model: CausalLM, tokenizer: object, path: str | Path, *, images: ImageReader | None = None
) -> None:
    """Write a folder that `load_model` can load.

    A model with an adapter is written merged, as a folder for `from_pretrained`, and the adapter
    beside it; with `trainer.lora.save = "adapter"` the adapter alone.

    Args:
        model: the model.
        tokenizer: its tokenizer, one of transformers.
        path: the folder.
        images: the image reader, which is saved too; None for a model that reads no images.
    """
    _quiet()
    if has_adapter(model):
        save_adapter(model, Path(path) / ADAPTER)
        model.config.save_pretrained(str(path))
        model.generation_config.save_pretrained(str(path))
    if not has_adapter(model) or not base_below(model).alone:
        merged = dict(merged_tensors(model)) if has_adapter(model) else None
        model.save_pretrained(str(path), state_dict=merged)
    _save_tokenizer(tokenizer, path, images)


def save_without_weights(
    model: CausalLM, tokenizer: object, path: str | Path, *, images: ImageReader | None = None
) -> None:
    """Write the folder of a model without weights: config, tokenizer, image processor."""
    _quiet()
    config = copy.deepcopy(model.config)
    config.architectures, config.dtype = [type(model).__name__], model.dtype
    config.save_pretrained(str(path))
    if model.can_generate():
        model.generation_config.save_pretrained(str(path))
    _save_tokenizer(tokenizer, path, images)


def _save_tokenizer(tokenizer: object, path: str | Path, images: ImageReader | None) -> None:
    # Elsewhere a tokenizer is anything with the methods of `Tokenizer`; saving needs transformers'
    # own class.
    own = cast("PreTrainedTokenizerBase", tokenizer)
    template = str(getattr(own, "chat_template", "") or "")
    if getattr(own, "response_template", None) is None and all(mark in template for mark in HERMES):
        own.response_template = HERMES_ANSWERS
    own.save_pretrained(str(path))
    if images is not None:
        images.save(path)


def _quiet() -> None:
    """Disable progress bars for shards, since a run shows progress by other means."""
    logging.disable_progress_bar()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def open_chat(
    model: ModelConfig,
    path: str,
    tokenizer: Tokenizer,
    folder: Path | None = None,
    *,
    images: ImageFormat | None = None,
) -> OpenedTemplate:
    """Return the chat format of a model, with the repairs that its template needs.

    Args:
        model: the settings; `template` and `tool_format` decide.
        path: the model's folder.
        tokenizer: the model's tokenizer, which stays as it is.
        folder: a run folder, which gets the probe's table and its JSON.
        images: how images become tokens; None for a model that reads none.

    Raises:
        ConfigError: the settings name no template, or the template cannot play an episode.
    """
    opened = open_template(
        tokenizer,
        template=model.template,
        wanted_format=model.tool_format,
        stop_ids=load_stop_ids(path),
        images=images,
    )
    if folder is not None:
        opened.write(folder)
    return opened
