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
    """An end of a connection that carries whole messages over a stream socket.

    Args:
        sock: the connected socket.
        frames: the module `ludus.isolation.frames`.
    """

    def __init__(self, sock: socket.socket, frames: Any) -> None:
        self.sock = sock
        self._frames = frames
        self._line = frames.Line(sock, MAX_BODY, max_descriptors=4)
        self._current = 0

    @property
    def descriptors(self) -> list[int]:
        """Descriptors that came along with messages and were not taken yet."""
        came: list[int] = self._line.descriptors
        return came

    def receive(self) -> tuple[int, Any]:
        """Wait for a message; return the call's number and the content.

        Raises:
            EOFError: the other side closed.
            OSError: the connection broke, or what came is not a message.
        """
        try:
            frame = self._line.receive()
        except self._frames.BadFrame:
            raise
        except self._frames.LineClosed as closed:
            raise EOFError(str(closed)) from None
        self._current = int(frame.call)
        return frame.call, json.loads(frame.body)

    def ask(self, question: Any) -> Any:
        """Ask the owner in the midst of a call, and wait for the answer."""
        number = self._current
        self._line.send(ASK, json.dumps(question).encode(), call=number)
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
        self._line.send(VALUE, body, call=call)

    def fail(self, call: int, error: BaseException, trace: str) -> None:
        """Send why a call has no result."""
        said = {
            "type": type(error).__name__,
            "message": str(error)[:2000],
            "trace": trace[-8000:],
            "ours": isinstance(error, PeerRefusal),
        }
        self._line.send(ERROR, json.dumps(said).encode(), call=call)


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
