"""What a trainer and an engine process say to each other, over a socket: msgpack behind its length.

Nothing is pickled, and no tensor passes: weights are named by the path of a file.
"""

from __future__ import annotations

import asyncio
from typing import Literal, TypeVar

import msgspec

from ludus.agent.engine import Generation, Sampling
from ludus.agent.images import PlacedImage

from ..local import EngineLimits

T = TypeVar("T")


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine process builds: the first message of a trainer."""

    folder: str
    """Folder with the model's config (see `write_shell`); weights come with the first publish."""
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    """How many threads torch computes with."""
    limits: EngineLimits = EngineLimits()
    keep_cache: bool = False
    max_image_pixels: int = 0
    version: int = 0
    """The version of the weights that the engine is about to be given."""


class GenerateCall(msgspec.Struct, tag="generate"):
    """A request to sample."""

    call: int
    ids: list[int]
    sampling: Sampling
    images: list[PlacedImage]


class ScoreCall(msgspec.Struct, tag="score"):
    """A request to score ids."""

    call: int
    ids: list[int]
    images: list[PlacedImage]


class LoadCall(msgspec.Struct, tag="load"):
    """A request to install the weights of a file."""

    call: int
    path: str
    version: int


class SwitchCall(msgspec.Struct, tag="switch"):
    """A request to pause, resume or abort the sampling."""

    call: int
    act: Literal["pause", "resume", "abort"]


class CancelCall(msgspec.Struct, tag="cancel"):
    """A note that nobody waits for the answer of a call any more."""

    call: int


class Ping(msgspec.Struct, tag="ping"):
    """A question whether the engine is alive."""


AnsweredCall = GenerateCall | ScoreCall | LoadCall | SwitchCall
"""The calls that get a reply, under their number."""
Call = AnsweredCall | CancelCall | Ping


class ReadyReply(msgspec.Struct, tag="ready"):
    """The first answer: the model is built."""

    max_length: int


class GeneratedReply(msgspec.Struct, tag="generated"):
    """The answer to a request to sample."""

    call: int
    generation: Generation


class ScoredReply(msgspec.Struct, tag="scored"):
    """The answer to a request to score."""

    call: int
    logprobs: list[float]


class DoneReply(msgspec.Struct, tag="done"):
    """The answer to a request without a result."""

    call: int


class FailedReply(msgspec.Struct, tag="failed"):
    """The answer to a request that raised; call 0 is the building of the engine."""

    call: int
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


SPECS: msgspec.msgpack.Decoder[EngineSpec] = msgspec.msgpack.Decoder(EngineSpec)
CALLS: msgspec.msgpack.Decoder[Call] = msgspec.msgpack.Decoder(Call)
REPLIES: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
"""What each side may read: first the spec and then calls, or replies."""


async def read_message(reader: asyncio.StreamReader, kinds: msgspec.msgpack.Decoder[T]) -> T:
    """Read one message of the `kinds` that may come.

    Raises:
        asyncio.IncompleteReadError: the other side is gone.
    """
    size = int.from_bytes(await reader.readexactly(4))
    return kinds.decode(await reader.readexactly(size))


def write_message(writer: asyncio.StreamWriter, message: object) -> None:
    """Send one message; what the socket cannot take yet is kept in memory."""
    data = msgspec.msgpack.encode(message)
    writer.write(len(data).to_bytes(4) + data)
