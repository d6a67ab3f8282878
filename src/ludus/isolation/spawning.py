"""Starts processes: fresh interpreters, and workers that are forked from a loaded template.

These calls block: make them on a thread. There is a single fork server for the whole process,
started when first needed. It ends when this process does, however that happens, and takes
everything below with it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import FileIO
from typing import IO, Any

import msgspec

from ludus.errors import ConfigError, MissingExtra, ServerFault
from ludus.wire.faults import CODES

from .frames import Line, LineClosed
from .part import WorkerSpec

START_TIMEOUT_S = 120.0
"""Seconds until the fork server has started and imported ludus."""
LOAD_TIMEOUT_S = 600.0
"""Seconds until a template has loaded an environment or verifier."""
CONTROL_TIMEOUT_S = 30.0
"""Seconds for a fork or a reap."""
STOP_TIMEOUT_S = 10.0
"""Seconds that the fork server has for an orderly end before it is killed."""
PIPE_BYTES = 1 << 20
"""How much a worker may print before somebody has to read it."""
PRELOADED = ("ludus.envs.serving.worker", "ludus.rewards.serving.worker")
"""Modules of ludus that templates need, imported once in the fork server."""
MAX_CONTROL_BYTES = 256 << 20
"""The most bytes of a message to or from the fork server or a template."""
SETUP, FORK, REAP = 1, 2, 3
"""What the fork server and a template are asked; an answer has the tag of its question."""
SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "4"}
"""Variables that keep numeric libraries from thread pools, which a fork would lose."""


class ForkFailed(Exception):
    """The system has refused to fork a worker; the template goes on."""


@dataclass(frozen=True, slots=True)
class Death:
    """How a process ended."""

    signal: int = 0
    code: int = 0
    cpu_s: float = 0.0
    """The CPU time of the process in its whole life, in seconds."""
    known: bool = True
    """False if the parent of the process was lost too, since only a parent can wait for it."""

    def __str__(self) -> str:
        if not self.known:
            return "nobody knows how, its template is gone too"
        if self.signal:
            return f"signal {self.signal}, {signal.Signals(self.signal).name}"
        return f"exit code {self.code}"


class OwnedProcess:
    """A process that we started and may kill, until `reap` or `close`.

    Args:
        pid: its number, which is its own until it is reaped.
        sock: this side of the connection to the process.
        output: what the process prints, as a descriptor to read; negative if nobody reads it.
        wait: waits for the end of the process, which was killed, and says how it ended.
    """

    def __init__(
        self, pid: int, sock: socket.socket, output: int, wait: Callable[[], Death]
    ) -> None:
        self.pid = pid
        self.sock = sock
        self.output = output
        self.handle = -1
        """A pid file descriptor, which can be read once the process has ended; negative where the
        system has none.
        """
        self._wait = wait
        self._is_reaped = False
        self._files: list[FileIO] = []
        """What `close` closes: files, which are closed once and with this object at the latest."""
        if output >= 0:
            self._files.append(FileIO(output))
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.handle = os.pidfd_open(pid)
                self._files.append(FileIO(self.handle))

    def kill(self) -> None:
        """Send SIGKILL to the process and the process group.

        The process has not been reaped, so its pid cannot belong to another process.
        """
        if self._is_reaped:
            return
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            if self.handle >= 0:
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)

    def has_ended(self, timeout_s: float) -> bool:
        """Return whether the process ends by itself within `timeout_s`.

        Without pid file descriptors (before Linux 5.3) this cannot be known, and is answered yes.
        """
        poll = select.poll()
        if self.handle >= 0:
            poll.register(self.handle, select.POLLIN)
        return self.handle < 0 or bool(poll.poll(timeout_s * 1000))

    def reap(self, grace_s: float = 0.0) -> Death:
        """End the process and return how it ended; a second time that is not known.

        Args:
            grace_s: how long it may take to end by itself, at the end of the connection.
        """
        if grace_s:
            self.sock.close()
            self.has_ended(grace_s)
        self.kill()
        self._is_reaped = True
        return self._wait()

    def close(self) -> None:
        """Close what this side holds of the process; safe to call twice."""
        self.sock.close()
        self.output = self.handle = -1
        for file in self._files:
            file.close()


def start_interpreter(
    command: Callable[[int], Sequence[str]],
    *,
    environment: Mapping[str, str],
    output: IO[bytes] | int,
    folder: str | None = None,
) -> OwnedProcess:
    """Start a program in a new process group, connected by a socket.

    Args:
        command: the program and its arguments, given the number of its end of the socket.
        environment: its variables.
        output: the file for what it prints; `subprocess.DEVNULL` leaves its errors to our own.
        folder: its working directory.

    Raises:
        OSError: the program cannot be started.
    """
    ours, theirs = socket.socketpair()
    try:
        # Our copy of its end is closed, or no end of file would be seen when the process ends.
        with theirs:
            process = subprocess.Popen(
                command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output == subprocess.DEVNULL else subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C goes to the owner alone, which ends its processes
                cwd=folder,
                env=dict(environment),
            )
    except BaseException:
        ours.close()
        raise
    return OwnedProcess(process.pid, ours, -1, partial(_waited, process))


def start_worker(
    spec: WorkerSpec, *, max_body: int, environment: Mapping[str, str], output: IO[bytes]
) -> OwnedProcess:
    """Start a worker in a fresh interpreter, which shares nothing with this process.

    Args:
        spec: what it runs; it is loaded after this has returned.
        max_body: the most bytes of a call or answer.
        environment: its variables.
        output: the file for what it prints.

    Raises:
        OSError: the interpreter cannot be started.
    """
    # -P keeps the working directory off the import path, where a file could hide a module.
    program = [sys.executable, "-P", "-m", "ludus.isolation.worker"]
    process = start_interpreter(
        lambda descriptor: [*program, str(descriptor)], environment=environment, output=output
    )
    try:
        line = Line(process.sock, MAX_CONTROL_BYTES)
        deadline = time.monotonic() + START_TIMEOUT_S
        line.send(SETUP, msgspec.msgpack.encode((spec.make, max_body)), deadline=deadline)
        line.receive(deadline=deadline)
    except BaseException:
        process.reap()
        process.close()
        raise
    return process


def _waited(process: subprocess.Popen[bytes]) -> Death:
    try:
        code = process.wait(CONTROL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Death(known=False)
    return Death(signal=max(0, -code), code=max(0, code))


class _Parent:
    """Questions to a process that forks others, one at a time. Thread-safe."""

    def __init__(self, sock: socket.socket) -> None:
        self._line = Line(sock, MAX_CONTROL_BYTES)
        self._lock = threading.Lock()

    def ask(
        self,
        tag: int,
        question: Mapping[str, Any],
        *,
        call: int = 0,
        descriptors: Sequence[int] = (),
        timeout_s: float = CONTROL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Ask, and wait for the answer.

        Raises:
            TimeoutError: no answer in time.
            OSError: the process is gone, or what it says cannot be read.
        """
        deadline = time.monotonic() + timeout_s
        body = msgspec.msgpack.encode(question)
        with self._lock:
            number = self._line.send(
                tag, body, call=call, descriptors=descriptors, deadline=deadline
            )
            while (frame := self._line.receive(deadline=deadline)).call != number:
                pass  # the answer to a question that was given up
        try:
            return msgspec.msgpack.decode(frame.body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise LineClosed(f"an answer that cannot be read: {error}") from None

    @property
    def alive(self) -> bool:
        """Whether the process still runs, as far as can be seen from here."""
        if not self._lock.acquire(blocking=False):
            return True  # another thread is talking with it, and will notice its end
        try:
            return self._line.is_open
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection, at which the process ends with all forked processes."""
        self._line.sock.close()


class ForkServer:
    """The process from which templates are forked."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        path = os.pathsep.join(entry for entry in sys.path if entry)
        program = [sys.executable, "-P", "-m", "ludus.isolation.fork_server"]
        self._process = start_interpreter(
            lambda descriptor: [*program, str(descriptor)],
            environment={**os.environ, "PYTHONPATH": path, **SINGLE_THREADED},
            output=subprocess.DEVNULL,
        )
        try:
            self._parent = _Parent(self._process.sock)
            setup = {"path": sys.path, "imports": PRELOADED, "owner": os.getpid()}
            self._parent.ask(SETUP, setup, timeout_s=START_TIMEOUT_S)
        except BaseException:
            self._process.reap()
            self._process.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._parent.alive

    @property
    def pid(self) -> int:
        """The pid of the fork server."""
        return self._process.pid

    def fork(self) -> tuple[int, socket.socket]:
        """Fork a new template; return the template's pid and socket.

        Raises:
            OSError: the fork server is gone.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                answer = self._parent.ask(FORK, {}, descriptors=[theirs.fileno()])
            return int(answer["pid"]), ours
        except BaseException:
            ours.close()  # a template that was forked all the same ends at this
            raise

    def close(self) -> None:
        """End the fork server and all processes below; a fork of its owner changes nothing."""
        if self.owner == os.getpid():
            self._process.reap(STOP_TIMEOUT_S)
            self._process.close()


_server: ForkServer | None = None
_starting = threading.Lock()


def fork_server() -> ForkServer:
    """Return the fork server of this process; start a new server if none is alive."""
    global _server
    with _starting:
        if _server is None or _server.owner != os.getpid() or not _server.alive:
            if _server is not None:
                _server.close()
            _server = ForkServer()
            atexit.register(_server.close)
        return _server


class Template:
    """A loaded environment or verifier, from which workers are forked. Thread-safe.

    Args:
        spec: what to load.
        memory_bytes: what a worker may use above the memory it starts with.
        max_body: the most bytes of a call or answer.

    Raises:
        LudusError: the part cannot be loaded; the type is that of the error in the template.
    """

    def __init__(self, spec: WorkerSpec, *, memory_bytes: int, max_body: int) -> None:
        self.label = spec.label
        self._numbers = itertools.count(1)
        self._abandoned: list[int] = []
        """Numbers of forks whose process nobody here has got hold of."""
        setup: dict[str, Any] = {
            "make": spec.make,
            "share": True,
            "memory_bytes": memory_bytes,
            "max_body": max_body,
            "path": sys.path,
            "folder": os.getcwd(),
            "environment": {**os.environ, **SINGLE_THREADED},
        }
        loaded = self._load(setup)
        if "code" in loaded:
            # Rebuild the error of a template that could not load.
            self.close()
            code = CODES.get(loaded["code"])
            if not loaded["ours"] or code is None:
                raise ConfigError(f"{spec.label} cannot be loaded: {loaded['message']}")
            if code.error is ServerFault:  # an error of ludus that has no code, and names the part
                raise ConfigError(loaded["message"])
            if code.error is MissingExtra:
                raise MissingExtra(loaded["message"])
            raise code.error(loaded["message"])
        self.about: bytes = loaded["about"]
        """What the part says about itself."""
        self.is_async: bool = loaded["is_async"]
        self.unshareable: str = loaded["unshareable"]
        """Why every worker has to load by itself; empty where loaded data is shared."""
        if self.unshareable:
            self.close()
            self._load({**setup, "share": False})

    @property
    def alive(self) -> bool:
        """Whether the template still runs, as far as can be seen from here."""
        return self._parent.alive

    def fork(self, *, reads_output: bool = True) -> OwnedProcess:
        """Fork a fresh worker.

        Args:
            reads_output: whether the caller reads what the worker prints; otherwise only what it
                prints as errors is kept, among ours.

        Raises:
            ForkFailed: the system lets the template fork no process.
            OSError: the template is gone.
        """
        while self._abandoned:
            self._reap(self._abandoned[-1])
            self._abandoned.pop()
        number = next(self._numbers)
        reading = writing = -1
        ours, theirs = socket.socketpair()
        try:
            descriptors = [theirs.fileno()]
            if reads_output:
                reading, writing = os.pipe()
                # So that nobody who prints little waits for us; a system may allow less.
                with contextlib.suppress(OSError):
                    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
                descriptors.append(writing)
            answer = self._parent.ask(FORK, {}, call=number, descriptors=descriptors)
            if "refused" in answer:
                raise ForkFailed(answer["refused"])
            return OwnedProcess(int(answer["pid"]), ours, reading, partial(self._reap, number))
        except BaseException:
            self._abandoned.append(number)
            ours.close()
            if reading >= 0:
                os.close(reading)
            raise
        finally:
            theirs.close()
            if writing >= 0:
                os.close(writing)

    def close(self) -> None:
        """End the template and the remaining workers."""
        self._parent.close()

    def _reap(self, number: int) -> Death:
        """End a forked worker, and return how the worker ended."""
        try:
            answer = self._parent.ask(REAP, {"fork": number})
        except OSError:  # TimeoutError too
            return Death(known=False)
        if not answer:
            return Death(known=False)
        return Death(answer["signal"], answer["code"], answer["cpu_s"])

    def _load(self, setup: dict[str, Any]) -> dict[str, Any]:
        self.pid, sock = fork_server().fork()
        self._parent = _Parent(sock)
        try:
            return self._parent.ask(SETUP, setup, timeout_s=LOAD_TIMEOUT_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # it hangs, so the pid is still its own
            self.close()
            raise ConfigError(f"{self.label} was not loaded within {LOAD_TIMEOUT_S:g} s") from None
        except LineClosed:
            self.close()
            raise ConfigError(
                f"{self.label} cannot be loaded: the process that loaded it ended (os._exit, a "
                "crash in a library, or out of memory)"
            ) from None
