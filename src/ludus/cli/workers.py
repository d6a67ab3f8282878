"""`ludus serve --workers N`: N server processes, each on a port, kept alive.

A session lives in one process, so connections must not be spread blindly over the processes, as
SO_REUSEPORT would do. Each worker has an address, and clients hash a session to one of the
addresses (decision 0202). A worker that dies is started again on its port; its sessions are gone,
and clients are told so by a typed error.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import subprocess
import sys
import time
from io import FileIO
from types import FrameType
from typing import TYPE_CHECKING

from ludus.errors import ConfigError

from .loading import imported

if TYPE_CHECKING:
    from .serve import ServeOptions

logger = logging.getLogger(__name__)
READY_TIMEOUT_S = 600.0
"""Seconds that a worker may take at the start until it listens."""
STOP_TIMEOUT_S = 30.0
"""Seconds that all workers together have for an orderly end before they are killed."""
RESTART_AFTER_S = 0.5
"""Seconds before the first restart of a worker; doubled each time it dies young again."""
MAX_RESTART_AFTER_S = 30.0
"""The longest wait before a restart, in seconds."""
STABLE_S = 60.0
"""Seconds after which a worker that dies has not died young, so the wait starts over."""
POLL_S = 0.2
"""Seconds between two looks at whether the workers are alive, or ready."""
MAX_ADDRESS = 4096
"""The most bytes of an address; a worker writes it at once, and pipes take as much in one piece."""
WORKER_VARIABLE = "LUDUS_WORKER"
"""The environment variable set for worker processes: the descriptor to which a worker writes its
address once it listens. Such a process stops when its standard input closes, so no worker outlives
the process that started it.
"""


class ServerWorker:
    """A server process on a fixed port, through all restarts."""

    def __init__(self, options: ServeOptions, port: int) -> None:
        self.options = options
        self.port = port
        self.url = ""
        self.started = 0.0
        self.restarts = 0
        self.next_start = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        """The running process; None while a restart is due."""
        self._address: FileIO | None = None
        """The end of a pipe from which the address of the process is read, without blocking."""

    def start(self) -> None:
        """Start the process; `ready` waits until the server listens."""
        options = dataclasses.replace(self.options, workers=1, port=self.port)
        imports = [part for name in imported for part in ("--import", name)]
        # Without -P, `-m` would put the current folder on the import path, where a file of the user
        # may have the name of a module of the standard library.
        command = [sys.executable, "-P", "-m", "ludus", *imports, "serve", *as_arguments(options)]
        reading_end, writing_end = os.pipe()
        os.set_blocking(reading_end, False)
        self._address = FileIO(reading_end)
        environment = {**os.environ, WORKER_VARIABLE: str(writing_end)}
        if self.options.token:  # as a variable, since `ps` shows arguments to every user
            environment["LUDUS_TOKEN"] = self.options.token.reveal()
        self.started = time.monotonic()
        try:
            # The address has a pipe of its own, and what environments print goes to the log: a pipe
            # for stdout would fill up with it and block them, unless somebody read it all the time,
            # and on the stdout of this process it could cut the line with the addresses in two.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=sys.stderr,
                env=environment,
                pass_fds=[writing_end],
                process_group=0,  # Ctrl-C reaches this process alone, which then ends the workers
            )
        finally:
            os.close(writing_end)

    def ready(self) -> None:
        """Wait for the address, and keep it and the port: where the port was chosen by the system,
        a restart has to take the same one.

        Raises:
            ConfigError: the process ended or took too long; the reason is on stderr.
        """
        assert self.process is not None
        assert self._address is not None
        deadline = self.started + READY_TIMEOUT_S
        # The end of the pipe tells nothing, since processes forked by user code may hold it open.
        while not (url := self._address.read(MAX_ADDRESS)):
            if (code := self.process.poll()) is not None:
                raise ConfigError(f"a worker could not start (exit code {code}); its log is above")
            if time.monotonic() > deadline:
                self.process.kill()
                raise ConfigError(
                    f"a worker was not ready within {READY_TIMEOUT_S:g} s; its log above may say "
                    "what it waited for"
                )
            time.sleep(POLL_S)
        self.url = url.decode()
        self.port = int(self.url.rpartition(":")[2])

    def close_pipes(self) -> None:
        """Close the pipes to a process that has ended."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        if self._address is not None:
            self._address.close()

    def restart_after_s(self) -> float:
        """Count a restart, and return the seconds to wait before: doubled each time the worker dies
        young.
        """
        if time.monotonic() - self.started > STABLE_S:
            self.restarts = 0
        self.restarts += 1
        # The exponent is bounded, because a float overflows after some 1,000 doublings.
        return min(MAX_RESTART_AFTER_S, RESTART_AFTER_S * 2.0 ** min(self.restarts - 1, 16))


class Workers:
    """Starts the workers, and starts each again that dies, until told to stop."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        ports = [options.port + i if options.port else 0 for i in range(options.workers)]
        self.workers = [ServerWorker(options, port) for port in ports]
        self._stopping = False

    def run(self) -> int:
        """Serve until SIGINT or SIGTERM; returns 0."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        try:
            # All workers are started before the first is waited for, so that they load together.
            for worker in self.workers:
                worker.start()
            for worker in self.workers:
                worker.ready()
            from .serve import ready_line

            urls = ",".join(worker.url for worker in self.workers)
            print(ready_line(urls, self.options), flush=True)
            while not self._stopping:
                self._revive()
                time.sleep(POLL_S)
        finally:
            alive = [worker.process for worker in self.workers if worker.process is not None]
            for process in alive:
                process.terminate()
            deadline = time.monotonic() + STOP_TIMEOUT_S
            for process in alive:
                try:
                    process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            for worker in self.workers:
                worker.close_pipes()
        return 0

    def _revive(self) -> None:
        now = time.monotonic()
        for worker in self.workers:
            process = worker.process
            if process is not None and process.poll() is not None:
                after_s = worker.restart_after_s()
                logger.error(
                    "worker %s ended with code %s; starting it again in %g s",
                    worker.url,
                    process.returncode,
                    after_s,
                )
                worker.close_pipes()
                worker.process, worker.next_start = None, now + after_s
            elif process is None and now >= worker.next_start:
                worker.start()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True


def as_arguments(options: ServeOptions) -> list[str]:
    """Write the command line that gives `options`, without the token, which the environment
    carries.
    """
    arguments = list(options.names)
    for option in dataclasses.fields(options):
        if option.name not in ("names", "token", "options"):
            value = getattr(options, option.name)
            arguments.append(f"--{option.name.replace('_', '-')}={value}")
    return arguments
