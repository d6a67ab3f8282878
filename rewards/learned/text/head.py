"""The base of verifiers that read the numbers of a model's head: loading, device, memory, card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ludus.errors import MissingExtra

from .conversation import Conversations
from .settings import HeadSettings
from .weights import model_folder, weights_digest


@dataclass(frozen=True, slots=True)
class Head:
    """The kind of a model's last layer."""

    auto_class: str
    """The transformers class, such as "AutoModelForSequenceClassification"."""
    labels: tuple[int, ...] = ()
    """The numbers of labels that the head may have; empty where the head has no labels."""


class HeadModel:
    """A transformers model with the head that a verifier reads, and the bounds of its batches.

    Args:
        model: a transformers folder.
        head: the head that the verifier reads.
        name: name of the verifier, for messages.
        needs_template: whether a tokenizer without a chat template is refused.
        settings: the device, the number format and the bounds of batches.

    Raises:
        ConfigError: no weights, another head, no chat template, or no such device.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(
        self,
        model: str,
        head: Head,
        *,
        name: str,
        needs_template: bool = True,
        settings: HeadSettings,
    ) -> None:
        self.folder = model_folder(model, verifier=name)
        try:
            from . import loading
        except ImportError as error:
            raise MissingExtra.of("train", needed_for=name) from error
        self.model = loading.load_head(
            self.folder, head.auto_class, labels=head.labels, dtype=settings.dtype, name=name
        )
        tokenizer = loading.load_tokenizer(self.folder, name=name)
        self.conversations = Conversations(tokenizer, name, needs_template=needs_template)
        self.token_limit = loading.token_limit(self.model, tokenizer, settings.max_tokens)
        self.max_batch = settings.max_batch
        self.max_wait_ms = settings.max_wait_ms
        self.device = loading.device_of(settings.device, name=name)
        self.dtype = settings.dtype
        self.memory_bytes = loading.weight_bytes(self.model)
        self._digest = weights_digest(self.folder)

    def start(self) -> None:
        """Move the model to the chosen device.

        This is called in the worker process, after the fork: a CUDA context does not survive a fork
        (decision 0310).
        """
        # transformers wraps `to` in a decorator whose type has lost that `to` is a method.
        self.model.to(self.device)  # type: ignore[arg-type]

    def card(self) -> dict[str, Any]:
        """Return the weights' digest, the architecture, the token limit and the device."""
        return {
            "weights": {"folder": self.folder.name, "sha256": self._digest},
            "architecture": type(self.model).__name__,
            "max_tokens": self.token_limit,
            "device": str(self.device),
            "dtype": self.dtype,
        }
