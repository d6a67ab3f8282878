"""The owner's side of a peer's interpreter: a process that has imported the peer's package, and the
processes forked from it, one for each environment.

Calls block and have deadlines. A call fails in one of three ways: the peer's side refuses what was
asked (`ConfigError`), the peer raises an exception (`PeerFailed`), or its process is late or gone
(`PeerLost`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ludus import sandboxes
from ludus.errors import ConfigError
from ludus.isolation import frames
from ludus.isolation.spawning import start_interpreter

from .inside import boot
from .inside.line import ASK, CALL, ERROR, MAX_BODY

START_TIMEOUT_S = 120.0
"""The default limit on the import of a peer's package, in seconds."""
CONTROL_TIMEOUT_S = 30.0
"""The limit on forking or ending the process of an environment, in seconds."""
CATALOGUE_TIMEOUT_S = 1800.0
"""The limit on listing a peer's families, in seconds."""
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "NLTK_DATA", "ALFWORLD_DATA")
"""The variables of the environment that a peer's process is given; secrets are not among them."""
_SANDBOXES = str(Path(sandboxes.__file__).resolve().parent)


class PeerFailed(Exception):
    """The peer raised an exception; `trace` is the peer's traceback."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class PeerLost(Exception):
    """The process of the peer did not answer in time, ended, or answered what cannot be read."""


Reply = Callable[[dict[str, Any], float], Any]
"""Answers a question of a peer's environment, within so many seconds."""


class _Failure(msgspec.Struct):
    """The body of an ERROR frame: why a call has no result; see `PeerLine.fail`."""

    type: str
    message: str
    trace: str = ""
    ours: bool = False
    """Whether our own code on the peer's side refused the call, and not the peer's package."""


class PeerConnection:
    """Calls with deadlines over a socket, one at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.line = frames.Line(sock, MAX_BODY)

    def call(
        self,
        asked: Mapping[str, Any],
        *,
        timeout_s: float,
        descriptors: Sequence[int] = (),
        reply: Reply | None = None,
    ) -> Any:
        """Send `asked` and return the answer.

        Args:
            asked: the call.
            timeout_s: the limit in seconds, questions of the other side included.
            descriptors: descriptors that go along.
            reply: answers questions that the other side asks in the midst of the call.

        Raises:
            PeerLost: no answer in time, the other side is gone, or its answer cannot be read.
            PeerFailed: the other side raised an exception.
            ConfigError: the other side refuses what was asked.
        """
        deadline = time.monotonic() + timeout_s
        try:
            number = self.line.send(
                CALL, msgspec.json.encode(asked), descriptors=descriptors, deadline=deadline
            )
            frame = self.line.receive(deadline=deadline)
            while frame.tag == ASK and frame.call == number:
                answer = _answer(frame.body, reply, deadline - time.monotonic())
                body = msgspec.json.encode(answer)
                self.line.send(CALL, body, call=number, deadline=deadline)
                frame = self.line.receive(deadline=deadline)
        except TimeoutError:
            raise PeerLost(f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise PeerLost(f"its process has ended ({error})") from error
        try:
            if frame.call != number:
                raise PeerLost(f"it answered call {frame.call} instead of {number}")
            if frame.tag == ERROR:
                failure = msgspec.json.decode(frame.body, type=_Failure)
                if failure.ours:
                    raise ConfigError(failure.message)
                raise PeerFailed(f"{failure.type}: {failure.message}", failure.trace)
            return msgspec.json.decode(frame.body)
        except msgspec.MsgspecError as error:
            raise PeerLost(f"its answer cannot be read: {error}") from error


def _answer(body: bytes, reply: Reply | None, remaining_s: float) -> dict[str, Any]:
    if reply is None:
        return {"failed": "the owner answers no questions"}
    try:
        return {"value": reply(msgspec.json.decode(body, type=dict[str, Any]), remaining_s)}
    except Exception as error:  # the peer's side raises it where the question was asked
        return {"failed": f"{type(error).__name__}: {error}"}


class PeerInterpreter:
    """A process of a peer's interpreter, with the peer's package imported.

    Args:
        python: the interpreter's program.
        adapter: the module of the adapter, as the other side imports it, or a file.
        memory_bytes: what an environment may use above the memory it starts with; 0 sets no limit.
        timeout_s: how long the import may take.
        label: the name of the peer, for messages.

    Raises:
        ConfigError: the interpreter does not start, the package cannot be imported, or its import
            takes longer than the limit.
    """

    def __init__(
        self, python: str, adapter: str, *, memory_bytes: int, timeout_s: float, label: str
    ) -> None:
        # A fork of this process inherits the object, but must not end the processes that belong to
        # its parent. So the owner is remembered.
        self.owner = os.getpid()
        self.label = label
        self._lock = threading.Lock()
        # A package may print any amount. A file takes all of it, and a pipe that nobody reads would
        # fill up and stop the process.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed with this object)
        try:
            self._process = start_interpreter(
                # -s leaves the user's own packages out, and -B writes no bytecode files.
                lambda descriptor: [python, "-s", "-B", boot.__file__, str(descriptor)],
                environment=_environment(),
                output=self._output,
                folder="/",
            )
        except OSError as error:
            raise ConfigError(f"{label}: {python} cannot be started: {error}") from error
        self._control = PeerConnection(self._process.sock)
        setup = {
            "adapter": adapter,
            "settings": {},
            "sandboxes": _SANDBOXES,
            "readable": [str(Path(boot.__file__).resolve().parent), _SANDBOXES],
            "memory_bytes": memory_bytes,
        }
        try:
            self.about: dict[str, Any] = self._control.call(setup, timeout_s=timeout_s)
        except (PeerFailed, PeerLost) as error:
            reason = f"{label} cannot be loaded by {python}: {error}{self._last_output()}"
            self.close(grace_s=0)
            raise ConfigError(reason) from error
        except BaseException:
            self.close(grace_s=0)
            raise

    @property
    def alive(self) -> bool:
        """Whether the process still runs and belongs to the calling process."""
        return self.owner == os.getpid() and self._control.line.is_open

    def fork(self, *, walls: bool, readable: Sequence[str] = (), scratch: bool = False) -> Child:
        """Fork a process for an environment.

        Args:
            walls: whether the process gives up the files, network and programs of the machine.
            readable: what it may read all the same.
            scratch: whether it gets a folder for temporary files, which ends with it.

        Raises:
            PeerLost: the interpreter is gone or late.
        """
        ours, theirs = socket.socketpair()
        # `theirs` is closed here once it was sent, or no end of file would ever be seen. `ours` is
        # closed only where the call fails.
        with theirs, self._lock, contextlib.ExitStack() as on_failure:
            on_failure.callback(ours.close)
            request: dict[str, Any] = {"do": "fork", "walls": walls, "readable": list(readable)}
            request["scratch"] = scratch
            pid = self._control.call(
                request, timeout_s=CONTROL_TIMEOUT_S, descriptors=[theirs.fileno()]
            )
            on_failure.pop_all()
        return Child(self, int(pid), PeerConnection(ours))

    def end(self, pid: int) -> str:
        """End a forked process with all descendants; return how the process ended."""
        try:
            with self._lock:
                how = self._control.call({"do": "end", "pid": pid}, timeout_s=CONTROL_TIMEOUT_S)
        except PeerLost as lost:  # the interpreter is gone, and its children have ended with it
            return str(lost)
        return str(how)

    def catalogue(self) -> dict[str, Any]:
        """Return the families that the adapter finds in the peer's package.

        Raises:
            PeerLost, PeerFailed: see `PeerConnection.call`.
        """
        with self._lock:
            question = {"do": "catalogue"}
            families: dict[str, Any] = self._control.call(question, timeout_s=CATALOGUE_TIMEOUT_S)
        return families

    def close(self, *, grace_s: float = 2.0) -> None:
        """End the process, which may take `grace_s`, and all that was forked from it."""
        if self.owner != os.getpid():
            return
        self._output.close()
        self._process.reap(grace_s)  # the process exits by itself at the end of its connection
        self._process.close()

    def _last_output(self) -> str:
        """Return the end of what the process printed, for a message."""
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - 2000))
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return f"; it printed: {' | '.join(lines[-3:])[-400:]}" if lines else ""


class Child:
    """The process of an environment, ended by `close` or with the owner process."""

    def __init__(self, interpreter: PeerInterpreter, pid: int, connection: PeerConnection) -> None:
        self.pid = pid
        self._interpreter = interpreter
        self._connection: PeerConnection | None = connection

    def call(
        self, asked: Mapping[str, Any], *, timeout_s: float, reply: Reply | None = None
    ) -> Any:
        """Send `asked` and return the answer; a process that is late or lost is ended.

        Raises:
            PeerLost, PeerFailed, ConfigError: see `PeerConnection.call`.
        """
        if self._connection is None:
            raise PeerLost("its process was ended")
        try:
            return self._connection.call(asked, timeout_s=timeout_s, reply=reply)
        except PeerLost as lost:
            how = self._end()
            raise PeerLost(f"{lost}; {how}") from lost

    def close(self) -> None:
        """End the process; safe to call twice."""
        if self._connection is not None:
            self._end()

    def _end(self) -> str:
        """End the process, then close the connection, and return how the process ended.

        At the end of the connection the process would exit by itself with code 0, which would hide
        how it was lost.
        """
        connection, self._connection = self._connection, None
        how = self._interpreter.end(self.pid)
        if connection is not None:
            connection.line.sock.close()
        return how


_interpreters: dict[tuple[str, ...], PeerInterpreter] = {}
_starting = threading.Lock()


def interpreter(
    python: str, adapter: str, *, memory_bytes: int, timeout_s: float, label: str
) -> PeerInterpreter:
    """Return the process of this interpreter and adapter, started if none runs. All environments of
    the calling process share it; see `PeerInterpreter` for arguments and errors.
    """
    key = (python, adapter, str(memory_bytes))
    with _starting:
        shared = _interpreters.get(key)
        if shared is not None and not shared.alive:
            shared.close(grace_s=0)
        if shared is None or not shared.alive:
            shared = _interpreters[key] = PeerInterpreter(
                python, adapter, memory_bytes=memory_bytes, timeout_s=timeout_s, label=label
            )
        return shared


@atexit.register
def _close_all() -> None:
    for shared in _interpreters.values():
        shared.close()
    _interpreters.clear()


def _environment() -> dict[str, str]:
    own_variables = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **own_variables,
        "LUDUS_FRAMES": str(frames.__file__),
        "PYTHONHASHSEED": "0",  # generators that go through sets draw the same in every process
        "HOME": "/nonexistent",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "MPLBACKEND": "agg",
    }
