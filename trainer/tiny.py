# pyright: basic
"""A small policy without downloads: a Qwen-shaped model with random weights, a character tokenizer
and a chat template.

The folder is loaded by the same code as any released model. The tokenizer is of Qwen's kind,
byte-level BPE, without a single merge: each character of ASCII is one token (each byte of anything
else too), and so are the marks of the chat and tool formats and whole phrases that are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from ludus.envs import Briefing

from .engines.models import save_model

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


def tiny_or_folder(path: str, folder: Path, briefing: Callable[[], Briefing], *, seed: int) -> str:
    """Return `path`, or the folder of a newly written tiny policy if `path` is "tiny"."""
    if path != TINY:
        return path
    from .tiny_vision import write_tiny_vision_policy  # imports this module itself

    opening = briefing()
    write = write_tiny_vision_policy if opening.shows_images else write_tiny_policy
    return str(write(folder / "model", phrases=briefing_phrases(opening), seed=seed))
