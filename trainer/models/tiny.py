"""Small policies without downloads: for text and for images, with random weights.

The folder is loaded by the same code as any released model. The tokenizer is of Qwen's kind,
byte-level BPE, without a single merge: each character of ASCII is one token (each byte of anything
else too), and so are the marks of the chat and tool formats and whole phrases that are passed in.

The folder is loaded by the same code as a released model. The tokenizer and the decoder are those
of the tiny text policy in shape; the image processor is the one of transformers with Qwen3-VL's
patches of 16 pixels, merged two by two, so that a token shows 32 x 32 pixels.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ludus.envs import Briefing

from .gguf_files import models_folder
from .images import ImageReader
from .loading import save_model
from .model_paths import locate_model

# pyright: basic


TINY = "tiny"
"""Model path that asks for a new tiny policy instead of naming a folder."""

TURN_START, TURN_END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
MARKS = (
    "<tool_call>\n",
    "\n</tool_call>",
    "<tool_response>\n",
    "\n</tool_response>",
    '{"name": "',
    '", "arguments": {"',
    '": "',
    '"}}',
)
"""Strings that the Hermes format writes unchanged; each becomes one token."""

CHAT_TEMPLATE = """\
{%- if messages[0].role == 'system' or tools %}{{ '<|im_start|>system\\n' -}}
{{ messages[0].content + ('\\n' if tools else '') if messages[0].role == 'system' else '' }}
{%- if tools %}{% for tool in tools %}{{ tool.function.name }}({{
tool.function.parameters.properties | join(', ') }}) {% endfor %}{% endif -%} {{ '<|im_end|>\\n'
}}{% endif -%} {%- for message in messages %} {%- if message.role == 'tool' %} {%- if loop.first or
messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user\\n' }}{% else %}{{ '\\n' }}{% endif
%} {{- '<tool_response>\\n' + message.content + '\\n</tool_response>' }} {%- if loop.last or
messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %} {%- elif message.role !=
'system' or not loop.first %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %} {{- '\\n' if message.content or not loop.first else ''
}}{{
'<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments |
tojson + '}\\n</tool_call>' }} {%- endfor %}{{ '<|im_end|>\\n' }}{% endif %} {%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def briefing_phrases(briefing: Briefing) -> list[str]:
    """Return the phrases that every episode repeats; as single tokens, these keep a small model's
    episodes short.
    """
    parts = (briefing.system_prompt, briefing.answer_format)
    instructions = "\n".join(part for part in parts if part)
    arguments = [name for tool in briefing.tools for name in tool.parameters.get("properties", {})]
    tools = [tool.name for tool in briefing.tools]
    roles = ["system\n", "user\n", "assistant\n"]
    phrases = (instructions, *tools, *arguments, *roles)
    return list(dict.fromkeys(phrase for phrase in phrases if phrase))


def build_tokenizer(
    phrases: Sequence[str] = (), *, marks: Sequence[str] = (), template: str = CHAT_TEMPLATE
) -> PreTrainedTokenizerFast:
    """Build a fast tokenizer over bytes, the chat marks and `phrases`; no text fails to encode.

    `marks` are further special tokens, which follow the three of the chat format.
    """
    special = (PAD, TURN_START, TURN_END, *marks)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*special, *alphabet))}
    core = Tokenizer(models.BPE(vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(special))
    core.add_tokens([AddedToken(mark, normalized=False) for mark in (*MARKS, *phrases)])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=TURN_END,
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def build_model(
    vocabulary: int,
    *,
    hidden: int = 192,
    layers: int = 2,
    heads: int = 6,
    max_length: int = 1024,
    seed: int = 0,
    **overrides: Any,
) -> Qwen2ForCausalLM:
    """Build a Qwen2-shaped model with random weights."""
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=max_length,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
        use_sliding_window=False,
        **{
            "intermediate_size": 4 * hidden,
            "num_key_value_heads": heads,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
            # The usual 0.02 is for thousands of channels; at this width copying is learned sooner
            # with a variance of one over the width.
            "initializer_range": hidden**-0.5,
            **overrides,
        },
    )
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = 2
    return model


def write_tiny_policy(
    path: str | Path, *, phrases: Sequence[str] = (), seed: int = 0, **shape: Any
) -> Path:
    """Write a model folder with random weights.

    Args:
        path: the folder to write; created if missing.
        phrases: strings that become one token each, such as tool names.
        seed: seed of the weights.
        shape: `hidden`, `layers`, `heads`, `max_length`.
    """
    tokenizer = build_tokenizer(phrases)
    save_model(build_model(len(tokenizer), seed=seed, **shape), tokenizer, path)
    return Path(path)


def find_model(path: str | Path) -> str:
    """Return the folder, or the hub id, of a model by any of the names that a verb takes.

    "tiny" is a policy with random weights (seed 0) that knows no environment's phrases. It is
    written to the folder of models at the first use. Everything else is resolved by
    `locate_model`, which says what can be raised.
    """
    if str(path) != TINY or Path(path).is_dir():
        return locate_model(path)
    folder = models_folder() / TINY
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            write_tiny_policy(Path(partial) / TINY)
            try:
                (Path(partial) / TINY).rename(folder)  # whole
            except OSError as error:
                # Another process was faster: a folder that is not empty is in the place.
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
    return str(folder)


def tiny_or_folder(path: str, folder: Path, briefing: Callable[[], Briefing], *, seed: int) -> str:
    """Return `path`, or the folder of a newly written tiny policy if `path` is "tiny"."""
    if path != TINY:
        return path
    # imports this module itself

    opening = briefing()
    write = write_tiny_vision_policy if opening.shows_images else write_tiny_policy
    return str(write(folder / "model", phrases=briefing_phrases(opening), seed=seed))


# pyright: basic


VISION_START, IMAGE, VISION_END, VIDEO = (
    "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"
)  # fmt: skip
PATCH, MERGE = 16, 2
MAX_PIXELS = 256 * 256
"""Larger images are made smaller: 64 tokens are much for a context of 1,024."""

_SHOW = (
    "{%- macro show(content) %}{% if content is string %}{{ content }}{% else %}"
    "{% for part in content %}{% if part.type == 'image' %}"
    + VISION_START + IMAGE + VISION_END
    + "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endmacro -%}\n"
)  # fmt: skip
VISION_TEMPLATE = _SHOW + CHAT_TEMPLATE.replace("message.content", "show(message.content)")


def build_image_reader(token_id: int, *, max_pixels: int = MAX_PIXELS) -> ImageReader:
    """Build the image processor of the tiny policy."""
    processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": (PATCH * MERGE) ** 2, "longest_edge": max_pixels},
        patch_size=PATCH,
        merge_size=MERGE,
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )
    return ImageReader(processor, IMAGE, token_id)


@dataclass(frozen=True)
class TinyVisionShape:
    """The sizes of a small Qwen3-VL-shaped model."""

    hidden: int = 128
    """Width of the decoder."""
    layers: int = 2
    """The number of layers of the decoder."""
    heads: int = 4
    """Attention heads of the decoder; each has `hidden // heads` channels, an even number."""
    vision_hidden: int = 64
    """Width of the vision tower, which has 4 heads."""
    vision_layers: int = 2
    """The number of layers of the vision tower; the first of them also feeds DeepStack."""
    max_length: int = 1024
    """The most positions."""

    def decoder(self, tokenizer: PreTrainedTokenizerFast) -> dict[str, object]:
        """Return the settings of the decoder, whose rotary positions are split in time, height and
        width.
        """
        head_size = self.hidden // self.heads
        height = width = head_size // 6
        return {
            "vocab_size": len(tokenizer),
            "hidden_size": self.hidden,
            "intermediate_size": 4 * self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": head_size,
            "max_position_embeddings": self.max_length,
            "initializer_range": self.hidden**-0.5,
            "pad_token_id": 0,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [head_size // 2 - height - width, height, width],
                "mrope_interleaved": True,
            },
        }

    def tower(self) -> dict[str, object]:
        """Return the settings of the vision tower."""
        return {
            "depth": self.vision_layers,
            "hidden_size": self.vision_hidden,
            "intermediate_size": 2 * self.vision_hidden,
            "num_heads": 4,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": self.hidden,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
            "initializer_range": self.vision_hidden**-0.5,
        }


def build_vision_model(
    tokenizer: PreTrainedTokenizerFast, shape: TinyVisionShape, *, seed: int = 0
) -> Qwen3VLForConditionalGeneration:
    """Build a Qwen3-VL-shaped model with random weights.

    Args:
        tokenizer: with the special tokens of images.
        shape: the sizes of the model.
        seed: seed of the weights.
    """
    ids = tokenizer.get_vocab()
    config = Qwen3VLConfig(
        text_config=shape.decoder(tokenizer),
        vision_config=shape.tower(),
        image_token_id=ids[IMAGE],
        video_token_id=ids[VIDEO],
        vision_start_token_id=ids[VISION_START],
        vision_end_token_id=ids[VISION_END],
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model


def build_vision_tokenizer(phrases: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Build the tiny policy's tokenizer with the special tokens and the template of images."""
    marks = (VISION_START, IMAGE, VISION_END, VIDEO)
    return build_tokenizer(phrases, marks=marks, template=VISION_TEMPLATE)


def write_tiny_vision_policy(
    path: str | Path, *, phrases: Sequence[str] = (), seed: int = 0, **shape: int
) -> Path:
    """Write a model folder with random weights and an image processor.

    Args:
        path: the folder to write; created if missing.
        phrases: strings that become one token each, such as tool names.
        seed: seed of the weights.
        shape: sizes that differ from those of `TinyVisionShape`.
    """
    tokenizer = build_vision_tokenizer(phrases)
    reader = build_image_reader(tokenizer.get_vocab()[IMAGE])
    model = build_vision_model(tokenizer, TinyVisionShape(**shape), seed=seed)
    save_model(model, tokenizer, path, images=reader)
    return Path(path)
