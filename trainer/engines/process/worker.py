"""The engine's side: a process with a local engine that answers the calls of one trainer.

The process ends when the socket closes, which the kernel does however the trainer ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable

import torch

from ...models.loading import load_images, load_shell, load_tokenizer
from ...models.weight_files import FileWeights
from ..local import LocalEngine
from .messages import (
    CALLS,
    SPECS,
    Call,
    CancelCall,
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
    read_message,
    write_message,
)

ORPHAN_POLL_S = 1.0


def main(descriptor: int) -> None:
    """Serve the trainer at the other end of a socket until the socket closes."""
    threading.Thread(target=_end_when_orphaned, args=(os.getppid(),), daemon=True).start()
    asyncio.run(_serve(socket.socket(fileno=descriptor)))


def _end_when_orphaned(parent: int) -> None:
    """End the process when its parent has ended, even if a copy of the socket is open elsewhere."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_POLL_S)
    os._exit(1)


async def _serve(connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection)
    host = _Host(writer, await read_message(reader, SPECS))
    host.start(0, host.build())
    try:
        while True:
            host.hear(await read_message(reader, CALLS))
    except (asyncio.IncompleteReadError, ConnectionError):
        os._exit(0)  # at once, even in the middle of a forward pass


class _Host:
    """The engine, and the calls that are under way."""

    def __init__(self, writer: asyncio.StreamWriter, spec: EngineSpec) -> None:
        self.writer = writer
        self.spec = spec
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.engine: LocalEngine | None = None

    async def build(self) -> Reply:
        """Build the engine while pings are answered."""
        self.engine = await asyncio.to_thread(_built, self.spec)
        return ReadyReply(self.engine.max_length)

    def hear(self, call: Call) -> None:
        """Begin to answer a call."""
        if isinstance(call, Ping):
            passes = self.engine.passes if self.engine else 0
            write_message(self.writer, Pong(passes, bool(self.engine and self.tasks)))
        elif isinstance(call, CancelCall):
            if task := self.tasks.get(call.call):
                task.cancel()
        else:
            self.start(call.call, self._answer(call))

    def start(self, number: int, work: Awaitable[Reply]) -> None:
        """Run a call and send the answer or the error."""
        task = asyncio.create_task(self._run(number, work))
        self.tasks[number] = task
        task.add_done_callback(lambda _: self.tasks.pop(number, None))

    async def _run(self, number: int, work: Awaitable[Reply]) -> None:
        try:
            reply = await work
        except Exception as error:
            reply = FailedReply(number, type(error).__name__, str(error))
        write_message(self.writer, reply)

    async def _answer(self, call: Call) -> Reply:
        engine = self.engine
        assert engine is not None, "a trainer waits for the engine to be built"
        if isinstance(call, GenerateCall):
            made = await engine.generate(call.ids, call.sampling, images=call.images)
            return GeneratedReply(call.call, made)
        if isinstance(call, ScoreCall):
            return ScoredReply(call.call, await engine.logprobs(call.ids, images=call.images))
        assert not isinstance(call, CancelCall | Ping)
        if isinstance(call, LoadCall):
            await engine.set_weights(FileWeights(call.path), call.version)
        else:
            await {"pause": engine.pause, "resume": engine.resume, "abort": engine.abort}[
                call.act
            ]()
        return DoneReply(call.call)


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
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
