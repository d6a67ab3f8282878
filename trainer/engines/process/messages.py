"""What a trainer and an engine process say to each other: MessagePack in the frames of
`ludus.isolation`.

No tensor passes: weights are named by the path of a file.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ludus.agent.engine import Generation, Sampling
from ludus.agent.images import PlacedImage

from ..local import EngineLimits


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine process builds."""

    folder: str
    """Folder with the model's config (see `write_shell`); weights come with the first publish."""
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    """How many threads torch computes with."""
    limits: EngineLimits = EngineLimits()
    keep_cache: bool = False
    float32_head: bool = False
    max_image_pixels: int = 0
    version: int = 0
    """The version of the weights that the engine is about to be given."""


class GenerateCall(msgspec.Struct, tag="generate"):
    """A request to sample."""

    ids: list[int]
    sampling: Sampling
    images: list[PlacedImage]


class ScoreCall(msgspec.Struct, tag="score"):
    """A request to score ids."""

    ids: list[int]
    images: list[PlacedImage]


class LoadCall(msgspec.Struct, tag="load"):
    """A request to install the weights of a file."""

    path: str
    version: int


class SwitchCall(msgspec.Struct, tag="switch"):
    """A request to pause, resume or abort the sampling."""

    act: Literal["pause", "resume", "abort"]


class Ping(msgspec.Struct, tag="ping"):
    """A question whether the engine is alive."""


class BuildCall(msgspec.Struct, tag="build"):
    """The first call: build the model."""


Call = GenerateCall | ScoreCall | LoadCall | SwitchCall | BuildCall | Ping


class ReadyReply(msgspec.Struct, tag="ready"):
    """The first answer: the model is built."""

    max_length: int


class GeneratedReply(msgspec.Struct, tag="generated"):
    """The answer to a request to sample."""

    generation: Generation


class ScoredReply(msgspec.Struct, tag="scored"):
    """The answer to a request to score."""

    logprobs: list[float]


class DoneReply(msgspec.Struct, tag="done"):
    """The answer to a request without a result."""


class FailedReply(msgspec.Struct, tag="failed"):
    """The answer to a request that raised."""

    kind: str
    """The name of the exception's class."""
    message: str


class Pong(msgspec.Struct, tag="pong"):
    """A sign of life."""

    passes: int
    """How many forward passes were made so far."""
    busy: bool
    """Whether a request waits for a forward pass."""


Reply = ReadyReply | GeneratedReply | ScoredReply | DoneReply | FailedReply | Pong


CALLS: msgspec.msgpack.Decoder[Call] = msgspec.msgpack.Decoder(Call)
REPLIES: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
