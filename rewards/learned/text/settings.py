"""The settings that verifiers with a language model share.

Each group is there twice: as a class with defaults, and as the typed keyword arguments of the
verifiers' constructors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


class HeadOptions(TypedDict, total=False):
    """The options of a verifier that reads a model's head; see `HeadSettings`."""

    max_tokens: int
    max_batch: int
    max_wait_ms: float
    device: str
    dtype: str


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """The place and the bounds of a model that scores texts in batches."""

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
    """The options of a verifier that reads probabilities: the model's folder and its place."""

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
    """The model that writes judgements: of a server, or of a folder in this process."""

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
