# pyright: basic
# mypy: disable-error-code="arg-type, no-untyped-call"
"""A causal model of a folder serves as `PolicyText`: for answers and for probabilities of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ludus.errors import ConfigError
from ludus.messages import Message

from ..batching import MicroBatcher
from ..devices import chosen_device
from .conversation import Conversations
from .head import HeadSettings
from .loading import filler_for, load_head, load_tokenizer, padded, token_limit, weight_bytes
from .policy_text import NoRoomToAnswer
from .weights import text_digest, weights_digest

DEFAULT_SETTINGS = HeadSettings()
AT_ONCE = 256
"""Positions whose logits are computed together, which bounds memory: a vocabulary is wide."""


@dataclass(frozen=True, slots=True)
class _Asked:
    ids: list[int]
    max_tokens: int
    temperature: float
    seed: int


class FolderText:
    """A causal model that scores texts in batches and writes answers singly.

    Args:
        folder: a transformers folder with weights.
        name: name of the verifier, for messages.
        settings: of these, `device`, `dtype`, `max_batch` and `max_wait_ms` are used.

    Raises:
        ConfigError: no causal model, no chat template, or logits that are not computed here.
    """

    def __init__(self, folder: Path, name: str, settings: HeadSettings = DEFAULT_SETTINGS) -> None:
        self.folder = folder
        self.model = load_head(
            folder, "AutoModelForCausalLM", labels=(), dtype=settings.dtype, name=name
        )
        refuse_other_logits(self.model, f"{name}: the model in {str(folder)!r}")
        # A folder may ask for penalties, beams or a few likely tokens alone. Answers are sampled
        # from the model's own probabilities, as those of a policy in training are.
        wanted = self.model.generation_config
        self.model.generation_config = type(wanted)(
            eos_token_id=wanted.eos_token_id,
            pad_token_id=wanted.pad_token_id,
            bos_token_id=wanted.bos_token_id,
        )
        tokenizer = load_tokenizer(folder, name=name)
        self.conversations = Conversations(tokenizer, name)
        self.device = torch.device(chosen_device(settings.device, option=f"{name}: device"))
        self.dtype = settings.dtype
        self.memory_bytes = weight_bytes(self.model)
        self.max_length = token_limit(self.model, tokenizer, 0)
        self.digest = weights_digest(folder)
        wait_s = settings.max_wait_ms / 1000
        self._scoring = MicroBatcher(
            self._score, max_batch=settings.max_batch, max_wait_s=wait_s, label=name
        )
        self._writing = MicroBatcher(self._write, max_batch=1, max_wait_s=0.0, label=name)

    @property
    def name(self) -> str:
        """The name of the folder and the first digits of the weights' SHA-256."""
        return f"{self.folder.name} {self.digest[:16]}"

    def card(self) -> dict[str, Any]:
        """Return the weights' digest, the architecture, the template and the device."""
        return {
            "weights": {"folder": self.folder.name, "sha256": self.digest},
            "architecture": type(self.model).__name__,
            "template": f"chat {text_digest(self.conversations.tokenizer.chat_template)}",
            "device": str(self.device),
            "dtype": self.dtype,
        }

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation, up to where the model speaks."""
        return self.conversations.encode(self.conversations.render(messages, answering=True))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; a special token that the text spells out stays text."""
        return self.conversations.encode(self.conversations.plain(text))

    async def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probability of each of `ids` given the ids before, in nats; the first is
        0.
        """
        return await self._scoring.submit(list(ids))

    async def write(
        self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int
    ) -> tuple[str, bool]:
        """Answer a conversation; return the text, and whether the answer ended by itself.

        Raises:
            NoRoomToAnswer: the conversation fills the tokens that the model reads.
        """
        ids = self.prompt(messages)
        room = min(max_tokens, self.max_length - len(ids))
        if room < 1:
            raise NoRoomToAnswer(
                f"{len(ids)} tokens leave no room to answer: {self.name} reads {self.max_length}"
            )
        return await self._writing.submit(_Asked(ids, room, temperature, seed))

    async def close(self) -> None:
        """Cancel the texts and questions that wait."""
        await self._scoring.close()
        await self._writing.close()

    @cached_property
    def _ready(self) -> Any:
        """The model, moved to the device on first use, which is in the process that computes."""
        model: Any = self.model  # the stub of `to` declares a decorated function
        return model.to(self.device)

    @torch.inference_mode()
    def _score(self, rows: Sequence[list[int]]) -> list[list[float]]:
        model = self._ready
        ids_BT, mask_BT = padded(rows, filler_for(rows, None), self.device)
        hidden_BTD = model.base_model(
            input_ids=ids_BT, attention_mask=mask_BT, use_cache=False
        ).last_hidden_state
        head = model.get_output_embeddings()
        scores: list[list[float]] = []
        for row, hidden_TD in zip(rows, hidden_BTD, strict=True):
            targets = torch.tensor(row[1:], device=self.device)
            parts: list[float] = []
            for start in range(0, len(targets), AT_ONCE):
                batch_targets = targets[start : start + AT_ONCE]
                logits = shaped(head(hidden_TD[start : start + len(batch_targets)]), model).float()
                picked = logits.log_softmax(-1).gather(1, batch_targets.unsqueeze(1))
                parts += picked.squeeze(1).tolist()
            scores.append([0.0, *parts])
        return scores

    @torch.inference_mode()
    def _write(self, requests: Sequence[_Asked]) -> list[tuple[str, bool]]:
        first, model = requests[0], self._ready
        torch.manual_seed(first.seed)
        ids_BT = torch.tensor([first.ids], device=self.device)
        sampling = (
            {"temperature": float(first.temperature), "top_k": 0, "top_p": 1.0}
            if first.temperature
            else {}
        )
        out_ids = model.generate(
            ids_BT,
            attention_mask=torch.ones_like(ids_BT),
            max_new_tokens=first.max_tokens,
            do_sample=first.temperature > 0,
            pad_token_id=self.conversations.tokenizer.pad_token_id or 0,
            **sampling,
        )[0, len(first.ids) :].tolist()
        text = self.conversations.tokenizer.decode(out_ids, skip_special_tokens=True)
        ends = model.generation_config.eos_token_id
        # An answer of just `max_tokens` may end by itself too.
        has_ended = bool(out_ids) and out_ids[-1] in (ends if isinstance(ends, list) else [ends])
        return [(text, has_ended or len(out_ids) < first.max_tokens)]


def shaped(logits: Any, model: Any) -> Any:
    """Return what a model makes of its head's output: some families scale it, others bound it."""
    config = model.config.get_text_config()
    for name in ("logit_scale", "lm_head_multiplier"):  # Cohere, Falcon-H1
        logits = logits * (getattr(config, name, None) or 1.0)
    logits = logits / (getattr(config, "logits_scaling", None) or 1.0)  # Granite
    cap = getattr(config, "final_logit_softcapping", None)  # Gemma
    return torch.tanh(logits / cap) * cap if cap else logits


@torch.inference_mode()
def refuse_other_logits(model: Any, named: str) -> None:
    """Refuse a model whose logits are not `shaped` ones, whose probabilities would be wrong.

    Raises:
        ConfigError: it changes them in another way.
    """
    ids = torch.arange(1, 9).unsqueeze(0) % model.config.get_text_config().vocab_size
    whole = model(input_ids=ids, use_cache=False).logits
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    parts = shaped(model.get_output_embeddings()(hidden), model)
    if not torch.allclose(whole.float(), parts.float(), atol=1e-2, rtol=1e-2):
        raise ConfigError(
            f"{named} changes its logits after the head in a way that is not computed here; "
            "choose another model"
        )
