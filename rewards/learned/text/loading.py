# pyright: basic
# mypy: disable-error-code="arg-type, no-untyped-call, assignment"
"""Loads models of transformers folders strictly. Importing this module imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import logging

from ludus.errors import ConfigError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_head(
    folder: Path, auto_class: str, *, labels: Sequence[int], dtype: str, name: str
) -> transformers.PreTrainedModel:
    """Load a model with the needed head, and refuse a folder that lacks any of the weights.

    Args:
        folder: a transformers folder.
        auto_class: the transformers class, such as "AutoModelForSequenceClassification".
        labels: numbers of labels that the head may have; empty where it has none.
        dtype: float32, bfloat16 or float16.
        name: the verifier's name, for messages.

    Raises:
        ConfigError: another head, weights that are missing or of another shape, or a folder that
            transformers cannot read; the message says which.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"{name}: dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(str(folder))
        if labels and config.num_labels not in labels:
            labels_text = " or ".join(f"num_labels={number}" for number in labels)
            built = ", ".join(config.architectures or ["a model of unknown architecture"])
            raise ConfigError(
                f"{name}: {str(folder)!r} holds {built} with "
                f"num_labels={config.num_labels}; {labels_text} is needed "
                f"(a head of {' or '.join(map(str, labels))} numbers a text)"
            )
        model, loading_info = getattr(transformers, auto_class).from_pretrained(
            str(folder), config=config, dtype=DTYPES[dtype], output_loading_info=True
        )
    except ConfigError:
        raise
    except Exception as error:  # A damaged file may raise anything, in any of the formats.
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{name}: cannot load {str(folder)!r}: {first}") from error
    missing = sorted(loading_info["missing_keys"])
    wrong = sorted(str(mismatch) for mismatch in loading_info.get("mismatched_keys", ()))
    if missing or wrong:
        raise ConfigError(
            f"{name}: {str(folder)!r} is not a {auto_class.removeprefix('AutoModelFor')} model: "
            f"its weights lack {', '.join(missing[:4]) or 'none'}"
            + (f" and have other shapes at {', '.join(wrong[:4])}" if wrong else "")
            + "; without them the head would be random"
        )
    head: transformers.PreTrainedModel = model.eval().requires_grad_(False)
    return head


def load_tokenizer(folder: Path, *, name: str) -> transformers.PreTrainedTokenizerBase:
    """Load the tokenizer of a folder.

    Raises:
        ConfigError: the folder has no tokenizer that transformers can read.
    """
    try:
        return AutoTokenizer.from_pretrained(str(folder))
    except (OSError, ValueError, KeyError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{name}: no tokenizer in {str(folder)!r}: {first}") from error


def token_limit(
    model: transformers.PreTrainedModel,
    tokenizer: transformers.PreTrainedTokenizerBase,
    max_given: int,
) -> int:
    """Return the most tokens a model reads: the least of `max_given` (unless 0), the model's
    positions and the tokenizer's limit.
    """
    # 1 << 30 stands for no limit; transformers writes an even larger number for that.
    config = model.config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None) or 1 << 30
    max_known = min(
        int(positions) - _positions_unused(model), int(min(tokenizer.model_max_length, 1 << 30))
    )
    return min(max_given, max_known) if max_given else max_known


def _positions_unused(model: transformers.PreTrainedModel) -> int:
    """Return how many positions stand before the first token's: RoBERTa and its like keep those up
    to the id of padding for padding.
    """
    tables = (
        module.padding_idx
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding) and name.endswith("position_embeddings")
    )
    return max((padding + 1 for padding in tables if padding is not None), default=0)


def padded(
    rows: Sequence[Sequence[int]], filler: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Pad rows of ids on the right with `filler`; return ids and mask, [B, T] each."""
    longest = max(map(len, rows))
    ids = [[*row, *[filler] * (longest - len(row))] for row in rows]
    mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def filler_for(rows: Sequence[Sequence[int]], pad_id: int | None) -> int:
    """Return an id for padding that no row holds. Heads look for the last token that is not
    padding, so a padding token that also ends a turn would hide the true last token.
    """
    used_tokens = {token for row in rows for token in row}
    if pad_id is not None and pad_id not in used_tokens:
        return pad_id
    return next(token for token in range(len(used_tokens) + 1) if token not in used_tokens)


def weight_bytes(model: torch.nn.Module) -> int:
    """Return the bytes of a model's weights and buffers."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
