"""The engine's side: a local engine that answers the calls of one trainer, as a part of a worker
process of `ludus.isolation`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor

import msgspec
import torch

from ludus.isolation.part import Answer, WorkerPart

from ...models.loading import load_images, load_shell, load_tokenizer
from ...models.weight_files import FileWeights
from ..local import LocalEngine
from .messages import (
    CALLS,
    BuildCall,
    Call,
    DoneReply,
    EngineSpec,
    FailedReply,
    GenerateCall,
    GeneratedReply,
    LoadCall,
    Ping,
    Pong,
    ReadyReply,
    Reply,
    ScoreCall,
    ScoredReply,
)


class EnginePart(WorkerPart):
    """A local engine in a worker process.

    Args:
        spec: what is built, at the first call.
    """

    is_async = True

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.engine: LocalEngine | None = None
        self.under_way = 0

    def about(self) -> bytes:
        """Return nothing: the answer to the first call says what was built."""
        return b""

    def start(self, thread_of: Callable[[int], Executor]) -> None:
        """Get ready in the process."""

    async def handle(self, tag: int, thread_number: int, body: bytes) -> Answer:
        """Answer a call of the trainer."""
        reply: Reply
        call = CALLS.decode(body)
        if isinstance(call, Ping):
            passes = self.engine.passes if self.engine else 0
            return tag, msgspec.msgpack.encode(Pong(passes, bool(self.engine and self.under_way)))
        self.under_way += 1
        try:
            reply = await self._answer(call)
        except Exception as error:
            reply = FailedReply(type(error).__name__, str(error))
        finally:
            self.under_way -= 1
        return tag, msgspec.msgpack.encode(reply)

    async def _answer(self, call: Call) -> Reply:
        if isinstance(call, BuildCall):
            # On a thread, so that pings are answered meanwhile.
            self.engine = await asyncio.to_thread(_built, self.spec)
            return ReadyReply(self.engine.max_length)
        engine = self.engine
        assert engine is not None, "a trainer waits for the engine to be built"
        if isinstance(call, GenerateCall):
            return GeneratedReply(
                await engine.generate(call.ids, call.sampling, images=call.images)
            )
        if isinstance(call, ScoreCall):
            return ScoredReply(await engine.logprobs(call.ids, images=call.images))
        assert not isinstance(call, Ping)
        if isinstance(call, LoadCall):
            await engine.set_weights(FileWeights(call.path), call.version)
        else:
            await {"pause": engine.pause, "resume": engine.resume, "abort": engine.abort}[
                call.act
            ]()
        return DoneReply()


def _built(spec: EngineSpec) -> LocalEngine:
    torch.set_num_threads(spec.threads)
    model = load_shell(spec.folder, dtype=getattr(torch, spec.dtype), device=spec.device)
    images = None
    if os.path.exists(os.path.join(spec.folder, "preprocessor_config.json")):
        tokenizer = load_tokenizer(spec.folder)
        images = load_images(spec.folder, tokenizer, max_pixels=spec.max_image_pixels)
    return LocalEngine(
        model,
        spec.limits,
        version=spec.version,
        images=images,
        keep_cache=spec.keep_cache,
        float32_head=spec.float32_head,
    )
