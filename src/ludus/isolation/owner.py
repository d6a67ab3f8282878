"""The owner's side of the fork server and of a template.

These calls block: make them on a thread. There is a single fork server for the whole process,
started when first needed. It ends when this process does, however that happens, and takes
everything below with it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from ludus.errors import ConfigError, MissingExtra
from ludus.wire.faults import CODES

from . import channel
from .worker_spec import WorkerSpec

START_TIMEOUT_S = 120.0
"""Seconds until the fork server has started and imported ludus."""
LOAD_TIMEOUT_S = 600.0
"""Seconds until a template has loaded an environment or verifier."""
CONTROL_TIMEOUT_S = 30.0
"""Seconds for a fork or a reap."""
STOP_TIMEOUT_S = 10.0
"""Seconds that the fork server has for an orderly end before it is killed."""
PRELOADED = ("ludus.envs.serving.worker", "ludus.rewards.serving.worker")
"""Modules of ludus that templates need, imported once in the fork server."""


@dataclass(frozen=True, slots=True)
class Forked:
    """A new worker: its pid, and this side of its socket and of its output."""

    pid: int
    sock: socket.socket
    output: int


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker process ended."""

    signal: int = 0
    code: int = 0
    cpu_s: float = 0.0
    known: bool = True
    """False if the template was lost too, since only the template can wait for its workers."""

    def __str__(self) -> str:
        if not self.known:
            return "nobody knows how, its template is gone too"
        if self.signal:
            return f"signal {self.signal}, {signal.Signals(self.signal).name}"
        return f"exit code {self.code}"


class ForkServer:
    """The process from which templates are forked."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._control, server_end = socket.socketpair()
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with server_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ludus.isolation.fork_server"],
                stdin=server_end.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, **_single_threaded()},
            )
        channel.send(self._control, {"path": sys.path, "imports": PRELOADED, "owner": os.getpid()})
        channel.receive(self._control, deadline=time.monotonic() + START_TIMEOUT_S)

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """The pid of the fork server."""
        return self._process.pid

    def fork(self) -> tuple[int, socket.socket]:
        """Fork a new template; return its pid and the socket to it.

        Raises:
            OSError: the fork server is gone.
        """
        our_end, worker_end = socket.socketpair()
        try:
            with self._lock, worker_end:
                self._control.settimeout(CONTROL_TIMEOUT_S)
                socket.send_fds(self._control, [b"t"], [worker_end.fileno()])
                reply = channel.receive(
                    self._control, deadline=time.monotonic() + CONTROL_TIMEOUT_S
                )
        except BaseException:
            our_end.close()
            raise
        return int(reply["pid"]), our_end

    def close(self) -> None:
        """End the fork server and all processes below; a fork of its owner changes nothing."""
        if self.owner != os.getpid():
            return
        self._control.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_server: ForkServer | None = None
_starting = threading.Lock()


def fork_server() -> ForkServer:
    """Return the fork server of this process; start a new server if none is alive."""
    global _server
    with _starting:
        if _server is None or _server.owner != os.getpid() or not _server.alive:
            _server = ForkServer()
            atexit.register(_server.close)
        return _server


class Template:
    """A loaded environment or verifier, from which workers are forked. Thread-safe.

    Args:
        recipe: what to load.
        memory_bytes: what a worker may use above the memory it starts with.
        max_body: the most bytes of a call or answer.

    Raises:
        LudusError: the part cannot be loaded; the type is that of the error in the template.
    """

    def __init__(self, recipe: WorkerSpec, *, memory_bytes: int, max_body: int) -> None:
        self.label = recipe.label
        self._lock = threading.Lock()
        self._setup: dict[str, Any] = {
            "make": recipe.make,
            "share": True,
            "memory_bytes": memory_bytes,
            "max_body": max_body,
            "path": sys.path,
            "folder": os.getcwd(),
            "environment": {**os.environ, **_single_threaded()},
        }
        self.pid, self._control = self._start()
        try:
            loaded = self._receive(LOAD_TIMEOUT_S)
            if "code" in loaded:
                # Rebuild the error of a template that could not load.
                code = CODES.get(loaded["code"])
                if not loaded["ours"] or code is None:
                    raise ConfigError(f"{recipe.label} cannot be loaded: {loaded['message']}")
                if code.error is MissingExtra:
                    raise MissingExtra(loaded["message"])
                raise code.error(loaded["message"])
        except BaseException:
            self._control.close()
            raise
        self.about: bytes = loaded["about"]
        """What the part says about itself."""
        self.is_async: bool = loaded["is_async"]
        self.unshareable: str = loaded["unshareable"]
        """Why every worker has to load by itself; empty where loaded data is shared."""
        if self.unshareable:
            self._control.close()
            self._setup["share"] = False
            self.pid, self._control = self._start()

    @property
    def alive(self) -> bool:
        """Whether the template still runs, as far as can be seen from here."""
        if not self._lock.acquire(blocking=False):
            return True  # another thread is talking with the template, and will notice its end
        try:
            poll = select.poll()
            poll.register(self._control, select.POLLIN)
            # Between calls the template sends nothing, so input can only be the end of the
            # connection.
            return not poll.poll(0)
        except (OSError, ValueError):
            return False
        finally:
            self._lock.release()

    def fork(self) -> Forked:
        """Fork a fresh worker.

        Raises:
            OSError: the template is gone.
        """
        our_end, worker_end = socket.socketpair()
        output, output_end = os.pipe()
        try:
            with self._lock, worker_end:
                self._control.settimeout(CONTROL_TIMEOUT_S)
                socket.send_fds(self._control, [b"f"], [worker_end.fileno(), output_end])
                reply = channel.receive(
                    self._control, deadline=time.monotonic() + CONTROL_TIMEOUT_S
                )
        except BaseException:
            our_end.close()
            os.close(output)
            raise
        finally:
            os.close(output_end)
        return Forked(int(reply["pid"]), our_end, output)

    def reap(self, pid: int) -> Death:
        """End the worker `pid`, if still alive, and return how the worker ended."""
        try:
            with self._lock:
                self._control.settimeout(CONTROL_TIMEOUT_S)
                self._control.sendall(b"r")
                channel.send(self._control, {"pid": pid})
                reply = channel.receive(
                    self._control, deadline=time.monotonic() + CONTROL_TIMEOUT_S
                )
        except (OSError, TimeoutError):
            return Death(known=False)
        return (
            Death(reply["signal"], reply["code"], reply["cpu_s"]) if reply else Death(known=False)
        )

    def close(self) -> None:
        """End the template, and with it the remaining workers."""
        with self._lock:
            self._control.close()

    def _start(self) -> tuple[int, socket.socket]:
        pid, control = fork_server().fork()
        channel.send(control, self._setup)
        return pid, control

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        try:
            return channel.receive(self._control, deadline=time.monotonic() + timeout_s)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # it hangs, so the pid is still its own
            raise ConfigError(f"{self.label} was not loaded within {timeout_s:g} s") from None
        except channel.ChannelClosed:
            raise ConfigError(
                f"{self.label} cannot be loaded: the process that loaded it ended (os._exit, a "
                "crash in a library, or out of memory)"
            ) from None


def _single_threaded() -> dict[str, str]:
    """Return variables that keep numeric libraries from thread pools, which a fork would lose."""
    return {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "4"}
