"""A worker process: carries out calls until the owner closes the socket, or the process is killed.

Calls of a part with plain methods run on worker threads, which the calls name by number; calls of
an async part run side by side on the event loop; a part that `takes_turns` has its calls one after
another on the main thread, without a loop. Nothing here keeps time: the owner does, and kills a
worker that is late.

A worker is forked from a template, or a fresh interpreter (`python -m ludus.isolation.worker`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NoReturn

import cloudpickle
import msgspec

from ludus.errors import error_text, error_trace

from . import system
from .frames import CANCEL, FAILED, Frame, FrameReader, FrameWriter, Line
from .part import Answer, WorkerPart

ORPHAN_LOOK_S = 1.0
"""The time between two looks of a fresh interpreter at whether its owner lives, in seconds."""


class Failure(msgspec.Struct, frozen=True):
    """The reason why a call has no result: an exception escaped from the part."""

    message: str
    trace: str = ""


def run_forked(
    descriptors: Sequence[int], parent: int, setup: dict[str, Any], part: WorkerPart | None
) -> NoReturn:
    """Be a worker; runs in a fork of the template.

    Args:
        descriptors: the socket to the owner, then the pipe for the output if somebody reads it.
        parent: the pid of the template.
        setup: the set-up message of the template.
        part: what is run, if the template has loaded it.
    """
    try:
        os.setsid()
        system.end_with_parent(parent)
        system.adopt_orphans()  # what detaches from a live worker stays below it
        null = os.open(os.devnull, os.O_RDWR)
        output = descriptors[1:]
        os.dup2(null, 0)
        os.dup2(output[0] if output else null, 1)
        if output:
            os.dup2(output[0], 2)
        for descriptor in (null, *output):
            os.close(descriptor)
        system.cap_memory(int(setup["memory_bytes"]))
        random.seed()  # a fork shares the state of the module
        loaded_part: WorkerPart = cloudpickle.loads(setup["make"])() if part is None else part
        serve(socket.socket(fileno=descriptors[0]), loaded_part, int(setup["max_body"]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


def main(descriptor: int) -> None:
    """Be a worker in a fresh interpreter: the first frame says what is run."""
    parent = os.getppid()
    threading.Thread(target=_end_with_owner, args=(parent,), daemon=True).start()
    os.set_inheritable(descriptor, False)
    sock = socket.socket(fileno=descriptor)
    line = Line(sock, 1 << 30)
    setup = line.receive()
    make, max_body = msgspec.msgpack.decode(setup.body, type=tuple[bytes, int])
    line.send(setup.tag, b"", call=setup.call)  # calls come only now, so none was read with it
    serve(sock, cloudpickle.loads(make)(), max_body)


def _end_with_owner(owner: int) -> None:
    """End the process when the owner has ended, even if a copy of the socket is open elsewhere."""
    while os.getppid() == owner:
        time.sleep(ORPHAN_LOOK_S)
    os._exit(1)


def serve(sock: socket.socket, part: WorkerPart, max_body: int) -> None:
    """Answer calls until the owner is gone, which ends the process."""
    if part.takes_turns:
        part.start(lambda number: ThreadPoolExecutor(1))
        gc.freeze()
        line = Line(sock, max_body)
        try:
            while True:
                call = line.receive()
                try:
                    answer = part.handle(call.tag, call.thread_number, call.body)
                    assert isinstance(answer, tuple), "a part that takes turns answers at once"
                except BaseException as error:
                    answer = _failed(error)
                if len(answer[1]) > max_body:
                    answer = _too_long(answer, max_body)
                line.send(*answer, call=call.call)
        except OSError:
            os._exit(0)
    sock.setblocking(False)
    asyncio.run(_Worker(sock, part, max_body).serve())


class _Worker:
    def __init__(self, sock: socket.socket, part: WorkerPart, max_body: int) -> None:
        self._socket = sock
        self._writer = FrameWriter(os.dup(sock.fileno()))
        self._part = part
        self._is_async = part.is_async
        self._max_body = max_body
        self._threads: dict[int, Executor] = {}
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

    def _take(self, call: Frame) -> None:
        if call.tag == CANCEL:
            if task := self._tasks.get(call.call):
                task.cancel()
        elif self._is_async:
            task = asyncio.create_task(self._attend(call))
            self._tasks[call.call] = task
            task.add_done_callback(lambda _: self._tasks.pop(call.call, None))
        else:
            thread = self._threads.get(call.thread_number) or self._thread_of(call.thread_number)
            thread.submit(self._carry_out, call)

    async def _attend(self, call: Frame) -> None:
        try:
            reply = self._part.handle(call.tag, call.thread_number, call.body)
            answer = await reply if isinstance(reply, Awaitable) else reply
        except BaseException as error:
            answer = _failed(error)
        self._reply(call, answer)

    def _carry_out(self, call: Frame) -> None:
        try:
            answer = self._part.handle(call.tag, call.thread_number, call.body)
            assert isinstance(answer, tuple), "a plain part answers at once"
        except BaseException as error:
            answer = _failed(error)
        self._reply(call, answer)

    def _reply(self, call: Frame, answer: Answer) -> None:
        if len(answer[1]) > self._max_body:
            answer = _too_long(answer, self._max_body)
        try:
            self._writer.write(call.call, *answer)
        except OSError:
            os._exit(0)

    def _thread_of(self, thread_number: int) -> Executor:
        if thread_number not in self._threads:
            self._threads[thread_number] = ThreadPoolExecutor(
                1, thread_name_prefix=f"ludus-{thread_number}"
            )
        return self._threads[thread_number]


def _too_long(answer: Answer, max_body: int) -> Answer:
    """Say why an answer is not sent: the owner would trust nobody who sends so much."""
    message = f"the answer has {len(answer[1])} bytes; at most {max_body} are sent"
    return FAILED, msgspec.msgpack.encode(Failure(message))


def _failed(error: BaseException) -> Answer:
    message = f"{type(error).__name__}: {error_text(error)}"[:2000]
    return FAILED, msgspec.msgpack.encode(Failure(message, error_trace(error)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
