"""The owner's side of the template and its workers: start, fork, kill, learn how one died."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from . import channel

START_TIMEOUT_S = 120.0
CONTROL_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Death:
    """How a worker died."""

    signal: int
    cpu_s: float

    @property
    def by_cpu_timer(self) -> bool:
        """Whether the kernel's CPU timer ended the worker."""
        return self.signal == signal.SIGPROF


class Worker:
    """A forked worker and the socket to it."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self.sock = sock
        self.served = 0
        self.cpu_s = 0.0
        self._handle = _pidfd(pid)

    def kill(self) -> None:
        """SIGKILL; a pid file descriptor makes sure that no other process with this number is
        hit.
        """
        try:
            if self._handle is None:
                os.kill(self.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def has_ended(self, timeout_s: float) -> bool:
        """Whether the process is dead within `timeout_s`, before anybody here kills it.

        Without pid file descriptors (no Linux 5.3) nobody can tell; a broken connection then
        counts as its end.
        """
        if self._handle is None:
            return True
        ended = select.poll()
        ended.register(self._handle, select.POLLIN)
        return bool(ended.poll(timeout_s * 1000))

    def close(self) -> None:
        """Let go of the socket (an idle worker ends by itself then)."""
        self.sock.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


class Template:
    """The warm process workers are forked from. Thread-safe."""

    def __init__(self, target: str, memory_bytes: int) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ludus.rewards.pool.template"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                close_fds=True,
                start_new_session=True,
                env=_environment(),
            )
        channel.send(
            self._control, {"path": sys.path, "target": target, "memory_bytes": memory_bytes}
        )
        channel.receive(self._control, deadline=time.monotonic() + START_TIMEOUT_S)

    @property
    def pid(self) -> int:
        """The template's process id."""
        return self._process.pid

    def fork(self) -> Worker:
        """A fresh warm worker.

        Raises:
            ChannelClosed, OSError: the template is gone.
        """
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            self._control.settimeout(CONTROL_TIMEOUT_S)
            socket.send_fds(self._control, [b"f"], [theirs.fileno()])
            reply = channel.receive(self._control, deadline=time.monotonic() + CONTROL_TIMEOUT_S)
        return Worker(int(str(reply["pid"])) if isinstance(reply, dict) else 0, ours)

    def reap(self, worker: Worker) -> Death:
        """Wait for a dead (or killed) worker; says how it died and what CPU it used in all."""
        with self._lock:
            self._control.settimeout(CONTROL_TIMEOUT_S)
            self._control.sendall(b"r")
            channel.send(self._control, {"pid": worker.pid})
            reply = channel.receive(self._control, deadline=time.monotonic() + CONTROL_TIMEOUT_S)
        worker.close()
        if not isinstance(reply, dict):
            return Death(0, 0.0)
        return Death(int(str(reply["signal"])), float(str(reply["cpu_s"])))

    def close(self) -> None:
        """End the template; its idle workers end when their sockets close."""
        with self._lock:
            self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=5)


def _environment() -> dict[str, str]:
    """The owner's environment, with this package importable and no thread pools in numeric
    libraries.
    """
    entries = [entry for entry in sys.path if entry]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entries), "OMP_NUM_THREADS": "1"}
