"""Calls and answers as JSON in the frames of `ludus.isolation.frames`, on a blocking socket."""

from __future__ import annotations

import importlib.util
import json
import socket
from types import ModuleType
from typing import Any

from .contract import PeerBroken, PeerRefusal

MAX_BODY = 64 << 20
"""The most bytes of a call or an answer."""
CALL, VALUE, ERROR, ASK = 1, 1, 2, 3
"""The tags of a call, of an answer with a value, of an answer with an error, and of a question that
the called side has before it can answer; the question's answer comes as a call of the same number.
"""


def load_file(name: str, path: str) -> ModuleType:
    """Import the module in the file `path` as `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PeerLine:
    """One side of a connection: whole messages over a stream socket.

    Args:
        sock: the connected socket; its timeout, if it has one, bounds each read.
        frames: the module `ludus.isolation.frames`.
    """

    def __init__(self, sock: socket.socket, frames: Any) -> None:
        self.sock = sock
        self.descriptors: list[int] = []
        """Descriptors that came along with messages and were not taken yet."""
        self._frames = frames
        self._waiting: list[Any] = []
        self._end: BaseException | None = None
        self._ended = False
        self._current = 0
        self._reader = frames.FrameReader(MAX_BODY, self._waiting.append, self._at_end)

    def receive(self) -> tuple[int, Any]:
        """Wait for a message; return the number of its call, and what it says.

        Raises:
            EOFError: the other side closed.
            OSError: the connection broke, or what came is not a message.
        """
        while not self._waiting:
            if self._ended:
                raise EOFError("the other side closed the connection")
            data, descriptors, _, _ = socket.recv_fds(self.sock, 1 << 16, 4)
            self.descriptors += descriptors
            if not data:
                raise EOFError("the other side closed the connection")
            self._reader.data_received(data)
            if self._end is not None:
                raise OSError(str(self._end))
        frame = self._waiting.pop(0)
        self._current = int(frame.call)
        return frame.call, json.loads(frame.body)

    def ask(self, question: Any) -> Any:
        """Ask the owner in the midst of a call, and wait for the answer."""
        number = self._current
        self.sock.sendall(self._frames.pack(number, ASK, 0, json.dumps(question).encode()))
        _, answer = self.receive()
        if "failed" in answer:
            raise PeerBroken(str(answer["failed"]))
        return answer["value"]

    def answer(self, call: int, value: object) -> None:
        """Send the result of a call."""
        try:
            body = json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            self.fail(call, error, "")
            return
        if len(body) > MAX_BODY:
            said = f"the answer has {len(body)} bytes; at most {MAX_BODY} are sent"
            self.fail(call, ValueError(said), "")
            return
        self.sock.sendall(self._frames.pack(call, VALUE, 0, body))

    def fail(self, call: int, error: BaseException, trace: str) -> None:
        """Send why a call has no result."""
        said = {
            "type": type(error).__name__,
            "message": str(error)[:2000],
            "trace": trace[-8000:],
            "ours": isinstance(error, PeerRefusal),
        }
        self.sock.sendall(self._frames.pack(call, ERROR, 0, json.dumps(said).encode()))

    def _at_end(self, error: BaseException | None) -> None:
        self._ended, self._end = True, error


_owner: list[PeerLine] = []
"""The line to the owner, in the process of an environment."""


def set_owner(line: PeerLine) -> None:
    """Make `line` what `ask` speaks through."""
    _owner[:] = [line]


def ask(question: dict[str, Any]) -> Any:
    """Ask the owner of this process, in the midst of a reset or a step; one thread at a time.

    Raises:
        PeerBroken: the owner cannot do what is asked.
    """
    if not _owner:
        raise PeerBroken("there is no owner to ask")
    return _owner[0].ask(question)
