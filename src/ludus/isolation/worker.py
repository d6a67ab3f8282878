"""A worker process: carries out calls until the owner closes the socket, or the process is killed.

Calls of a part with plain methods run on worker threads, which the calls name by number; calls of
an async part run side by side on the event loop. Nothing here keeps time: the owner does, and kills
a worker that is late.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import sys
import traceback
from collections.abc import Awaitable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NoReturn

import cloudpickle
import msgspec

from . import system
from .frames import CANCEL, FAILED, Frame, FrameReader, FrameWriter
from .part import Answer, WorkerPart


class Failure(msgspec.Struct, frozen=True):
    """The reason why a call has no result: an exception escaped from the part."""

    message: str
    trace: str = ""


def run(
    descriptor: int, output: int, parent: int, setup: dict[str, Any], part: WorkerPart | None
) -> NoReturn:
    """Be a worker; runs in a fork of the template."""
    try:
        os.setsid()
        system.end_with_parent(parent)
        system.adopt_orphans()  # what detaches from a live worker stays below it
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(output)
        system.cap_memory(int(setup["memory_bytes"]))
        random.seed()  # a fork shares the state of the module
        loaded_part: WorkerPart = cloudpickle.loads(setup["make"])() if part is None else part
        asyncio.run(_Worker(descriptor, loaded_part, int(setup["max_body"])).serve())
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


class _Worker:
    def __init__(self, descriptor: int, part: WorkerPart, max_body: int) -> None:
        self._part = part
        self._max_body = max_body
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._writer = FrameWriter(os.dup(descriptor))
        self._threads: dict[int, ThreadPoolExecutor] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Answer calls until the owner is gone."""
        loop = asyncio.get_running_loop()
        self._part.start(self._thread_of)
        gc.freeze()
        # The end of the connection ends the process at once: nobody waits for answers any more,
        # and threads may hang.
        await loop.create_connection(
            lambda: FrameReader(self._max_body, self._take, lambda error: os._exit(0)),
            sock=self._socket,
        )
        await loop.create_future()  # for ever

    def _take(self, frame: Frame) -> None:
        if frame.tag == CANCEL:
            if task := self._tasks.get(frame.call):
                task.cancel()
        elif self._part.is_async:
            task = asyncio.create_task(self._attend(frame))
            self._tasks[frame.call] = task
            task.add_done_callback(lambda _: self._tasks.pop(frame.call, None))
        else:
            self._thread_of(frame.thread_number).submit(self._carry_out, frame)

    async def _attend(self, frame: Frame) -> None:
        try:
            reply = self._part.handle(frame.tag, frame.thread_number, frame.body)
            answer = await reply if isinstance(reply, Awaitable) else reply
        except BaseException as error:
            answer = _failed(error)
        self._reply(frame, answer)

    def _carry_out(self, frame: Frame) -> None:
        try:
            answer = self._part.handle(frame.tag, frame.thread_number, frame.body)
            assert isinstance(answer, tuple), "a plain part answers at once"
        except BaseException as error:
            answer = _failed(error)
        self._reply(frame, answer)

    def _reply(self, frame: Frame, answer: Answer) -> None:
        tag, body = answer
        if len(body) > self._max_body:
            message = f"the answer has {len(body)} bytes; at most {self._max_body} are sent"
            tag, body = FAILED, msgspec.msgpack.encode(Failure(message))
        try:
            self._writer.write(frame.call, tag, body)
        except OSError:
            os._exit(0)

    def _thread_of(self, thread_number: int) -> Executor:
        if thread_number not in self._threads:
            self._threads[thread_number] = ThreadPoolExecutor(
                1, thread_name_prefix=f"ludus-{thread_number}"
            )
        return self._threads[thread_number]


def _failed(error: BaseException) -> Answer:
    trace = "".join(traceback.format_exception(error))[-8000:]
    return FAILED, msgspec.msgpack.encode(Failure(f"{type(error).__name__}: {error}"[:2000], trace))
