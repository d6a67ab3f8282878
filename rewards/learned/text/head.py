"""The base of verifiers that read the numbers of a model's head: loading, device, memory, card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ludus.errors import MissingExtra

from .conversation import Conversations
from .weights import model_folder, weights_digest


class HeadModel:
    """A transformers model with the head that a verifier reads, and the bounds of its batches.

    Args:
        model: a transformers folder.
        auto_class: the transformers class, such as "AutoModelForSequenceClassification".
        labels: numbers of labels that the head may have; empty where the head has no labels.
        name: name of the verifier, for messages.
        needs_template: whether a tokenizer without a chat template is refused.
        max_tokens: most tokens of a conversation; 0 goes by the model.
        max_batch: most conversations in one batch.
        max_wait_ms: milliseconds for which the first conversation of a batch waits for others.
        device: auto, cpu, cuda or cuda:1.
        dtype: float32, bfloat16 or float16.

    Raises:
        ConfigError: no weights, another head, no chat template, or no such device.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(
        self,
        model: str,
        auto_class: str,
        *,
        labels: Sequence[int],
        name: str,
        needs_template: bool = True,
        max_tokens: int,
        max_batch: int,
        max_wait_ms: float,
        device: str,
        dtype: str,
    ) -> None:
        self.folder = model_folder(model, verifier=name)
        try:
            from . import loading
        except ImportError as error:
            raise MissingExtra.of("train", needed_for=name) from error
        self.model = loading.load_head(
            self.folder, auto_class, labels=labels, dtype=dtype, name=name
        )
        tokenizer = loading.load_tokenizer(self.folder, name=name)
        self.conversations = Conversations(tokenizer, name, needs_template=needs_template)
        self.token_limit = loading.token_limit(self.model, tokenizer, max_tokens)
        self.max_batch = max_batch
        self.max_wait_ms = max_wait_ms
        self.device = loading.device_of(device, name=name)
        self.dtype = dtype
        self.memory_bytes = loading.weight_bytes(self.model)
        self._digest = weights_digest(self.folder)

    def start(self) -> None:
        """Move the model to the chosen device, in the process that computes."""
        self.model.to(self.device)

    def card(self) -> dict[str, Any]:
        """Return the weights' digest, the architecture, the token limit and the device."""
        return {
            "weights": {"folder": self.folder.name, "sha256": self._digest},
            "architecture": type(self.model).__name__,
            "max_tokens": self.token_limit,
            "device": str(self.device),
            "dtype": self.dtype,
        }
