"""Transformers models with a head whose numbers a verifier reads, and the settings of verifiers.

Most settings are here twice: as a class with defaults, and as a TypedDict that types the keyword
arguments of the verifiers' constructors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from ludus.errors import MissingExtra

from .conversation import Conversations
from .weights import model_folder, weights_digest


class HeadOptions(TypedDict, total=False):
    """The options of a verifier that reads a model's head; see `HeadSettings`."""

    max_tokens: int
    max_batch: int
    max_wait_ms: float
    device: str
    dtype: str


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """The device, the number format and the bounds of a model that scores texts in batches."""

    max_tokens: int = 0
    """The most tokens of a conversation; 0 takes the model's own limit."""
    max_batch: int = 16
    """The most conversations in one batch."""
    max_wait_ms: float = 5.0
    """The milliseconds for which the first conversation of a batch waits for others."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:1`."""
    dtype: str = "float32"
    """`float32`, `bfloat16` or `float16`."""


class FolderOptions(TypedDict, total=False):
    """The options of a verifier that reads probabilities; see `AskerSettings`."""

    model: str
    device: str
    dtype: str


class AskerOptions(FolderOptions, total=False):
    """The options of a verifier that has a model write judgements; see `AskerSettings`."""

    base_url: str
    temperature: float
    max_tokens: int
    guided: bool
    concurrency: int
    deadline_s: float
    cache: str


@dataclass(frozen=True, slots=True)
class AskerSettings:
    """The settings of a model that writes judgements, on a server or in this process."""

    model: str = ""
    """The name of the server's model; without `base_url`, a transformers folder."""
    base_url: str = ""
    """The address of an OpenAI-compatible server, up to and with `/v1`."""
    temperature: float = 0.0
    """The temperature of a judgement."""
    max_tokens: int = 512
    """The most tokens of a judgement."""
    guided: bool = True
    """Whether a server is asked to keep to the schema of the answer; see `JudgeServer`."""
    concurrency: int = 64
    """The most requests to a server at once; see `JudgeServer`."""
    deadline_s: float = 120.0
    """The seconds for one question to a server, with retries and repair; see `JudgeServer`."""
    cache: str = ""
    """The SQLite file that keeps a server's answers; "" keeps them in memory."""
    device: str = "auto"
    """The device of a folder's model: `auto`, `cpu`, `cuda` or `cuda:1`."""
    dtype: str = "float32"
    """The number format of a folder's model: `float32`, `bfloat16` or `float16`."""


@dataclass(frozen=True, slots=True)
class Head:
    """The kind of a model's last layer, the head."""

    auto_class: str
    """The transformers class, such as "AutoModelForSequenceClassification"."""
    labels: tuple[int, ...] = ()
    """The possible counts of the head's labels; empty for a head without labels."""


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
            from ..devices import chosen_device
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
        self.device = chosen_device(settings.device, option=f"{name}: device")
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
            "device": self.device,
            "dtype": self.dtype,
        }
