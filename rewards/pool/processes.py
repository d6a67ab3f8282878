"""The pool's side of the template process and the workers: start, fork, kill, and find the cause of
death.
"""

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
class PoolWorkerDeath:
    """How a worker died: the signal (0 for none) and the CPU seconds used in all."""

    signal: int
    cpu_s: float

    @property
    def by_cpu_timer(self) -> bool:
        """Whether the kernel's CPU timer ended the worker."""
        return self.signal == signal.SIGPROF


class PoolWorker:
    """A forked worker process and the socket to that process."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self.sock = sock
        self.served = 0
        self.cpu_s = 0.0
        self._handle: int | None
        try:
            self._handle = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self._handle = None

    def kill(self) -> None:
        """Send SIGKILL. A pid file descriptor ensures that no other process with a reused number is
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
        """Return whether the process has died within `timeout_s`, before this pool kills the
        process.

        Without pid file descriptors (before Linux 5.3) this cannot be known; a broken connection
        then counts as the end.
        """
        if self._handle is None:
            return True
        end_poll = select.poll()
        end_poll.register(self._handle, select.POLLIN)
        return bool(end_poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """Close the socket; an idle worker then ends by itself."""
        self.sock.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class PoolTemplate:
    """The warm process that workers are forked from. Thread-safe."""

    def __init__(self, target: str, memory_bytes: int) -> None:
        self._lock = threading.Lock()
        self._control, template_end = socket.socketpair()
        with template_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ludus.rewards.pool.template"],
                stdin=template_end.fileno(),
                stdout=subprocess.DEVNULL,
                close_fds=True,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
                    # Thread pools of numeric libraries would make forking unsafe.
                    "OMP_NUM_THREADS": "1",
                },
            )
        channel.send(
            self._control, {"path": sys.path, "target": target, "memory_bytes": memory_bytes}
        )
        channel.receive(self._control, deadline=time.monotonic() + START_TIMEOUT_S)

    @property
    def pid(self) -> int:
        """The process id of the template."""
        return self._process.pid

    def fork(self) -> PoolWorker:
        """Return a fresh warm worker.

        Raises:
            PoolChannelClosed, OSError: the template is gone.
        """
        our_end, worker_end = socket.socketpair()
        try:
            with self._lock, worker_end:
                self._control.settimeout(CONTROL_TIMEOUT_S)
                socket.send_fds(self._control, [b"f"], [worker_end.fileno()])
                reply = channel.receive(
                    self._control, deadline=time.monotonic() + CONTROL_TIMEOUT_S
                )
        except BaseException:
            our_end.close()
            raise
        return PoolWorker(int(str(reply["pid"])) if isinstance(reply, dict) else 0, our_end)

    def reap(self, worker: PoolWorker) -> PoolWorkerDeath:
        """Wait for a dead (or killed) worker and return how the worker died, with all CPU time
        used.
        """
        with self._lock:
            self._control.settimeout(CONTROL_TIMEOUT_S)
            self._control.sendall(b"r")
            channel.send(self._control, {"pid": worker.pid})
            reply = channel.receive(self._control, deadline=time.monotonic() + CONTROL_TIMEOUT_S)
        worker.close()
        if not isinstance(reply, dict):
            return PoolWorkerDeath(0, 0.0)
        return PoolWorkerDeath(int(str(reply["signal"])), float(str(reply["cpu_s"])))

    def close(self) -> None:
        """End the template process; idle workers end when the sockets close."""
        with self._lock:
            self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=5)
